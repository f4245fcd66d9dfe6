"""Alive, ready, and the gauges over the database."""

from __future__ import annotations

import time
from dataclasses import dataclass

from aiohttp import web

from notifier import observe
from notifier.http.bodies import answer
from notifier.http.context import CONTEXT
from notifier.http.invariants import count_violations
from notifier.runtime import Runtime
from notifier.side_door import metrics as exposition
from notifier.store import counts, migrate
from notifier.store.database import RETRYABLE, UNAVAILABLE
from providers.base import Family

GAUGE_AGE_S = 5.0
INVARIANTS_AGE_S = 60.0  # they look at many more rows


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

    read_at: float = -1e9
    judged_at: float = -1e9

    async def refresh(self, runtime: Runtime, family: Family) -> None:
        """Read them unless they are fresh; a database that is away leaves them as they were."""
        if time.monotonic() - self.read_at < GAUGE_AGE_S:
            return
        self.read_at = time.monotonic()
        try:
            async with runtime.database.connection() as conn:
                found = await counts.open_states(conn)
                oldest = await counts.oldest_pending_s(conn)
            if time.monotonic() - self.judged_at >= INVARIANTS_AGE_S:
                self.judged_at = time.monotonic()
                await count_violations(runtime, family)
        except (*RETRYABLE, *UNAVAILABLE) as error:
            observe.log().warning("gauges_unread", error=type(error).__name__)
            return
        for state, number in found.items():
            observe.NOTIFICATIONS.labels(state).set(number)
        observe.OLDEST_PENDING.set(oldest)


GAUGES: web.AppKey[Gauges] = web.AppKey("gauges", Gauges)


async def metrics(request: web.Request) -> web.Response:
    """Give what this process counts, and the gauges over the database."""
    context = request.app[CONTEXT]
    await request.app[GAUGES].refresh(context.runtime, context.traits.family)
    return await exposition(request)
