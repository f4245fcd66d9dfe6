"""A process killed the moment `written` is told: the other side gets it all."""

from __future__ import annotations

import asyncio
import contextlib
import sys

import pytest

from tests.integration.test_http_post import Line, serving
from tests.integration.test_smtp_odd_servers import odd

CHILD = """
import asyncio, os, signal, sys, uvloop
from pathlib import Path
from providers.mail_server import MailServer
from providers.smtp import SmtpProvider
from tests.support.mock_server import CONTEXT, MAIL
import providers, datetime
from providers.base import Family
async def written():
    os.kill(os.getpid(), signal.SIGKILL)
async def main():
    how, port, ca, size = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    mail = MAIL._replace(html="<p>" + "y\\n" * (size // 2))
    if how == "smtp":
        p = SmtpProvider(MailServer("localhost", port, "tls" if ca else "none", Path(ca) if ca else None), timeout_s=40)
        await p.send(mail, "k", CONTEXT, written=written)
    else:
        p = providers.mock_provider(base_url=f"http://127.0.0.1:{port}", api_key="re_test", family=Family.REJECT,
            window=datetime.timedelta(days=1), timeout_s=40, concurrency=3)
        await p.send(mail, "k", CONTEXT, written=written)
uvloop.run(main())
"""


@pytest.mark.parametrize("size", [100, 60_000, 40_000_000])
async def test_over_smtp(size: int) -> None:
    seen = asyncio.Event()

    async def at_data(server, reader, writer) -> None:
        writer.write(b"354 go\r\n")
        await asyncio.sleep(0.6)
        last = b""
        with contextlib.suppress(ConnectionError):
            while part := await reader.read(65536):
                last = (last + part)[-5:]
                await asyncio.sleep(0.002)
        if last == b"\r\n.\r\n":
            server.taken += 1
        seen.set()
        raise ConnectionError

    async with odd(at_data, timeout_s=40) as (server, provider):
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-c", CHILD, "smtp", str(server.port), "", str(size)
        )
        assert await child.wait() == -9
        await asyncio.wait_for(seen.wait(), 30)
        assert server.taken == 1


@pytest.mark.parametrize("size", [100, 60_000, 40_000_000])
async def test_over_http(size: int) -> None:
    got = asyncio.get_running_loop().create_future()

    async def script(line: Line) -> None:
        head = await line.head()
        [length] = [int(l[15:]) for l in head.split(b"\r\n") if l.lower().startswith(b"content-length:")]
        await asyncio.sleep(0.6)
        n = 0
        with contextlib.suppress(ConnectionError):
            while n < length and (part := await line.reader.read(65536)):
                n += len(part)
                await asyncio.sleep(0.002)
        got.set_result((n, length))

    async with serving(script) as server:
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-c", CHILD, "http", server.url.rsplit(":", 1)[1], "", str(size)
        )
        assert await child.wait() == -9
        n, length = await asyncio.wait_for(got, 30)
        assert n == length
