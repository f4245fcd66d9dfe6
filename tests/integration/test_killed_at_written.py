"""A process that is killed the moment it is told `written`: the other side gets every byte all the same."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys

import pytest

from tests.integration.test_http_post import Line, serving
from tests.integration.test_smtp_odd_servers import Odd, odd

SENDER = """
import asyncio, datetime, os, signal, sys
import uvloop
from providers import mock_provider
from providers.base import Family
from providers.mail_server import MailServer
from providers.smtp import SmtpProvider
from tests.support.mock_server import CONTEXT, MAIL

how, port, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
if how == "smtp":
    provider = SmtpProvider(MailServer("localhost", port, "none"), timeout_s=40)
else:
    provider = mock_provider(base_url=f"http://127.0.0.1:{port}", api_key="re_test", family=Family.REJECT,
                             window=datetime.timedelta(days=1), timeout_s=40, concurrency=1)

async def written():
    os.kill(os.getpid(), signal.SIGKILL)

uvloop.run(provider.send(MAIL._replace(html="y\\n" * (size // 2)), "k", CONTEXT, written=written))
"""
SIZES = pytest.mark.parametrize("size", [100, 60_000, 20_000_000])


async def send(how: str, port: int, size: int) -> None:
    """Have a process send so many bytes, until it is killed."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", SENDER, how, str(port), str(size))
    assert await process.wait() == -signal.SIGKILL


async def late(sending: asyncio.Task[None]) -> None:
    """Begin to read when the sender is gone, or waits for us to do so."""
    await asyncio.wait({sending}, timeout=0.5)


@SIZES
async def test_over_smtp(size: int) -> None:
    end: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def at_data(_server: Odd, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"354 go\r\n")
        await late(sending)
        last = b""
        with contextlib.suppress(ConnectionError):
            while part := await reader.read(65_536):
                last = (last + part)[-5:]
        end.set_result(last)

    async with odd(at_data, timeout_s=40) as (server, _):
        sending = asyncio.create_task(send("smtp", server.port, size))
        assert await asyncio.wait_for(end, 30) == b"\r\n.\r\n"
        await sending


@SIZES
async def test_over_http(size: int) -> None:
    came: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def script(line: Line) -> None:
        head = (await line.head()).lower()
        left = int(head.partition(b"content-length:")[2].split()[0])
        await late(sending)
        with contextlib.suppress(ConnectionError):
            while left and (part := await line.reader.read(65_536)):
                left -= len(part)
        came.set_result(left)

    async with serving(script) as server:
        sending = asyncio.create_task(send("http", int(server.url.rsplit(":", 1)[1]), size))
        assert await asyncio.wait_for(came, 30) == 0
        await sending
