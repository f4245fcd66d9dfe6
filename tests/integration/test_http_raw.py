"""Requests no client library would send: an answer in the 400s or a closed line, never a 500 or a traceback."""

from __future__ import annotations

import asyncio
import gzip

import pytest

from notifier import observe
from tests.support.api import Api

HEAD = b"POST /v1/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer k-all\r\nContent-Type: application/json\r\n"
BODY = b'{"id":"e1","type":"user.signed_up","user":{"id":"u_1","email":"ada@example.com"}}'


@pytest.fixture(autouse=True)
def _as_in_a_process() -> None:
    observe.quiet_libraries()


async def talk(api: Api, raw: bytes, *, hang_up: bool = False) -> bytes:
    reader, writer = await asyncio.open_connection(*api.at)
    try:
        writer.write(raw)
        await writer.drain()
        if hang_up:
            return b""
        async with asyncio.timeout(5):
            return await reader.readline()
    finally:
        writer.close()
        await writer.wait_closed()


def with_body(body: bytes, headers: bytes = b"", length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    return HEAD + headers + b"Content-Length: %d\r\n\r\n" % size + body


@pytest.mark.parametrize(
    "raw",
    [
        with_body(b"not gzip at all", b"Content-Encoding: gzip\r\n"),
        with_body(gzip.compress(b"[" * 50_000_000, 1), b"Content-Encoding: gzip\r\n"),
        with_body(gzip.compress(BODY)[:40], b"Content-Encoding: gzip\r\n"),
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nZZ\r\n",
        HEAD + b"Content-Length: -1\r\n\r\n",
        HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n12345",
        HEAD + b"X-Long: " + b"x" * 100_000 + b"\r\n\r\n",
        b"POST /v1/events HTTP/9.9\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        with_body(BODY, b"Idempotency-Key: \xff\xfe\r\n"),
        with_body(BODY).replace(b"Bearer k-all", b"Bearer \xff\xfe"),
        b"GET /v1/users/%00%ff HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer k-all\r\n\r\n",
        b"GET /v1/notifications?user_id=%00&after=%ff HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer k-all\r\n\r\n",
    ],
    ids=lambda raw: raw[-30:].hex()[:16],
)
async def test_a_request_that_makes_no_sense(api: Api, caplog: pytest.LogCaptureFixture, raw: bytes) -> None:
    line = await talk(api, raw)
    assert line == b"" or line.split()[1][:1] == b"4", line
    assert "Traceback" not in caplog.text, caplog.text
    assert await api.conn.fetchval("SELECT count(*) FROM events") == 0


async def test_a_sender_that_hangs_up_in_the_middle(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    await talk(api, with_body(BODY[:20], length=len(BODY)), hang_up=True)
    assert (await talk(api, with_body(BODY))).split()[1] == b"202"
    assert "Traceback" not in caplog.text, caplog.text
