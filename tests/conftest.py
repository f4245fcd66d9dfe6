"""What the tests stand on: one throw-away PostgreSQL and Valkey a session, a fresh database a test."""

from __future__ import annotations

import asyncio
import os
import shutil
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import asyncpg
import pytest
import uvloop

from notifier import embedded
from notifier.store.migrate import migrate
from tests.support.servers import database_like, database_of, end_servers, keep_in_memory, on_server, remove_data

TEMPLATE = "notifier_template"
MUST_RUN = ("database", "browser", "tool")


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Tests run on the loop that the processes run on: it writes and closes in ways of its own."""
    return {"uvloop": _new_loop}


def _new_loop() -> asyncio.AbstractEventLoop:
    loop = uvloop.new_event_loop()
    loop.set_exception_handler(_end_late_test)
    return loop


def _end_late_test(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """End a test whose time is over: what a signal's handler raises uvloop keeps to itself."""
    loop.default_exception_handler(context)
    if isinstance(context.get("exception"), pytest.fail.Exception):
        for task in asyncio.all_tasks(loop):
            task.cancel("the time-out of the test")


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No NOTIFIER_ setting of whoever runs the tests may change what they say."""
    for name in [name for name in os.environ if name.upper().startswith("NOTIFIER_")]:
        monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[embedded.Server]:
    """A PostgreSQL without fsync, its databases in memory where there is room; ends with the session."""
    data_dir = tmp_path_factory.mktemp("postgres")
    server = asyncio.run(embedded.start_postgres(data_dir, durable=False))
    folder = asyncio.run(keep_in_memory(server))
    yield server
    asyncio.run(embedded.stop(server))
    remove_data(data_dir)
    if folder:
        shutil.rmtree(folder)


@pytest.fixture(scope="session")
def template(postgres: embedded.Server) -> str:
    """The name of a migrated database that every test gets a copy of."""
    asyncio.run(_make_template(postgres))
    return TEMPLATE


async def _make_template(postgres: embedded.Server) -> None:
    await on_server(postgres, f"CREATE DATABASE {TEMPLATE}")
    await migrate(database_of(postgres, TEMPLATE))


@pytest.fixture
async def database_url(postgres: embedded.Server, template: str) -> AsyncIterator[str]:
    """A migrated database of the test's own."""
    async with database_like(postgres, template) as url:
        yield url


@pytest.fixture
async def empty_database_url(postgres: embedded.Server) -> AsyncIterator[str]:
    """A database without our schema."""
    name = f"empty_{uuid.uuid4().hex[:12]}"
    await on_server(postgres, f"CREATE DATABASE {name}")
    yield database_of(postgres, name)
    await on_server(postgres, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
async def connection(database_url: str) -> AsyncIterator[asyncpg.Connection]:
    """A plain connection to the test's database."""
    conn = await asyncpg.connect(database_url)
    yield conn
    await conn.close()


@pytest.fixture
def data_dir(tmp_path: Path) -> Iterator[Path]:
    """A DATA_DIR of the test's own; whatever server is left in it is ended by its own id."""
    path = tmp_path / "data"
    yield path
    end_servers(path)
    remove_data(path)


@pytest.fixture(scope="session")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[embedded.Server]:
    """A Valkey; ends with the session."""
    server = asyncio.run(embedded.start_valkey(tmp_path_factory.mktemp("valkey")))
    yield server
    asyncio.run(embedded.stop(server))


@pytest.fixture
async def redis_url(valkey: embedded.Server) -> str:
    """The session's Valkey, empty."""
    from redis.asyncio import Redis

    async with Redis.from_url(valkey.url) as client:
        await client.flushall()
    return valkey.url


# Tests that need a server, a browser or a tool may be skipped at home; where CI=true that is a failure.


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whoever asks for a server is marked, so that nobody can forget it; files that may take longest come first."""
    patience: dict[Path, float] = {}
    for item in items:
        if {"postgres", "valkey"} & set(getattr(item, "fixturenames", ())):
            item.add_marker("database")
        given = item.get_closest_marker("timeout")
        patience[item.path] = max(patience.get(item.path, 0), given.args[0] if given else 0)
    items.sort(key=lambda item: -patience[item.path])  # begun last they would be waited for by one process alone


_skipped: list[str] = []


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Remember what was skipped and must not be."""
    if "as_root" in report.keywords and os.geteuid() != 0:
        return
    if report.skipped and not hasattr(report, "wasxfail") and any(mark in report.keywords for mark in MUST_RUN):
        _skipped.append(report.nodeid)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """A whole module that skips itself has no marks to look at; outside unit/ it needs something, and must have it."""
    if report.skipped and "unit/" not in report.nodeid:
        _skipped.append(report.nodeid)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Under CI a skipped test of these marks is a failure."""
    if _skipped and _is_ci() and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say why the session failed."""
    if _skipped and _is_ci():
        terminalreporter.section("skipped, but CI must run them", red=True)
        for nodeid in _skipped:
            terminalreporter.write_line(nodeid)


def _is_ci() -> bool:
    return os.environ.get("CI", "").lower() in ("1", "true")
