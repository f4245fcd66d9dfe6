"""What a work costs: processor time by process, and the database's write-ahead log, commits and statements."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import asyncpg
import psutil

CALIBRATION_LOOPS = 600_000
WAL_READ_MAX = 1 << 30  # beyond that it is not read again record by record


def calibrate() -> float:
    """Seconds that a fixed piece of pure Python takes: what the machine is worth at this moment."""
    started = time.perf_counter()
    total = 0
    for number in range(CALIBRATION_LOOPS):
        total = (total * 31 + number) & 0xFFFF_FFFF
    return time.perf_counter() - started


def cpu_seconds(pids: Iterable[int]) -> float:
    """Processor time of processes with all their descendants, those that have ended included."""
    return sum(_tree_seconds(pid) for pid in pids)


def _tree_seconds(pid: int) -> float:
    try:
        root = psutil.Process(pid)
        processes = [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return 0.0
    return sum(map(_seconds, processes))


def _seconds(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0  # it has just ended, and its parent has its time
    return float(times.user + times.system + times.children_user + times.children_system)


def memory_mb(pid: int) -> float:
    """Resident memory of one process, in MB."""
    return float(psutil.Process(pid).memory_info().rss) / 1e6


@dataclass(frozen=True, slots=True)
class Reading:
    """What the meters show at one moment; the difference of two is a cost."""

    at: float
    cpu_s: Mapping[str, float]
    lsn: str
    statements: int


@dataclass(frozen=True, slots=True)
class Cost:
    """What lies between two readings. `fpi_bytes`: full-page images, which are part of no other figure here.

    `commits` are those that wrote. `statements` are those of the database asked about, ours left out.
    """

    seconds: float
    cpu_s: Mapping[str, float]
    wal_bytes: int
    fpi_bytes: int | None
    commits: int | None
    statements: int

    def without(self, looks: int) -> Cost:
        """The same, where the bench itself has looked so often."""
        return replace(self, statements=self.statements - looks)

    def per(self, number: int) -> dict[str, Any]:
        """The same per unit, as Measured takes it."""
        return {
            "cpu_us": {who: seconds / number * 1e6 for who, seconds in self.cpu_s.items()},
            "wal_bytes": self.wal_bytes / number,
            "fpi_bytes": None if self.fpi_bytes is None else self.fpi_bytes / number,
            "commits": None if self.commits is None else self.commits / number,
            "statements": self.statements / number,
        }


STATEMENTS = """
    SELECT coalesce(sum(s.calls), 0)::bigint FROM pg_stat_statements s
     WHERE s.dbid = (SELECT oid FROM pg_database WHERE datname = $1)
"""
WAL = "SELECT pg_current_wal_insert_lsn()::text"
WAL_DIFFERENCE = "SELECT pg_wal_lsn_diff($2::text::pg_lsn, $1::text::pg_lsn)::bigint"

# Only what has been flushed can be read again: hence the checkpoint before it.
WAL_READ = """
    SELECT coalesce(sum(fpi_size), 0)::bigint AS fpi_bytes,
           coalesce(sum(count) FILTER (WHERE "resource_manager/record_type" = 'Transaction/COMMIT'), 0)::bigint
           AS commits
      FROM pg_get_wal_stats($1::text::pg_lsn, $2::text::pg_lsn, true)
"""


class Meter:
    """Reads the meters. `conn`: a connection to a database of its own, so that what it asks is not counted."""

    def __init__(self, conn: asyncpg.Connection, postgres: int) -> None:
        self._conn = conn
        self._postgres = postgres

    async def read(self, database: str, processes: Mapping[str, Sequence[int]]) -> Reading:
        """Read now; `processes` by the name their time is to be listed under."""
        statements = await self._conn.fetchval(STATEMENTS, database)
        lsn = await self._conn.fetchval(WAL)
        cpu = {who: cpu_seconds(pids) for who, pids in {**processes, "database": [self._postgres]}.items()}
        return Reading(time.monotonic(), cpu, lsn, statements)

    async def cost(self, before: Reading, after: Reading) -> Cost:
        """What lies between, once nothing writes any more."""
        wal = await self._conn.fetchval(WAL_DIFFERENCE, before.lsn, after.lsn)
        fpi = commits = None
        if 0 < wal <= WAL_READ_MAX:
            await self._conn.execute("CHECKPOINT")
            row = await self._conn.fetchrow(WAL_READ, before.lsn, after.lsn)
            fpi, commits = row["fpi_bytes"], row["commits"]
        elif wal == 0:
            fpi = commits = 0
        return Cost(
            seconds=after.at - before.at,
            cpu_s={who: after.cpu_s[who] - seconds for who, seconds in before.cpu_s.items()},
            wal_bytes=wal - (fpi or 0),
            fpi_bytes=fpi,
            commits=commits,
            statements=after.statements - before.statements,
        )
