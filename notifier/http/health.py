"""Alive, ready, and the gauges over the database."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from aiohttp import web

from notifier import observe
from notifier.http.bodies import answer
from notifier.http.context import CONTEXT
from notifier.http.invariants import Judge
from notifier.runtime import Runtime
from notifier.side_door import metrics as exposition
from notifier.store import counts, migrate
from notifier.store.database import RETRYABLE, UNAVAILABLE

GAUGE_AGE_S = 5.0
INVARIANTS_AGE_S = 60.0  # they look at many more rows
JUDGING_WAIT_S = 1.0  # a count without a suspicion takes less


async def readyz(request: web.Request) -> web.Response:
    """200 when the database answers and has our schema, or a later one; Redis away is a remark, not a reason."""
    runtime = request.app[CONTEXT].runtime
    redis = "off" if not runtime.redis.is_configured else "ok" if await runtime.redis.ping() else "degraded"
    try:
        async with runtime.database.connection() as conn:
            revision = await migrate.revision(conn)
    except (*RETRYABLE, *UNAVAILABLE) as error:
        return answer({"status": "unavailable", "database": type(error).__name__, "redis": redis}, status=503)
    if migrate.is_too_old(revision):
        return answer({"status": "unavailable", "database": f"schema at {revision}", "redis": redis}, status=503)
    return answer({"status": "ready", "database": "ok", "redis": redis})


@dataclass(slots=True)
class Gauges:
    """Counts over the database, read at most every five seconds; violations of invariants once a minute."""

    runtime: Runtime
    judge: Judge
    read_at: float = -1e9
    judged_at: float = -1e9
    _judging: asyncio.Task[None] | None = None

    async def refresh(self) -> None:
        """Read them unless they are fresh; a database that is away leaves them as they were."""
        if time.monotonic() - self.read_at < GAUGE_AGE_S:
            return
        self.read_at = time.monotonic()
        try:
            async with self.runtime.database.connection() as conn:
                found = await counts.open_states(conn)
                oldest = await counts.oldest_pending_s(conn)
        except (*RETRYABLE, *UNAVAILABLE) as error:
            observe.log().warning("gauges_unread", error=type(error).__name__)
            return
        for state, number in found.items():
            observe.NOTIFICATIONS.labels(state).set(number)
        observe.OLDEST_PENDING.set(oldest)
        await self._refresh_violations()

    async def _refresh_violations(self) -> None:
        # A suspicion is looked at twice, seconds apart: whoever asks gets what is known by now, and does not wait.
        if time.monotonic() - self.judged_at >= INVARIANTS_AGE_S and (self._judging is None or self._judging.done()):
            self.judged_at = time.monotonic()
            self._judging = asyncio.create_task(self._count())
        if self._judging is not None:
            await asyncio.wait({self._judging}, timeout=JUDGING_WAIT_S)

    async def _count(self) -> None:
        try:
            await self.judge.count()
        except (*RETRYABLE, *UNAVAILABLE) as error:
            observe.log().warning("invariants_uncounted", error=type(error).__name__)

    async def rest(self) -> None:
        """Count no more."""
        if self._judging is not None:
            self._judging.cancel()
            await asyncio.wait({self._judging})
        await self.judge.rest()


GAUGES: web.AppKey[Gauges] = web.AppKey("gauges", Gauges)


async def rest(app: web.Application) -> None:
    """End what a scrape may have begun."""
    await app[GAUGES].rest()


async def metrics(request: web.Request) -> web.Response:
    """Give what this process counts, and the gauges over the database."""
    await request.app[GAUGES].refresh()
    return await exposition(request)
