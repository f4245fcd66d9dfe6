"""The bench's receiver: it must count right, however its bytes come."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from notifier.proof.bench.own.receiver import Receiver

BODY = b'{"to":["a@example.com"]}'


def a_request(key: str, path: str = "/emails", body: bytes = BODY, user: str = "u1") -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nIdempotency-Key: {key}\r\nX-Notifier-User: {user}\r\n"
    return f"{head}CONTENT-LENGTH: {len(body)}\r\n\r\n".encode() + body


@pytest.fixture
async def receiver() -> AsyncIterator[tuple[Receiver, asyncio.StreamReader, asyncio.StreamWriter]]:
    made = Receiver()
    port = int((await made.hello())["url"].rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    yield made, reader, writer
    writer.close()
    await writer.wait_closed()
    await made.rest()


async def answered(reader: asyncio.StreamReader) -> object:
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200")
    return json.loads(await reader.readexactly(int(head.lower().partition(b"content-length:")[2].split()[0])))


async def test_mails_calls_and_keys_are_counted_apart(
    receiver: tuple[Receiver, asyncio.StreamReader, asyncio.StreamWriter],
) -> None:
    made, reader, writer = receiver
    await made.forget(by_user=True)
    writer.write(a_request("k1") + a_request("k1", user="u2"))  # two in one piece
    for _ in range(2):
        assert await answered(reader)
    whole = a_request("k2", "/emails/batch", b"[{},{},{}]")
    for start in range(0, len(whole), 7):  # one in many
        writer.write(whole[start : start + 7])
        for _ in range(3):
            await asyncio.sleep(0)  # let the other end read it
    assert len((await answered(reader))["data"]) == 3  # type: ignore[index] - JSON, whose form is what is tested
    count = await made.count()
    assert (count["done"], count["calls"], count["keys"]) == (5, 3, 2)
    assert set((await made.users())["users"]) == {"u1", "u2"}
    await made.forget()
    assert (await made.count())["done"] == 0
