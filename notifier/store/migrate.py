"""The schema: which revision the database has, which one this build needs, and the way there."""

from __future__ import annotations

import ast
import asyncio
import functools
import importlib
import importlib.util
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import asyncpg
import structlog

from notifier.domain.errors import NotReady
from notifier.store.probe import address, unreadable

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

SERVER_VERSION_MIN = 150_000
LOCK_KEY = 0x6E6F_7469_6669_6572  # "notifier"
LOCK_POLL_S = 0.1
CONNECT_TIMEOUT_S = 10.0
NOTHING_YET = "base"
BESIDE_US = Path(__file__).resolve().parents[2] / "migrations"
FIRST_REVISION = "0001_the_house.py"
# By default a user's own schema comes first, and for a user called notifier that is the one that holds the clock.
IN_PUBLIC = {"search_path": "public"}

HAS_REVISION = "SELECT to_regclass('alembic_version') IS NOT NULL"
REVISION = "SELECT version_num FROM alembic_version"
TRY_LOCK = "SELECT pg_try_advisory_xact_lock($1)"
KEEP_IDLE = "SET LOCAL idle_in_transaction_session_timeout = 0"

log = structlog.get_logger(__name__)


async def migrate(database_url: str, *, directory: Path | None = None) -> str:
    """Bring the schema to this build's revision and answer it; any number of processes may call at once.

    Raises NotReady: server away or older than 15, a schema that a newer build made, a migration that failed.
    """
    directory = directory or migrations()
    with _explained(database_url):
        conn = await asyncpg.connect(database_url, timeout=CONNECT_TIMEOUT_S, server_settings=IN_PUBLIC)
        try:
            _check_server(conn)
            async with conn.transaction():  # holds the lock, and nothing else; ends with the connection
                await conn.execute(KEEP_IDLE)
                await _lock(conn)
                await _advance(conn, database_url, directory)
        finally:
            await conn.close(timeout=CONNECT_TIMEOUT_S)
    return head(directory)


async def revision(conn: asyncpg.Connection) -> str:
    """The revision the database is at; "base" before the first migration."""
    if not await conn.fetchval(HAS_REVISION):
        return NOTHING_YET
    return str(await conn.fetchval(REVISION) or NOTHING_YET)


async def check(database_url: str) -> None:
    """Raise NotReady unless the server answers and its schema is the one this build needs."""
    with _explained(database_url):
        conn = await asyncpg.connect(database_url, timeout=CONNECT_TIMEOUT_S, server_settings=IN_PUBLIC)
        try:
            _check_server(conn)
            await require_current(conn)
        finally:
            await conn.close(timeout=CONNECT_TIMEOUT_S)


async def require_current(conn: asyncpg.Connection) -> None:
    """Raise NotReady unless the schema is the one this build needs; the words tell older from newer."""
    found = await revision(conn)
    if found != head():
        _refuse_newer(found, migrations())
        raise NotReady(f"the schema is at revision {found}, this build needs {head()}: run `notifier migrate`")


def is_too_old(found: str) -> bool:
    """Whether a revision lacks something that this build needs.

    One that this build does not know is newer, and a migration leaves what the build before it needs.
    """
    return found != head() and (found == NOTHING_YET or found in _chain(migrations()))


@functools.cache
def migrations() -> Path:
    """The directory of our migrations: beside the package `notifier`, or wherever a package of that name is ours.

    The name is a common one, and the working directory comes first when packages are looked for.
    """
    spec = importlib.util.find_spec("migrations")  # not imported: it may be anybody's
    for directory in (BESIDE_US, *map(Path, (spec.submodule_search_locations or ()) if spec else ())):
        if (directory / "versions" / FIRST_REVISION).is_file():
            return directory
    raise NotReady(f"the migrations are missing: there is no {BESIDE_US / 'versions' / FIRST_REVISION}. Reinstall")


def head(directory: Path | None = None) -> str:
    """The revision this build needs. Read without Alembic, which is slow to load and only migrates."""
    chain = _chain(directory or migrations())
    heads = set(chain) - set(chain.values())
    if len(heads) > 1:
        raise NotReady(f"this build is broken: its migrations end in {len(heads)} places ({', '.join(sorted(heads))})")
    return heads.pop() if heads else NOTHING_YET


