"""The one row that makes this installation itself: namespace of the keys, offset of business time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from notifier.store.database import Connection


@dataclass(frozen=True, slots=True)
class Installation:
    """Namespace for provider keys, and how far business time is ahead of real time."""

    namespace: UUID
    clock_offset: timedelta


READ = "SELECT namespace, clock_offset FROM installation"


async def read(conn: Connection) -> Installation:
    """Read the row."""
    row = await conn.fetchrow(READ)
    return Installation(row["namespace"], row["clock_offset"])


ADVANCE = "UPDATE installation SET clock_offset = clock_offset + make_interval(secs => $1) RETURNING clock_offset"
NOW = "SELECT notifier.now()"
REAL_NOW = "SELECT clock_timestamp()"


async def advance(conn: Connection, seconds: float) -> None:
    """Move business time forward for every process."""
    await conn.fetchval(ADVANCE, seconds)


async def business_now(conn: Connection) -> datetime:
    """What notifier.now() says."""
    now: datetime = await conn.fetchval(NOW)
    return now


async def real_now(conn: Connection) -> datetime:
    """The database's own clock."""
    now: datetime = await conn.fetchval(REAL_NOW)
    return now
