"""The small server of processes that serve nothing else: /healthz and /metrics."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from notifier import observe


async def healthz(_request: web.Request) -> web.Response:
    """Answer while the process lives."""
    return web.json_response({"status": "alive"})


async def metrics(_request: web.Request) -> web.Response:
    """Give what this process counts."""
    return web.Response(body=observe.exposition(), headers={"Content-Type": observe.CONTENT_TYPE})


@asynccontextmanager
async def side_door(host: str, port: int) -> AsyncIterator[str]:
    """Serve on `port` (0: any free one) for the length of the block; gives the base URL."""
    app = web.Application()
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/metrics", metrics)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port)
        await site.start()
        yield base_url(*runner.addresses[0][:2])
    finally:
        await runner.cleanup()


def base_url(host: str, port: int) -> str:
    """Where a server listens."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
