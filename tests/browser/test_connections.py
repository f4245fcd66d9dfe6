"""A mail in a plain Chromium, as its reader has it: it does not so much as open a connection."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.browser.steps import send
from tests.support.chromium import find_chromium, flags
from tests.support.mock_server import Mock, until

HINTS = (
    '<link rel="preconnect" href="{at}"><LINK rel=preconnect href={at}><link/rel=dns-prefetch href="{at}">'
    '<iframe src="{at}"></iframe><iframe sandbox loading=lazy src="{at}"></iframe>'
    '<iframe srcdoc="&lt;link rel=preconnect href={at}&gt;"></iframe>'
    '<svg><foreignObject><iframe src="{at}"></iframe></foreignObject></svg>'
    '<object data="{at}"></object><embed src="{at}"><p>shown</p>'
)


@dataclass
class Outside:
    """An address of somebody else's, and how often anybody connected to it."""

    url: str
    connections: int = 0


@contextlib.asynccontextmanager
async def an_outside() -> AsyncIterator[Outside]:
    async def connected(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        outside.connections += 1
        writer.close()

    listening = await asyncio.start_server(connected, "127.0.0.1", 0)
    outside = Outside(f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}")
    try:
        yield outside
    finally:
        listening.close()
        await listening.wait_closed()


async def look(url: str, profile: Path) -> None:
    """Open it in a browser of its own, without a driver: under one, Chromium makes no such connections."""
    program = find_chromium()
    assert program is not None
    process = await asyncio.create_subprocess_exec(
        *(
            program,
            "--headless",
            *flags(),
            f"--user-data-dir={profile}",
            "--timeout=1500",
            "--dump-dom",
            url,
        ),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(60):
            shown, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert b"shown" in shown


async def test_a_mail_opens_no_connection(mock: Mock, tmp_path: Path) -> None:
    async with an_outside() as outside:
        await send(mock, "k", subject="shown", html=HINTS.format(at=outside.url))
        [mail] = await until(mock.inbox)
        await look(f"{mock.url}/api/messages/{mail['id']}/html", tmp_path / "one")
        await look(f"{mock.url}/messages/{mail['id']}", tmp_path / "two")
        assert outside.connections == 0

        async def unguarded(_request: web.Request) -> web.Response:
            return web.Response(text=HINTS.format(at=outside.url), content_type="text/html")

        app = web.Application()
        app.router.add_get("/", unguarded)
        async with TestServer(app) as server:
            await look(str(server.make_url("/")), tmp_path / "three")
        assert outside.connections > 0, "this browser connects to nothing, so the test above says nothing"
