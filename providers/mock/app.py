"""The mock provider's process: binds, serves, stops."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable, Collection
from pathlib import Path

from aiohttp import web

from providers.mock.api import Api, errors_in_shape
from providers.mock.faults import Dials, Faults
from providers.mock.guard import guard
from providers.mock.intake import Intake
from providers.mock.ledger import Ledger
from providers.mock.stream import Hub
from providers.mock.viewer import Viewer

BODY_BYTES_MAX = 8 * 1024 * 1024
SHUTDOWN_S = 0.3  # aiohttp grants it twice: once to end by themselves, once after cancelling


async def serve(
    *,
    host: str,
    port: int,
    data_dir: Path,
    stop: asyncio.Event,
    ready: Callable[[str], None],
    duplicate_mode: str = "reject",
    key_ttl_s: float = 86_400,
    names: Collection[str] = (),
) -> None:
    """Run the mock until `stop`; calls `ready` with its URL once it answers. Port 0 takes a free one.

    `names` are host names it is called by, beside those that guard.py lets anybody use.

    Raises OSError when the port or the data directory is in use, ValueError for defaults no fault may have.
    """
    faults = Faults.model_validate({"duplicate_mode": duplicate_mode, "key_ttl_s": key_ttl_s})
    async with contextlib.AsyncExitStack() as stack:
        ledger = await stack.enter_async_context(_ledger(data_dir))
        runner = web.AppRunner(
            build(ledger, Dials(faults), {host, socket.gethostname().lower(), *names}),
            access_log=None,
            shutdown_timeout=SHUTDOWN_S,
        )
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        site = web.TCPSite(runner, host, port)
        await site.start()
        ready(_url(runner))
        await stop.wait()


def build(ledger: Ledger, dials: Dials, names: Collection[str]) -> web.Application:
    """Everything the mock answers, put together."""
    hub = Hub()
    api = Api(ledger, dials, hub)
    intake = Intake(ledger, dials, hub, api.count)
    app = web.Application(middlewares=[errors_in_shape, guard(names)], client_max_size=BODY_BYTES_MAX)
    app.add_routes([web.post("/emails", intake.post_one), web.post("/emails/batch", intake.post_batch)])
    app.add_routes([web.get("/api/stream", hub.serve), *api.routes(), *Viewer(ledger, dials, hub).routes()])

    async def let_go(_app: web.Application) -> None:
        intake.stop()
        hub.close()

    app.on_shutdown.append(let_go)
    return app


@contextlib.asynccontextmanager
async def _ledger(data_dir: Path) -> AsyncIterator[Ledger]:
    ledger = await asyncio.to_thread(Ledger, data_dir)
    try:
        yield ledger
    finally:
        await asyncio.to_thread(ledger.close)


def _url(runner: web.AppRunner) -> str:
    host, port = runner.addresses[0][:2]
    # listening everywhere: this is where it is reached from here
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
