"""What operators hold back; claims and the ingest read the table themselves. An expired switch is none."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from notifier.store.database import Connection


@dataclass(frozen=True, slots=True)
class Switch:
    """One switch that is on. Both times are business time."""

    name: str
    owner: str
    reason: str
    set_at: datetime
    expires_at: datetime


STANDING = """
    SELECT w.name, w.owner, w.reason, w.set_at, w.expires_at
      FROM switches w WHERE w.expires_at > notifier.now() ORDER BY w.name LIMIT 1000
"""


async def standing(conn: Connection) -> list[Switch]:
    """All that are on, by name."""
    return [Switch(**dict(row)) for row in await conn.fetch(STANDING)]


FIND = """
    SELECT w.name, w.owner, w.reason, w.set_at, w.expires_at
      FROM switches w WHERE w.name = $1 AND w.expires_at > notifier.now()
"""


async def find(conn: Connection, name: str) -> Switch | None:
    """The switch of this name, if it is on."""
    row = await conn.fetchrow(FIND, name)
    return None if row is None else Switch(**dict(row))


PUT = """
    INSERT INTO switches AS w (name, owner, reason, set_at, expires_at)
    VALUES ($1, $2, $3, notifier.now(), notifier.now() + $4::interval)
        ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, reason = excluded.reason, set_at = excluded.set_at,
                                         expires_at = excluded.expires_at
    RETURNING w.name, w.owner, w.reason, w.set_at, w.expires_at
"""


async def put(conn: Connection, name: str, owner: str, reason: str, ttl: timedelta) -> Switch:
    """Turn it on until `ttl` from now, whether or not it was on."""
    return Switch(**dict(await conn.fetchrow(PUT, name, owner, reason, ttl)))


REMOVE = """
    DELETE FROM switches WHERE name = $1 AND expires_at > notifier.now()
    RETURNING name, owner, reason, set_at, expires_at
"""


async def remove(conn: Connection, name: str) -> Switch | None:
    """Turn it off; gives what it was, None when it was not on."""
    row = await conn.fetchrow(REMOVE, name)
    return None if row is None else Switch(**dict(row))