@functools.cache
def _chain(directory: Path) -> dict[str, str | None]:
    """Revision → the one before it, from the two assignments every revision file has."""
    found: dict[str, str | None] = {}
    for file in sorted((directory / "versions").glob("[0-9]*.py")):
        names = dict(_assignments(ast.parse(file.read_text(encoding="utf-8"))))
        found[str(names["revision"])] = None if names["down_revision"] is None else str(names["down_revision"])
    return found


def _assignments(module: ast.Module) -> Iterator[tuple[str, object]]:
    for node in module.body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        value = getattr(node, "value", None)
        if isinstance(target, ast.Name) and isinstance(value, ast.Constant):
            yield target.id, value.value


def _check_server(conn: asyncpg.Connection) -> None:
    version = conn.get_server_version()
    if version.major * 10_000 < SERVER_VERSION_MIN:
        raise NotReady(f"PostgreSQL {version.major} is too old: 15 is the oldest this build works with")


def _refuse_newer(found: str, directory: Path) -> None:
    if found != NOTHING_YET and found not in _chain(directory):
        raise NotReady(
            f"the schema is at revision {found}, which this build does not know: a newer build migrated this "
            "database. Start that build, or a newer one; there is no way back"
        )


async def _lock(conn: asyncpg.Connection) -> None:
    waiting_since: float | None = None
    while not await conn.fetchval(TRY_LOCK, LOCK_KEY):
        if waiting_since is None:
            waiting_since = time.monotonic()
            log.info("migrate.waiting", reason="another process is migrating this database")
        await asyncio.sleep(LOCK_POLL_S)
    if waiting_since is not None:
        log.info("migrate.waited", seconds=round(time.monotonic() - waiting_since, 1))


async def _advance(conn: asyncpg.Connection, database_url: str, directory: Path) -> None:
    found = await revision(conn)
    _refuse_newer(found, directory)
    if found != head(directory):
        await _upgrade(database_url, directory)
        log.info("migrate.done", before=found, after=head(directory))


async def _upgrade(database_url: str, directory: Path) -> None:
    await preload()
    from sqlalchemy.exc import DBAPIError
    from sqlalchemy.ext.asyncio import create_async_engine
    from sqlalchemy.pool import NullPool

    engine = create_async_engine(
        "postgresql+asyncpg://",
        poolclass=NullPool,
        # asyncpg reads the URL itself, so a URL means here what it means elsewhere
        async_creator=lambda: asyncpg.connect(
            database_url, timeout=CONNECT_TIMEOUT_S, statement_cache_size=0, server_settings=IN_PUBLIC
        ),
    )
    try:
        async with engine.connect() as connection:
            await connection.run_sync(_run_alembic, directory)
    except DBAPIError as error:
        raise NotReady(f"a migration failed and was rolled back: {error.orig}") from error
    finally:
        await engine.dispose()


async def preload() -> None:
    """Load Alembic beside other work: it takes the better part of a second."""
    await asyncio.to_thread(importlib.import_module, "alembic.command")
    await asyncio.to_thread(importlib.import_module, "sqlalchemy.ext.asyncio")


def _run_alembic(connection: Connection, directory: Path) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(directory).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


@contextmanager
def _explained(database_url: str) -> Iterator[None]:
    """Turn what a server refuses into words for the operator."""
    where = address(database_url)
    try:
        yield
    except (OSError, TimeoutError, asyncpg.CannotConnectNowError, asyncpg.TooManyConnectionsError) as error:
        raise NotReady(f"no PostgreSQL answers at {where} ({error or type(error).__name__}): is it up?") from error
    except (asyncpg.InvalidAuthorizationSpecificationError, asyncpg.InvalidCatalogNameError) as error:
        raise NotReady(
            f"the PostgreSQL at {where} does not let us in: {error}. Look at NOTIFIER_DATABASE_URL"
        ) from error
    except ValueError:  # what asyncpg says of a URL quotes it, password and all
        raise NotReady(unreadable(database_url)) from None
