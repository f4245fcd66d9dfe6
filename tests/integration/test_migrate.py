"""The way to the schema: once, by one process at a time, never backwards."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import itertools
import os
import re
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import asyncpg
import pytest

from notifier.domain.errors import NotReady
from notifier.settings import Settings
from notifier.store import migrate, probe
from notifier.store.database import open_database

HEADER = "from alembic import op\nrevision = {revision!r}\ndown_revision = {before!r}\n\ndef upgrade():\n"


def migrations_in(directory: Path, *statements: str) -> Path:
    """A directory of migrations: one revision per statement."""
    (directory / "versions").mkdir()
    shutil.copy(migrate.migrations() / "env.py", directory)
    for number, statement in enumerate(statements, 1):
        text = HEADER.format(revision=f"{number:04}", before=f"{number - 1:04}" if number > 1 else None)
        (directory / "versions" / f"{number:04}_x.py").write_text(f"{text}    op.execute({statement!r})\n")
    return directory


async def value(url: str, query: str) -> Any:
    conn = await asyncpg.connect(url)
    try:
        return await conn.fetchval(query)
    finally:
        await conn.close()


async def test_a_migrated_database_is_at_the_head_of_this_build(database_url: str) -> None:
    await migrate.check(database_url)
    assert await migrate.migrate(database_url) == migrate.head()


async def test_an_empty_database_is_not_ready_and_the_text_says_what_to_do(empty_database_url: str) -> None:
    with pytest.raises(NotReady, match=r"at revision base.*run `notifier migrate`"):
        await migrate.check(empty_database_url)


async def test_only_one_of_several_migrates(empty_database_url: str, tmp_path: Path) -> None:
    directory = migrations_in(
        tmp_path, "CREATE TABLE once (at timestamptz)", "INSERT INTO once SELECT now() FROM pg_sleep(0.3)"
    )
    answers = await asyncio.gather(*(migrate.migrate(empty_database_url, directory=directory) for _ in range(4)))
    assert answers == ["0002"] * 4
    assert await value(empty_database_url, "SELECT count(*) FROM once") == 1


async def test_what_succeeded_stays_and_what_failed_leaves_nothing(empty_database_url: str, tmp_path: Path) -> None:
    directory = migrations_in(
        tmp_path, "CREATE TABLE first (a int)", "DO $$ BEGIN CREATE TABLE second (a int); RAISE 'no'; END $$"
    )
    with pytest.raises(NotReady, match=r"rolled back: .*no"):
        await migrate.migrate(empty_database_url, directory=directory)
    assert await value(empty_database_url, "SELECT version_num FROM alembic_version") == "0001"
    assert await value(empty_database_url, "SELECT to_regclass('first') IS NOT NULL AND to_regclass('second') IS NULL")


async def test_a_schema_from_a_newer_build_is_refused(empty_database_url: str, tmp_path: Path) -> None:
    directory = migrations_in(tmp_path, *["SELECT 1"] * 9)
    await migrate.migrate(empty_database_url, directory=directory)
    for act in (migrate.migrate, migrate.check):
        with pytest.raises(NotReady, match="0009, which this build does not know"):
            await act(empty_database_url)


def up_to(directory: Path, last: str) -> Path:
    """Our migrations as an earlier build had them."""
    shutil.copytree(migrate.migrations(), directory, ignore=shutil.ignore_patterns("__pycache__"))
    for file in (directory / "versions").glob("[0-9]*.py"):
        if file.name[:4] > last:
            file.unlink()
    return directory


IS_CHECKED = "SELECT convalidated FROM pg_constraint WHERE conname = 'deliveries_doubt'"
AN_OPEN_ROW = """
    INSERT INTO deliveries (id, user_id, kind, next_attempt_at, doubt_since, generation, provider, template_hash,
                            reason)
    VALUES (gen_random_uuid(), 'u', 'k', now(), $1, $2, $3, $4, $5)
