"""The floor of the API: an aiohttp handler that parses the same JSON and does nothing with it."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from typing import Any

import aiohttp
from aiohttp import web

from notifier.lifecycle import collect_rarely
from notifier.proof.bench.peers.talk import talk

ANSWER = json.dumps({"event": {"id": "evt_0", "type": "user.signed_up", "duplicate": False}, "notifications": []})


class BareApi:
    """A driver of a web application with one route."""

    def __init__(self) -> None:
        self._runner: web.AppRunner | None = None

    async def hello(self) -> Mapping[str, Any]:
        """Say which versions run here, and where it listens."""
        if self._runner is None:
            app = web.Application()
            app.add_routes([web.post("/v1/events", _post_event)])
            self._runner = web.AppRunner(app, access_log=None)
            await self._runner.setup()
            await web.TCPSite(self._runner, "127.0.0.1", 0, backlog=1_024).start()
        host, port = self._runner.addresses[0][:2]
        return {
            "python": platform.python_version(),
            "version": f"aiohttp {aiohttp.__version__}",
            "url": f"http://{host}:{port}",
        }

    async def rest(self) -> Mapping[str, Any]:
        """Listen no more."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
        return {}


async def _post_event(request: web.Request) -> web.Response:
    json.loads(await request.read())
    return web.Response(body=ANSWER.encode(), status=202, content_type="application/json")


if __name__ == "__main__":
    collect_rarely()  # as every process of the service does
    talk(BareApi())
