"""Questions to a PostgreSQL that may not be up yet: whose it is, and whether our database is there."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

import asyncpg

from notifier.domain.errors import NotReady

SETTING = "NOTIFIER_DATABASE_URL"
ESCAPED = "and a sign like / ? # @ : [ or % in user or password is written as % and two digits (%2F for /)"
ONE_HOST = r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::[0-9]{1,5})?"
HOSTS = re.compile(f"{ONE_HOST}(?:,{ONE_HOST})*")

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
    """Host and port of a URL, for messages; the setting's name where they cannot be told from a password."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return SETTING
    hosts = parts.netloc.rpartition("@")[2]
    # an unescaped / ? or # in a password ends the part that holds the host, and the @ comes after it
    is_cut = "@" in parts.path or "@" in parts.query or "@" in parts.fragment
    return hosts if HOSTS.fullmatch(hosts) and not is_cut else SETTING


def unreadable(url: str) -> str:
    """What is wrong with a URL that cannot be read, without a word of what stands in it."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return f"{SETTING}: its host cannot be read; an IPv6 address stands in [brackets], {ESCAPED}"
    if parts.scheme not in ("postgresql", "postgres"):
        return f"{SETTING} does not begin with postgresql://"
    if address(url) == SETTING and parts.netloc:
        return f"{SETTING}: its host or port cannot be read; {ESCAPED}"
    if parts.query:
        return f"{SETTING}: one of its arguments, behind the ?, cannot be read"
    return f"{SETTING} cannot be read; write postgresql://user:password@host:port/database, {ESCAPED}"