"""


async def write_all_that_goes(url: str) -> int:
    """Write open rows of every form, as far as the rules let them in. How many went in."""
    conn = await asyncpg.connect(url)
    written = 0
    try:
        forms = itertools.product((None, datetime.now(UTC)), (0, 1), (None, "mock:1"), (None, "h1"), (None, "timeout"))
        for form in forms:
            with contextlib.suppress(asyncpg.CheckViolationError):
                await conn.execute(AN_OPEN_ROW, *form)
                written += 1
    finally:
        await conn.close()
    return written


async def test_the_build_before_this_one_writes_on_while_its_rows_are_checked(
    empty_database_url: str, tmp_path: Path
) -> None:
    url = empty_database_url
    await migrate.migrate(url, directory=up_to(tmp_path / "first", "0001"))
    before = await write_all_that_goes(url)
    assert before == 18
    await migrate.migrate(url, directory=up_to(tmp_path / "second", "0002"))
    assert await value(url, IS_CHECKED) is False, "nobody is kept out while every row is looked at"
    writer = await asyncpg.connect(url)
    try:
        async with writer.transaction():
            await writer.execute("UPDATE deliveries SET next_attempt_at = now(), attempts = attempts + 1")
            async with asyncio.timeout(30):
                assert await migrate.migrate(url, directory=up_to(tmp_path / "third", "0003")) == "0003"
            await writer.execute("UPDATE deliveries SET waits = waits + 1")
    finally:
        await writer.close()
    assert await value(url, IS_CHECKED) is True
    assert await migrate.migrate(url) == migrate.head()
    assert await write_all_that_goes(url) >= before


async def test_room_for_claims_is_made_while_somebody_writes(empty_database_url: str, tmp_path: Path) -> None:
    url = empty_database_url
    await migrate.migrate(url, directory=up_to(tmp_path / "before", "0005"))
    assert await write_all_that_goes(url) > 0
    writer = await asyncpg.connect(url)
    try:
        async with writer.transaction():
            await writer.execute("UPDATE deliveries SET attempts = attempts + 1")
            async with asyncio.timeout(30):
                assert await migrate.migrate(url, directory=up_to(tmp_path / "after", "0006")) == "0006"
            await writer.execute("UPDATE deliveries SET waits = waits + 1")
    finally:
        await writer.close()


async def test_a_url_may_carry_arguments(empty_database_url: str, tmp_path: Path) -> None:
    url = empty_database_url.replace("postgresql://", "postgres://") + "?sslmode=prefer&application_name=migrating"
    assert await migrate.migrate(url, directory=migrations_in(tmp_path, "SELECT 1")) == "0001"


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda url: "postgresql://127.0.0.1:1/x", "no PostgreSQL answers at 127.0.0.1:1"),
        (lambda url: "postgresql://127.0.0.1:port/x", "NOTIFIER_DATABASE_URL: its host or port cannot be read"),
        (lambda url: url.replace("@", "wrong@"), "does not let us in.*NOTIFIER_DATABASE_URL"),
        (lambda url: url + "_that_is_not_there", "does not let us in.*does not exist"),
    ],
)
async def test_a_server_that_cannot_be_used_is_named_without_its_password(
    empty_database_url: str, change: Any, text: str
) -> None:
    with pytest.raises(NotReady, match=text) as caught:
        await migrate.migrate(change(empty_database_url))
    assert empty_database_url.split(":")[2].split("@")[0] not in str(caught.value)


UNREADABLE = [
    ("postgresql://me:geh/eim@host/db", "host or port"),
    ("postgresql://me:geh?eim@host/db", "host or port"),
    ("postgresql://me:geh#eim@host/db", "host or port"),
    ("postgresql://me:12/geheim@host/db", "host or port"),
    ("postgresql://me:geh[eim@host/db", "host cannot be read"),
    ("postgresql://me:geheim@host:geheim/db", "host or port"),
    ("postgresql://me:geheim@host:99999999/db", "host or port"),
    ("mysql://me:geheim@host/db", "does not begin with postgresql://"),
    ("me:geheim@host/db", "does not begin with postgresql://"),
    ("host=h password=geheim", "does not begin with postgresql://"),
    ("postgresql://me:geheim@127.0.0.1:1/db?sslmode=geheim", "arguments"),
]


@pytest.mark.parametrize(("url", "words"), UNREADABLE)
async def test_a_url_that_cannot_be_read_is_never_quoted(url: str, words: str) -> None:
    for act in (migrate.migrate(url), migrate.check(url), open_database(Settings(database_url=url))):
        with pytest.raises(NotReady, match="NOTIFIER_DATABASE_URL") as caught:
            await act
        for error in (caught.value, caught.value.__cause__):
            assert not re.search("geh|eim", str(error))
    assert words in probe.unreadable(url)


@pytest.mark.parametrize(
    ("url", "where"),
    [
        ("postgresql://me:secret@db.example:5432/x", "db.example:5432"),
        ("postgresql://me:s@cret@[::1]:5432/x", "[::1]:5432"),
        ("postgresql://a:1,b:2/x", "a:1,b:2"),
        ("postgresql:///x?host=/run/postgresql", "NOTIFIER_DATABASE_URL"),
        ("postgresql://me:pass/word@db/x", "NOTIFIER_DATABASE_URL"),
    ],
)
def test_an_address_is_what_is_surely_no_password(url: str, where: str) -> None:
    assert probe.address(url) == where


def test_somebody_elses_migrations_are_not_taken_for_ours(tmp_path: Path) -> None:
    foreign = tmp_path / "migrations"
    (foreign / "versions").mkdir(parents=True)
    (foreign / "__init__.py").write_text("raise SystemExit('imported')\n")
    script = "from notifier.store import migrate; print(migrate.migrations(), migrate.head())"
    path = os.pathsep.join([str(tmp_path), str(Path(__file__).parents[2])])
    argv = [sys.executable, "-c", script]
    done = subprocess.run(argv, cwd=tmp_path, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == (f"{migrate.migrations()} {migrate.head()}\n", "")


def test_without_migrations_it_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migrate, "BESIDE_US", tmp_path)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(NotReady, match=r"migrations are missing.*Reinstall"):
        migrate.migrations.__wrapped__()


def test_an_old_server_is_refused() -> None:
    old: Any = SimpleNamespace(get_server_version=lambda: SimpleNamespace(major=14))
    with pytest.raises(NotReady, match="PostgreSQL 14 is too old: 15"):
        migrate._check_server(old)


def test_two_ends_of_the_chain_are_noticed(tmp_path: Path) -> None:
    directory = migrations_in(tmp_path, "SELECT 1", "SELECT 2")
    (directory / "versions" / "0003_y.py").write_text('revision = "0003"\ndown_revision = "0001"\n')
    with pytest.raises(NotReady, match="0002, 0003"):
        migrate.head(directory)


async def test_every_table_is_in_public_whoever_migrates(connection: asyncpg.Connection) -> None:
    """The role's own schema comes first by default, and ours is called like a schema of ours."""
    assert await connection.fetchval("SELECT current_user") == "notifier"
    found = await connection.fetch(
        "SELECT schemaname, tablename FROM pg_tables WHERE schemaname !~ '^pg_|^information_'"
    )
    assert {row["schemaname"] for row in found} == {"public"}
    assert {"outbox", "deliveries", "settlements"} <= {row["tablename"] for row in found}
