"""Writes the history while it happens, a line at once for each thing seen, so that a kill loses none of it."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal, TypeVar

import asyncpg

from notifier.proof.history import (
    Act,
    Answer,
    Attempt,
    Fault,
    Invariants,
    KeysForgotten,
    Line,
    Mail,
    Opinion,
    Quiet,
    Request,
    Run,
    Signal,
    dump,
)

COMPARE_EVERY_S = 5.0
COMPARE_WITHIN_S = 2.0
ROUND_TRIP_MAX_S = 0.02  # a slower comparison says less than an older one
TRIES = 10

L = TypeVar("L", bound=Line)
Seconds = float
Door = Literal["events", "batch", "webhook", "operate"]


class Recorder:
    """Puts the time on every line and writes it. `standing`: the faults that are on, as number → "family: name".

    `last_fault_ended`: when the latest of them did, on our clock.
    """

    def __init__(self, file: Path) -> None:
        self._file = file.open("w", encoding="utf-8", buffering=1)
        self._mono, self._at = time.monotonic(), datetime.now(UTC)  # this host's, until the database has answered
        self._round_trip = math.inf  # of the last comparison
        self._requests = 0
        self.last_fault_ended: Seconds | None = None
        self.standing: dict[int, str] = {}

    def close(self) -> None:
        """Write no more."""
        self._file.close()

    # -------------------------------------------------------------------------------------------- the clocks

    @contextlib.asynccontextmanager
    async def comparing(self, database_url: str) -> AsyncIterator[None]:
        """Compare our clock with the database's now and then; while it does not answer, the last comparison holds."""
        await self.compare(database_url)
        going_on = asyncio.create_task(self._go_on_comparing(database_url))
        try:
            yield
        finally:
            going_on.cancel()
            await asyncio.wait({going_on})

    async def _go_on_comparing(self, database_url: str) -> None:
        while True:
            await asyncio.sleep(COMPARE_EVERY_S)
            await self.compare(database_url)

    async def compare(self, database_url: str) -> None:
        """Compare once more; nothing changes when the database does not answer, or too slowly to tell."""
        with contextlib.suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError, TimeoutError):
            async with asyncio.timeout(COMPARE_WITHIN_S):
                conn = await asyncpg.connect(database_url)
                try:
                    await self.compare_with(lambda: conn.fetchval("SELECT clock_timestamp()"))
                finally:
                    conn.terminate()

    async def compare_with(self, ask: Callable[[], Awaitable[datetime]]) -> None:
        """Ask for the time until an answer was quick; of answers that were all slow, the quickest counts.

        It counts at once, so that whoever breaks off keeps it; but none that is slow replaces one that was quicker.
        """
        best = math.inf
        for _ in range(TRIES):
            before = time.monotonic()
            at = await ask()
            after = time.monotonic()
            best = min(best, after - before)
            if after - before == best and (best <= ROUND_TRIP_MAX_S or best < self._round_trip):
                self._mono, self._at, self._round_trip = (before + after) / 2, at, best
            if best <= ROUND_TRIP_MAX_S:
                return

    def at_of(self, mono: Seconds) -> datetime:
        """The database's time at a moment of our clock."""
        return self._at + timedelta(seconds=mono - self._mono)

    def mono_of(self, at: datetime) -> Seconds:
        """Our clock at a moment of the database's."""
        return self._mono + (at - self._at).total_seconds()

    # -------------------------------------------------------------------------------------------- what is done

    def run(self, **fields: Any) -> None:
        """Write the first line."""
        self._write(Run, fields)

    def request(self, act: Act, door: Door, **fields: Any) -> int:
        """Note a request that is about to go out; gives its number."""
        self._requests += 1
        self._write(Request, {"n": self._requests, "act": act, "door": door, **fields})
        return self._requests

    def answer(self, n: int, status: int | None, body: Any = None, *, replayed: bool = False) -> None:
        """Note what came back; a body that is no object is kept under its own name."""
        kept = body if isinstance(body, dict) else {} if body is None else {"body": body}
        self._write(Answer, {"n": n, "status": status, "replayed": replayed, "body": kept})

    def signal(
        self, *, process: str, role: str, pid: int, signal: str, worker: str | None = None, by: str = ""
    ) -> None:
        """Note a process that started, was sent a signal, or was found ended."""
        fields = {"process": process, "role": role, "pid": pid, "signal": signal, "worker": worker, "by": by}
        self._write(Signal, fields)

    def fault(
        self,
        *,
        n: int,
        family: str,
        name: str,
        phase: str,
        hides_answers: bool = False,
        detail: dict[str, Any] | None = None,
    ) -> None:
        """Note a fault that begins or ends."""
        if phase == "begin":
            self.standing[n] = f"{family}: {name}"
        else:
            self.standing.pop(n, None)
            self.last_fault_ended = time.monotonic()
        fields = {"n": n, "family": family, "name": name, "phase": phase, "hides_answers": hides_answers}
        self._write(Fault, fields | {"detail": detail or {}})

    def keys_forgotten(self) -> None:
        """Note that the provider forgot every key."""
        self._write(KeysForgotten, {})

    # -------------------------------------------------------------------------------------------- what was found

    def quiet(self, *, reached: bool, after_s: Seconds) -> None:
        """Note that everything came to rest, or did not in time."""
        self._write(Quiet, {"reached": reached, "after_s": round(after_s, 3)})

    def attempt(self, at: datetime, **fields: Any) -> None:
        """Note a call of the provider's record, at the time it gives."""
        self._write(Attempt, fields, at)

    def mail(self, at: datetime, **fields: Any) -> None:
        """Note a mail of the provider's inbox, at the time it gives."""
        self._write(Mail, fields, at)

    def opinion(self, **fields: Any) -> None:
        """Note what the service says of one notification."""
        self._write(Opinion, fields)

    def invariants(self, document: dict[str, Any]) -> None:
        """Note what the service counts of its own violations."""
        self._write(Invariants, {"document": document})

    def _write(self, kind: type[L], fields: dict[str, Any], at: datetime | None = None) -> None:
        mono = time.monotonic() if at is None else self.mono_of(at)
        line = kind(mono=round(mono, 6), at=self.at_of(mono) if at is None else at, **fields)
        self._file.write(dump(line) + "\n")
