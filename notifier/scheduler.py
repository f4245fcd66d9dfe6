"""The scheduler's ticks: release what is due, look for late evidence, tidy up. Two schedulers do no harm."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from apscheduler.schedulers.asyncio import AsyncIOScheduler

from notifier import observe
from notifier.failpoints import Point, is_armed, reach
from notifier.retention import PASS_S, Retention
from notifier.runtime import Runtime, background, open_runtime
from notifier.settings import Settings
from notifier.side_door import side_door
from notifier.store import moves, results
from notifier.store.database import RETRYABLE, UNAVAILABLE

RECONCILE_S = 5.0
TICK_MAX_S = 0.25  # a due mail should not wait for a long poll; one look costs a fraction of a millisecond
FULL_LOOK_S = 1.0  # how often what is due is looked for from the very beginning


@dataclass(slots=True)
class Scheduler:
    """Releases due sends. Every move is conditional, so any number of schedulers may do it at once."""

    runtime: Runtime
    released_at: float = field(default_factory=time.monotonic)
    stopping: bool = False
    _since: datetime = moves.BEFORE_ALL  # earlier releases left nothing due before, but dead entries in the index
    _looked_at: float = 0.0
    _running: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def release(self) -> None:
        """Move everything due, batch by batch, and nudge the workers."""
        async with self._running:
            self.released_at = time.monotonic()
            if self.released_at - self._looked_at >= FULL_LOOK_S:
                self._since, self._looked_at = moves.BEFORE_ALL, self.released_at
            try:
                while True:
                    await reach(Point.SCHEDULER_BEFORE_RELEASE)
                    released = await self._release_batch()
                    if released.owed:
                        self.runtime.wakeup.nudge()
                    observe.count_settled("skipped", "no_recipient", released.moved - released.owed)
                    self._since = released.last or self._since
                    if released.moved < moves.BATCH or self.stopping:
                        return
            except (*RETRYABLE, *UNAVAILABLE) as error:
                observe.log().warning("release_failed", error=type(error).__name__)

    async def _release_batch(self) -> moves.Released:
        # Autocommit, so that a scheduler which freezes here holds no lock. Only a test that waits before the commit
        # gets a transaction around the same statement.
        if not is_armed(Point.SCHEDULER_AFTER_RELEASE):
            async with self.runtime.database.connection() as conn:
                return await moves.release(conn, self._since)
        async with self.runtime.database.transaction() as conn:
            released = await moves.release(conn, self._since)
            if released.moved:
                await reach(Point.SCHEDULER_AFTER_RELEASE)
            return released

    async def reconcile(self) -> None:
        """Close as sent what ended uncertain although its record shows that it was accepted."""
        async with self._running:
            try:
                async with self.runtime.database.connection() as conn:
                    found = await results.reconcile(conn)
            except (*RETRYABLE, *UNAVAILABLE) as error:
                observe.log().warning("reconcile_failed", error=type(error).__name__)
            else:
                observe.count_settled("sent", None, found)

    async def rest(self) -> None:
        """Wait until no move is under way, and let none begin."""
        self.stopping = True
        await self._running.acquire()


async def serve(settings: Settings, *, stop: asyncio.Event, ready: Callable[[str, str, None, str], None]) -> None:
    """Run one scheduler until `stop`; `ready` hears its own address, that of its metrics, no SMTP, and its id."""
    async with open_runtime(settings, "scheduler") as runtime, side_door(settings.host, settings.metrics_port) as url:
        observe.expose(observe.OF_A_SCHEDULER)
        scheduler = Scheduler(runtime)
        retention = Retention(runtime)
        clock = AsyncIOScheduler(
            timezone=UTC, job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None}
        )
        tick_s = min(settings.poll_s, TICK_MAX_S)
        release = clock.add_job(scheduler.release, "interval", seconds=tick_s, next_run_time=datetime.now(UTC))
        clock.add_job(scheduler.reconcile, "interval", seconds=RECONCILE_S)
        clock.add_job(retention.run, "interval", seconds=PASS_S, next_run_time=datetime.now(UTC))
        clock.start()

        def now() -> None:
            release.modify(next_run_time=datetime.now(UTC))

        try:
            async with background(runtime.wakeup.listen(now), _watch(scheduler, now, 4 * tick_s)):
                ready(url, f"{url}/metrics", None, runtime.process_id)
                await stop.wait()
        finally:
            clock.pause()
            await asyncio.gather(
                scheduler.rest(), retention.rest()
            )  # the library cancels what still runs when it shuts down
            clock.shutdown(wait=False)


async def _watch(scheduler: Scheduler, run_now: Callable[[], None], late_s: float) -> None:
    """Mend a stalled tick: the library counts on the host's clock, and a clock set back would stop it for as long."""
    while True:
        await asyncio.sleep(late_s)
        if time.monotonic() - scheduler.released_at > late_s:
            run_now()
