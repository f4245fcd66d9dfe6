"""The mock provider's process: binds HTTP and SMTP, serves, stops."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable, Collection
from pathlib import Path
from typing import Any

from aiohttp import web

from providers.mock.api import Api, errors_in_shape
from providers.mock.desk import Desk
from providers.mock.faults import Dials, Faults
from providers.mock.guard import guard
from providers.mock.intake import Intake
from providers.mock.ledger import Ledger
from providers.mock.smtp import listening
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
    ready: Callable[[str, str], None],
    smtp_port: int = 0,
    duplicate_mode: str = "reject",
    key_ttl_s: float = 86_400,
    names: Collection[str] = (),
) -> None:
    """Run the mock until `stop`; calls `ready` with its URLs, HTTP and SMTP, once it answers. Port 0 takes a free one.

    `names` are host names it is called by, beside those that guard.py lets anybody use.

    Raises OSError when a port or the data directory is in use, ValueError for defaults no fault may have.
    """
    faults = Faults.model_validate({"duplicate_mode": duplicate_mode, "key_ttl_s": key_ttl_s})
    async with contextlib.AsyncExitStack() as stack:
        ledger = await stack.enter_async_context(_ledger(data_dir))
        dials, hub = Dials(faults), Hub()
        api = Api(ledger, dials, hub)
        desk = Desk(ledger, hub, api.count)
        app = _build(api, Intake(desk, dials), hub, Viewer(ledger, dials, hub))
        app.middlewares.append(guard({host, socket.gethostname().lower(), *names}))
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=SHUTDOWN_S)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        site = web.TCPSite(runner, host, port)
        await site.start()
        smtp = await stack.enter_async_context(listening(host, smtp_port, desk, dials))
        ready(_url("http", runner.addresses[0]), _url("smtp", smtp))
        await stop.wait()


def _build(api: Api, intake: Intake, hub: Hub, viewer: Viewer) -> web.Application:
    """Everything the mock answers over HTTP, put together."""
    app = web.Application(middlewares=[errors_in_shape], client_max_size=BODY_BYTES_MAX)
    app.add_routes([web.post("/emails", intake.post_one), web.post("/emails/batch", intake.post_batch)])
    app.add_routes([web.get("/api/stream", hub.serve), *api.routes(), *viewer.routes()])

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


def _url(scheme: str, address: tuple[Any, ...]) -> str:
    host, port = address[:2]
    # listening everywhere: this is where it is reached from here
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - read, not bound
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
