"""Process starts and their last sign of life."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from notifier.store.database import Connection

BEAT = """
    INSERT INTO workers (id, role, host, pid) VALUES ($1, $2, $3, $4)
        ON CONFLICT (id) DO UPDATE SET heartbeat_at = now()
"""


async def beat(conn: Connection, process_id: str, role: str, host: str, pid: int) -> None:
    """Say that this process lives."""
    await conn.execute(BEAT, process_id, role, host, pid)


SWEEP = (
    "DELETE FROM workers WHERE id IN (SELECT id FROM workers WHERE heartbeat_at < now() - interval '1 day' LIMIT 500)"
)


async def sweep(conn: Connection) -> None:
    """Forget processes that have been silent for a day."""
    await conn.execute(SWEEP)


LEAVE = "DELETE FROM workers WHERE id = $1"


async def leave(conn: Connection, process_id: str) -> None:
    """Forget a process that ends in order."""
    await conn.execute(LEAVE, process_id)


@dataclass(frozen=True, slots=True)
class Process:
    """A process start that was heard of lately."""

    id: str
    role: str
    host: str
    pid: int
    started_at: datetime
    silent_s: float


LIVE = """
    SELECT w.id, w.role, w.host, w.pid, w.started_at,
           extract(epoch FROM now() - w.heartbeat_at)::float8 AS silent_s
      FROM workers w WHERE w.heartbeat_at > now() - interval '15 seconds'
     ORDER BY w.role, w.started_at, w.id LIMIT 1000
"""


async def live(conn: Connection) -> list[Process]:
    """Processes heard of in the last 15 seconds: three heartbeats."""
    return [Process(**dict(row)) for row in await conn.fetch(LIVE)]
