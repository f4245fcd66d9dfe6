"""The real command line as a process of its own, beside servers of this one."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.support.api import Api

ROOT = Path(__file__).parents[2]
DEADLINE_S = 60
NOT_OURS = ("COLUMNS", "FORCE_COLOR", "NO_COLOR", "PYTHONUNBUFFERED")  # they would change what is tested
PASSED_ON = ("Authorization", "If-Match", "Content-Type")


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


@dataclass(frozen=True)
class Command:
    """Runs `notifier` in an empty directory with these settings, without their prefix."""

    folder: Path
    settings: dict[str, str]

    def environ(self, **settings: str) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if name not in NOT_OURS}
        given = {f"NOTIFIER_{name}": value for name, value in {**self.settings, **settings}.items()}
        return kept | {"PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error"} | given

    async def __call__(self, *argv: str, stdin: bytes | None = None, **settings: str) -> Done:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "notifier", *argv),
            stdin=asyncio.subprocess.DEVNULL if stdin is None else asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=self.folder,
            env=self.environ(**settings),
        )
        try:
            async with asyncio.timeout(DEADLINE_S):
                out, err = await process.communicate(stdin)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        done = Done(process.returncode or 0, out.decode(), err.decode())
        assert "Traceback" not in done.err, done.err
        assert "\x1b" not in done.out + done.err, "colours, and nobody sees them"
        return done


@asynccontextmanager
async def in_front_of(
    api: Api, before: Callable[[web.Request], Awaitable[web.StreamResponse | None]]
) -> AsyncIterator[str]:
    """Give an address that passes everything on to the api, unless `before` answers itself."""

    async def pass_on(request: web.Request) -> web.StreamResponse:
        if (answer := await before(request)) is not None:
            return answer
        headers = {name: request.headers[name] for name in PASSED_ON if name in request.headers}
        url = api.url.join(request.rel_url)
        async with api.session.request(request.method, url, headers=headers, data=await request.read()) as told:
            kept = {name: told.headers[name] for name in ("ETag", "Content-Type") if name in told.headers}
            return web.Response(status=told.status, body=await told.read(), headers=kept)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", pass_on)
    async with TestServer(app) as server:
        yield str(server.make_url("/")).rstrip("/")


def beside(api: Api, folder: Path, **settings: str) -> Command:
    """The command line of an operator who was given the address and the key that may do everything."""
    return Command(folder, {"API_URL": url_of(api), "API_KEY": "k-all", **settings})


def url_of(api: Api) -> str:
    return str(api.url).rstrip("/")
