"""build_app(): the route table and the lifecycle."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import web

from notifier import observe, side_door
from notifier.domain.errors import SettingsError
from notifier.http import dev, docs, events, health, invariants, lane, login, notifications, openapi, switches, users
from notifier.http.auth import DatabaseClock, Keys, WebhookDoor
from notifier.http.bodies import BATCH_MAX_BYTES
from notifier.http.context import CONTEXT, Context
from notifier.http.problems import problems
from notifier.ingest import Ingest
from notifier.operate import Operator
from notifier.runtime import Runtime, background, open_runtime, way_out
from notifier.settings import Settings

SHUTDOWN_S = 5.0


def build_app(runtime: Runtime, ingest: Ingest) -> web.Application:
    """Tie handlers to paths."""
    observe.expose(observe.OF_THE_API)
    app = web.Application(middlewares=[problems], client_max_size=BATCH_MAX_BYTES)
    app[CONTEXT] = Context(
        runtime=runtime,
        ingest=ingest,
        operator=Operator(runtime.database, runtime.wakeup),
        traits=way_out(runtime.settings).traits,
        keys=Keys(runtime.settings),
        login_webhook=WebhookDoor(runtime.settings, DatabaseClock(runtime.database)),
    )
    app[invariants.JUDGE] = invariants.Judge(runtime, app[CONTEXT].traits.family)
    app[health.GAUGES] = health.Gauges(runtime, app[invariants.JUDGE])
    app.on_cleanup.append(health.rest)
    app.add_routes(
        [
            web.post("/v1/events", events.post_event),
            web.post("/v1/events/batch", events.post_batch),
            web.post("/v1/webhooks/login", login.post_login),
            web.get("/v1/notifications", notifications.list_notifications),
            web.get("/v1/notifications/{id}", notifications.get_notification),
            web.post("/v1/notifications/{id}/cancel", notifications.post_cancel),
            web.post("/v1/notifications/{id}/retry", notifications.post_retry),
            web.post("/v1/notifications/{id}/resolve", notifications.post_resolve),
            web.get("/v1/users/{user_id:[^/]+}", users.get_user),
            web.delete("/v1/users/{user_id:[^/]+}", users.delete_user),
            web.get("/v1/users/{user_id:[^/]+}/timeline", users.get_timeline),
            web.get("/v1/switches", switches.list_switches),
            web.get("/v1/switches/{name:[^/]+}", switches.get_switch),
            web.put("/v1/switches/{name:[^/]+}", switches.put_switch),
            web.delete("/v1/switches/{name:[^/]+}", switches.delete_switch),
            web.get("/v1/audit", switches.list_audit),
            web.get("/v1/invariants", invariants.get_invariants),
            web.get("/healthz", side_door.healthz),
            web.get("/readyz", health.readyz),
            web.get("/metrics", health.metrics),
            web.get("/", docs.to_docs),
            web.get("/docs", docs.get_docs),
            web.get("/openapi.json", docs.get_openapi),
            web.get("/problems/{slug}", docs.get_problem),
        ]
    )
    if runtime.settings.clock == "virtual":
        app.add_routes([web.post("/dev/clock", dev.post_clock)])
    app[docs.PAGES] = docs.Pages(openapi.describe(served(app)))
    return app


def served(app: web.Application) -> set[tuple[str, str]]:
    """What the app answers to: (method, path) each."""
    return {
        (route.method.lower(), route.resource.canonical)
        for route in app.router.routes()
        if route.resource is not None and route.method != "HEAD"
    }


async def serve(settings: Settings, *, stop: asyncio.Event, ready: Callable[[str, str, None, str], None]) -> None:
    """Run one api until `stop`; `ready` hears its address, that of its metrics, no SMTP, and its id."""
    if not settings.api_keys:
        raise SettingsError('NOTIFIER_API_KEYS is not set: give keys and scopes, e.g. {"k1": ["events", "read"]}')
    async with open_runtime(settings, "api") as runtime:
        ingest = Ingest(runtime.database, runtime.journeys, runtime.wakeup, pool_size=settings.pool_size)
        app = build_app(runtime, ingest)
        # Requests in hand are answered while the ingest still runs.
        async with background(ingest.run()), listen(app, settings.host, settings.api_port) as (host, port):
            url = side_door.base_url(host, port)
            ready(url, f"{url}/metrics", None, runtime.process_id)
            await stop.wait()


@asynccontextmanager
async def listen(app: web.Application, host: str, port: int) -> AsyncIterator[tuple[str, int]]:
    """Serve the app for the length of the block; gives host and port."""
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=SHUTDOWN_S)
    await runner.setup()
    try:
        context = app[CONTEXT]
        async with lane.listen(runner, context.keys, context.ingest, host, port, SHUTDOWN_S) as where:
            yield where
    finally:
        await runner.cleanup()
