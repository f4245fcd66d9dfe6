"""What kind of PostgreSQL is behind us, and whether it keeps what it acknowledges."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from notifier.store.database import Connection


@dataclass(frozen=True, slots=True)
class Server:
    """`number`: the version as a number, 180001 for 18.1. The settings are those of our own sessions."""

    version: str
    number: int
    is_standby: bool
    fsync: bool
    full_page_writes: bool
    synchronous_commit: bool
    now: datetime


ABOUT = """
    SELECT current_setting('server_version') AS version, current_setting('server_version_num')::int AS number,
           pg_is_in_recovery() AS is_standby, current_setting('fsync')::bool AS fsync,
           current_setting('full_page_writes')::bool AS full_page_writes,
           current_setting('synchronous_commit') <> 'off' AS synchronous_commit,
           clock_timestamp() AS now
"""


async def about(conn: Connection) -> Server:
    """Ask it; needs no schema."""
    return Server(**dict(await conn.fetchrow(ABOUT)))
