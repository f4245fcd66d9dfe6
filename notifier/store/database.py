"""The pool and its transactions: every connection is patient for so long and no longer."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import asyncpg

from notifier.domain.errors import Busy, NotReady
from notifier.settings import Settings
from notifier.store.probe import unreadable

Connection: TypeAlias = Any  # asyncpg ships no types; a connection of the pool, in or out of a transaction
Row: TypeAlias = Any

ACQUIRE_TIMEOUT_S = 3.0
CONNECT_TIMEOUT_S = 5.0
CLOSE_TIMEOUT_S = 2.0
CLIENT_MARGIN_S = 2.0  # the client gives up after the server should have

# Trouble that goes away when the same work is done again: deadlock, serialization, lock not available.
RETRYABLE = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError, asyncpg.LockNotAvailableError)

# The database is away, is going away, or ended our session. Nothing is known to be wrong with the work itself.
UNAVAILABLE = (
    OSError,
    TimeoutError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    asyncpg.PostgresConnectionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.OperatorInterventionError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
    asyncpg.ObjectNotInPrerequisiteStateError,  # closed to new connections; RETRYABLE is asked first
    asyncpg.PostgresSystemError,
    Busy,
)


class Database:
    """A pool of connections to one PostgreSQL."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """Lend a connection for autocommit statements. Raises one of UNAVAILABLE when there is none in time."""
        conn = await self._pool.acquire(timeout=ACQUIRE_TIMEOUT_S)
        try:
            yield conn
        finally:
            await self._release(conn)

    @asynccontextmanager
    async def transaction(self, *, lock_timeout_s: float | None = None) -> AsyncIterator[Connection]:
        """Lend a connection inside a transaction: commits at the end of the block, rolls back on any error.

        `lock_timeout_s` shortens the wait for each single lock. When COMMIT itself fails nobody knows whether
        it took place; the error is passed on and the caller repeats under its own idempotency.
        """
        async with self.connection() as conn:
            begin = "BEGIN"
            if lock_timeout_s is not None:
                begin = f"BEGIN; SET LOCAL lock_timeout = {max(1, int(lock_timeout_s * 1000))}"
            await conn.execute(begin)
            try:
                yield conn
            except BaseException:
                await self._roll_back(conn)
                raise
            await conn.execute("COMMIT")

    async def _roll_back(self, conn: Connection) -> None:
        # A connection that cannot say ROLLBACK is broken: ending it rolls back as well.
        try:
            if not conn.is_closed():
                await conn.execute("ROLLBACK", timeout=CLOSE_TIMEOUT_S)
        except BaseException:  # noqa: BLE001 - whatever it was, the caller's own error is already on its way
            _end(conn)

    async def _release(self, conn: Connection) -> None:
        try:
            await self._pool.release(conn, timeout=CLOSE_TIMEOUT_S)
        except UNAVAILABLE:
            _end(conn)

    async def close(self) -> None:
        """Close all connections, politely for a moment, then for good."""
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self._pool.close()
        except TimeoutError:
            self._pool.terminate()


def _end(conn: Connection) -> None:
    with contextlib.suppress(asyncpg.InterfaceError):  # the pool has let go of it: its session ended first
        conn.terminate()


async def _keep(_conn: Connection) -> None:
    """Give a connection back as it is: no session state is ever changed outside a transaction."""


async def open_database(settings: Settings) -> Database:
    """Connect; raises NotReady with advice when that fails."""
    if not settings.database_url:
        raise NotReady("NOTIFIER_DATABASE_URL is not set: name a PostgreSQL, or use `notifier run`, which brings one")
    pool = None
    try:
        pool = asyncpg.create_pool(
            settings.database_url,
            min_size=0,  # the library logs a traceback a second while it cannot keep a minimum
            max_size=settings.pool_size,
            timeout=CONNECT_TIMEOUT_S,
            command_timeout=settings.statement_timeout_s + CLIENT_MARGIN_S,
            max_inactive_connection_lifetime=60,
            reset=_keep,
            server_settings=server_settings(settings),
        )
        await pool
        async with pool.acquire(timeout=CONNECT_TIMEOUT_S):
            pass
    except ValueError:  # what asyncpg says of a URL quotes it, password and all
        if pool is not None:
            pool.terminate()
        raise NotReady(unreadable(settings.database_url)) from None
    except (*UNAVAILABLE, asyncpg.PostgresError) as error:
        if pool is not None:
            pool.terminate()
        raise NotReady(
            f"cannot reach PostgreSQL at NOTIFIER_DATABASE_URL ({type(error).__name__}: {error}); is it running, "
            "and are user, password and database right?"
        ) from error
    return Database(pool)


def server_settings(settings: Settings) -> dict[str, str]:
    """What every session asks of the server: time-outs, plans that do not depend on statistics, UTC."""
    return {
        "application_name": "notifier",
        "timezone": "UTC",
        "search_path": "public",
        "idle_in_transaction_session_timeout": _ms(settings.idle_in_transaction_timeout_s),
        "lock_timeout": _ms(settings.lock_timeout_s),
        "statement_timeout": _ms(settings.statement_timeout_s),
        "plan_cache_mode": "force_generic_plan",
        "enable_seqscan": "off",
        "random_page_cost": "1",
        "jit": "off",
        "synchronous_commit": "on",
    }


def _ms(seconds: float) -> str:
    return str(max(1, int(seconds * 1000)))
