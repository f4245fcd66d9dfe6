"""The scheduler's housekeeping: old events go, and the detail of what ended long ago; the guards stay for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field

from notifier import observe
from notifier.clock import boot_clock
from notifier.runtime import Runtime
from notifier.store import retention
from notifier.store.database import RETRYABLE, UNAVAILABLE, Connection

PASS_S = 60.0  # how often a pass begins
WORK_S = 45.0  # how long it goes on at most
REST = 4.0  # pauses are so many times as long as the statement before: a fifth of one connection's time at most
PAUSE_MIN_S = 0.02
SLACK_S = 6 * 3_600.0  # what grows old is gathered for so long, so that a part is not read again for every row

Remove = Callable[[Connection, int, int], Awaitable[retention.Step]]


@dataclass(slots=True)
class Walk:
    """One table, part by part, and when each part will have something to do: rows only get older where they are.

    The memory decides nothing but when to look; a new process looks at every part once.
    """

    table: str
    keep_days: int
    remove: Remove
    looks_at: list[float] = field(default_factory=list)  # part → boot clock
    file: int | None = None

    def resize(self, size: retention.Size) -> None:
        """Take in what the table has become since the last pass."""
        if size.file != self.file:
            self.file, self.looks_at = size.file, []
        del self.looks_at[size.parts :]
        self.looks_at += [boot_clock()] * (size.parts - len(self.looks_at))

    def waiting(self) -> Iterator[int]:
        """The parts to look at, one after another."""
        for part in range(len(self.looks_at)):
            while self.looks_at[part] <= boot_clock():
                yield part

    def late_s(self) -> float:
        """For how long a part has been waiting to be looked at."""
        return max(0.0, boot_clock() - min(self.looks_at, default=boot_clock()))

    async def step(self, conn: Connection, part: int) -> None:
        """Look at one part, and remember when to do so again; at once, if a full batch left more."""
        done = await self.remove(conn, part, self.keep_days)
        for what, number in done.removed.items():
            observe.RETENTION_REMOVED.labels(what).inc(number)
        if not done.left or not any(done.removed.values()):  # what is left then, somebody holds
            keep_s = self.keep_days * 86_400.0  # what comes in from now on
            self.looks_at[part] = boot_clock() + SLACK_S + (keep_s if done.next_s is None else min(keep_s, done.next_s))


class Retention:
    """Walks the tables. Every step is one conditional statement, so any number of schedulers may do it at once."""

    def __init__(self, runtime: Runtime) -> None:
        self._database = runtime.database
        settings = runtime.settings
        self.walks = (
            Walk("events", settings.keep_events_days, retention.forget_events),
            Walk("settlements", settings.keep_detail_days, retention.trim_settled),
        )
        self._stopping = asyncio.Event()
        self._running = asyncio.Lock()

    async def run(self) -> None:
        """One pass: every part that has something to do, with pauses, for WORK_S at most; the next one goes on."""
        async with self._running:
            try:
                await self._pass()
            except (*RETRYABLE, *UNAVAILABLE) as error:
                observe.log().warning("retention_failed", error=type(error).__name__)
            for walk in self.walks:
                observe.RETENTION_LATE.labels(walk.table).set(walk.late_s())

    async def _pass(self) -> None:
        async with self._database.connection() as conn:
            sizes = await retention.sizes(conn)
        for walk in self.walks:
            walk.resize(sizes[walk.table])
        until = boot_clock() + WORK_S
        left = [(walk, walk.waiting()) for walk in self.walks]
        while left and boot_clock() < until:
            for item in list(left):  # in turn, so that none waits for the others' backlog
                walk, parts = item
                part = next(parts, None)
                if part is None:
                    left.remove(item)
                    continue
                if self._stopping.is_set():
                    return
                await self._step(walk, part)

    async def _step(self, walk: Walk, part: int) -> None:
        began = boot_clock()
        async with self._database.connection() as conn:
            await walk.step(conn, part)
        took_s = boot_clock() - began
        observe.RETENTION_SECONDS.observe(took_s)
        try:
            async with asyncio.timeout(max(PAUSE_MIN_S, REST * took_s)):
                await self._stopping.wait()
        except TimeoutError:
            return

    async def rest(self) -> None:
        """Wait for the statement under way, and let none begin."""
        self._stopping.set()
        await self._running.acquire()
