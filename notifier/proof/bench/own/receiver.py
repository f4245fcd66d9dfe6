"""The receiver: Resend's form over HTTP, as light as it can be in Python, that counts and remembers when."""

from __future__ import annotations

import asyncio
import json
import platform
import time
from collections.abc import Mapping
from typing import Any, cast

from notifier.proof.bench.peers.talk import Count, talk

ONE = b'{"id":"00000000-0000-0000-0000-000000000000"}'
BACKLOG = 1_024


class _Connection(asyncio.Protocol):
    """One client: requests one after the other, each answered when it is whole."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._read = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one, and not by inheritance

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        self._read += data
        while (end := self._read.find(b"\r\n\r\n")) >= 0:
            head = self._read[:end]
            whole = end + 4 + int(_header(head, b"content-length") or 0)
            if len(self._read) < whole:
                return
            body, self._read = self._read[end + 4 : whole], self._read[whole:]
            answer = self._receiver.take(head, body)
            self._transport.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
                % (len(answer), answer)
            )


def _header(head: bytes, name: bytes) -> bytes | None:
    """One header's value; the name in small letters."""
    at = head.lower().find(b"\r\n" + name + b":")
    if at < 0:
        return None
    start = at + len(name) + 3
    end = head.find(b"\r\n", start)
    return head[start : end if end >= 0 else len(head)].strip()


class Receiver:
    """Takes every mail. `by_user` is kept only when asked for: when the first mail of each came, monotonic."""

    def __init__(self) -> None:
        self._count = Count()
        self._calls = 0
        self._keys: set[bytes] = set()
        self._by_user: dict[str, list[float]] | None = None
        self._server: asyncio.Server | None = None

    async def hello(self) -> Mapping[str, Any]:
        """Say which versions run here, and where it listens."""
        loop = asyncio.get_running_loop()
        if self._server is None:
            self._server = await loop.create_server(lambda: _Connection(self), "127.0.0.1", 0, backlog=BACKLOG)
        port = self._server.sockets[0].getsockname()[1]
        return {"python": platform.python_version(), "version": "own", "url": f"http://127.0.0.1:{port}"}

    async def forget(self, by_user: bool = False) -> Mapping[str, Any]:
        """Begin anew."""
        self._count, self._calls, self._keys = Count(), 0, set()
        self._by_user = {} if by_user else None
        return {}

    def take(self, head: bytes, body: bytes) -> bytes:
        """Count one request, and answer it."""
        self._calls += 1
        key = _header(head, b"idempotency-key")
        if key is not None:
            self._keys.add(key)
        if b"/emails/batch " in head[: head.find(b"\r\n") + 1]:
            mails = len(json.loads(body))
            self._count.add(mails)
            return b'{"data":[%b]}' % b",".join([ONE] * mails)
        self._count.add()
        if self._by_user is not None:
            user = (_header(head, b"x-notifier-user") or b"").decode()
            self._by_user.setdefault(user, []).append(time.monotonic())
        return ONE

    async def count(self) -> Mapping[str, Any]:
        """Say how many mails came, in how many calls and under how many keys, and when the first and last."""
        return {**self._count.told(), "calls": self._calls, "keys": len(self._keys)}

    async def users(self) -> Mapping[str, Any]:
        """Say when each user's mails came."""
        return {"users": self._by_user or {}}

    async def rest(self) -> Mapping[str, Any]:
        """Listen no more."""
        if self._server is not None:
            self._server.close()
            self._server = None
        return {}


if __name__ == "__main__":
    talk(Receiver())
