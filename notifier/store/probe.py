"""Questions to a PostgreSQL that may not be up yet: whose it is, and whether our database is there."""

from __future__ import annotations

from urllib.parse import urlsplit

import asyncpg

from notifier.domain.errors import NotReady

DATA_DIRECTORY = "SELECT current_setting('data_directory')"
DATABASE_EXISTS = "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)"


async def data_directory(url: str, *, timeout_s: float = 5) -> str | None:
    """Where the server behind `url` has its data; None while it does not answer.

    Raises NotReady when it answers and does not take the password.
    """
    try:
        conn = await asyncpg.connect(url, timeout=timeout_s)
    except asyncpg.InvalidAuthorizationSpecificationError as error:
        raise NotReady(f"the PostgreSQL at {address(url)} does not take our password: {error}") from error
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
        return None
    try:
        return str(await conn.fetchval(DATA_DIRECTORY))
    finally:
        await conn.close(timeout=timeout_s)


async def ensure_database(url: str, name: str) -> None:
    """Create a database unless it is there; `url` names another one of the same server. Raises NotReady."""
    try:
        conn = await asyncpg.connect(url, timeout=10)
        try:
            if not await conn.fetchval(DATABASE_EXISTS, name):
                await conn.execute(f'CREATE DATABASE "{name}"')
        finally:
            await conn.close(timeout=10)
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        raise NotReady(
            f"the PostgreSQL at {address(url)} has no database {name} and does not make one: {error}"
        ) from error


def address(url: str) -> str:
    """Host and port of a URL, for messages: no user, no password."""
    return urlsplit(url).netloc.rpartition("@")[2] or url.partition("?")[0]
