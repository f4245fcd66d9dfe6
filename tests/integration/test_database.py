"""The pool: what it refuses to start with, and that a connection which broke harms nobody after it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import asyncpg
import pytest

from notifier.domain.errors import NotReady
from notifier.runtime import open_runtime
from notifier.settings import Settings
from notifier.store.database import CLOSE_TIMEOUT_S, UNAVAILABLE, Connection, Database, open_database
from tests.support.stack import until

Step = Callable[[Connection], Awaitable[None]]

ROWS = "SELECT count(*) FROM suppressions"
INSERT = "INSERT INTO suppressions (address, reason) VALUES ($1, 'bounce')"


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    opened = await open_database(Settings(database_url=database_url, pool_size=2))
    yield opened
    await opened.close()


async def rows(database: Database) -> int:
    async with database.connection() as conn:
        return await conn.fetchval(ROWS)


@pytest.mark.parametrize("url", [None, "", "postgresql://127.0.0.1:1/x", "nonsense", "postgresql://[::1/x"])
async def test_no_database_is_not_ready_and_names_the_setting(url: str | None) -> None:
    with pytest.raises(NotReady, match="NOTIFIER_DATABASE_URL"):
        await open_database(Settings(database_url=url))


async def test_a_wrong_password_or_database_is_not_ready(database_url: str) -> None:
    for wrong in (database_url.replace("://notifier:", "://notifier:x"), database_url + "_not"):
        with pytest.raises(NotReady, match="user, password and database"):
            await open_database(Settings(database_url=wrong))


async def test_no_process_starts_on_a_database_that_takes_no_writes(
    database_url: str, connection: asyncpg.Connection
) -> None:
    name = await connection.fetchval("SELECT current_database()")
    await connection.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    with pytest.raises(NotReady, match="start again when it takes writes"):
        async with open_runtime(Settings(database_url=database_url, redis_url=""), "worker"):
            pass


async def in_a_block(database: Database, *steps: Step, **options: float) -> None:
    async with database.transaction(**options) as conn:
        for step in steps:
            await step(conn)


async def insert(conn: Connection) -> None:
    await conn.execute(INSERT, "a@example.com")


async def fail(conn: Connection) -> None:
    raise LookupError


async def hang(conn: Connection) -> None:
    await conn.execute("SELECT pg_sleep(30)")


async def test_a_block_commits_at_its_end_and_not_on_an_error(database: Database) -> None:
    with pytest.raises(LookupError):
        await in_a_block(database, insert, fail)
    assert await rows(database) == 0
    await in_a_block(database, insert)
    assert await rows(database) == 1


async def test_a_block_may_be_less_patient_and_the_next_one_is_not(database: Database) -> None:
    async with database.transaction(lock_timeout_s=0.5) as conn:
        assert await conn.fetchval("SHOW lock_timeout") == "500ms"
    async with database.connection() as conn:
        assert await conn.fetchval("SHOW lock_timeout") == "2s"


async def test_a_block_that_is_cut_rolls_back_and_the_next_one_is_clean(database: Database) -> None:
    for _ in range(4):  # more than there are connections
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(in_a_block(database, insert, hang), 0.1)
    assert await rows(database) == 0


async def test_a_session_that_was_ended_inside_a_block_keeps_the_error_of_its_caller(
    database: Database, connection: asyncpg.Connection
) -> None:
    async def end(conn: Connection) -> None:
        pid = await conn.fetchval("SELECT pg_backend_pid()")
        assert await connection.fetchval("SELECT pg_terminate_backend($1, 5000)", pid)
        await until(lambda: conn._con is None or conn._con.is_closed(), "we have heard of it", deadline_s=5)

    for _ in range(3):
        with pytest.raises(LookupError):
            await in_a_block(database, insert, end, fail)
        with pytest.raises(UNAVAILABLE):
            await in_a_block(database, end, insert)
        with pytest.raises(UNAVAILABLE):
            await in_a_block(database, insert, end)
    assert await rows(database) == 0


async def test_closing_does_not_wait_for_who_never_gives_back(database_url: str) -> None:
    database = await open_database(Settings(database_url=database_url))
    borrowed = await database._pool.acquire()
    started = time.monotonic()
    await database.close()
    assert time.monotonic() - started < CLOSE_TIMEOUT_S + 1
    with pytest.raises(asyncpg.InterfaceError):
        await borrowed.fetchval("SELECT 1")
    with pytest.raises(UNAVAILABLE):
        await rows(database)


async def test_a_session_has_the_patience_and_plans_we_count_on(database: Database) -> None:
    async with database.connection() as conn:
        found = {
            name: await conn.fetchval(f"SHOW {name}")
            for name in (
                "idle_in_transaction_session_timeout",
                "lock_timeout",
                "statement_timeout",
                "timezone",
                "plan_cache_mode",
                "enable_seqscan",
                "synchronous_commit",
            )
        }
    assert found == {
        "idle_in_transaction_session_timeout": "5s",
        "lock_timeout": "2s",
        "statement_timeout": "10s",
        "timezone": "UTC",
        "plan_cache_mode": "force_generic_plan",
        "enable_seqscan": "off",
        "synchronous_commit": "on",
    }
