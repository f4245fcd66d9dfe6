"""An HTTP client that costs little: so many connections, each with its next request when the last is answered."""

from __future__ import annotations

import asyncio
import json
import platform
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from notifier.proof.bench.peers.talk import each_of, talk

LINE_MAX = 2**24


class _Link:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def ask(self, request: bytes) -> tuple[int, bytes]:
        """Send a whole request; gives status and body. Only answers with a Content-Length are understood."""
        self._writer.write(request)
        head = await self._reader.readuntil(b"\r\n\r\n")
        status = int(head[9:12])
        at = head.lower().find(b"content-length:") + len(b"content-length:")
        return status, await self._reader.readexactly(int(head[at : head.find(b"\r", at)]))

    def close(self) -> None:
        self._writer.close()


def event(user: str) -> dict[str, Any]:
    """Give a signup as an application would send it."""
    return {
        "id": f"evt_{user}",
        "type": "user.signed_up",
        "occurred_at": datetime.now(UTC).isoformat(),
        "user": {"id": user, "email": f"{user}@example.com", "name": "Ada", "locale": "en"},
        "data": {},
    }


class Client:
    """A driver of requests."""

    async def hello(self) -> Mapping[str, Any]:
        """Say which versions run here."""
        return {"python": platform.python_version(), "version": "own"}

    async def events(
        self, url: str, key: str, number: int, callers: int, batch: int = 0, tag: str = "u"
    ) -> Mapping[str, Any]:
        """Post events of as many new users: one a request, or `batch`. Fails when one is not accepted."""
        if batch:
            size = number // batch
            bodies = [
                json.dumps({"events": [event(f"{tag}{n}") for n in range(k * batch, (k + 1) * batch)]})
                for k in range(size)
            ]
            path, expected = "/v1/events/batch", 207
        else:
            bodies = [json.dumps(event(f"{tag}{index}")) for index in range(number)]
            path, expected = "/v1/events", 202
        requests = [_request(url, path, key, body.encode()) for body in bodies]
        bad: list[str] = []

        def look(status: int, body: bytes) -> None:
            if status != expected or (batch and body.count(b'"status":202') + body.count(b'"status": 202') != batch):
                bad.append(f"{status}: {body[:300]!r}")

        told = await self._all(url, requests, callers, look)
        if bad:
            raise RuntimeError(f"{len(bad)} of {len(requests)} requests were not accepted, the first: {bad[0]}")
        return {**told, "made": number}

    async def _all(
        self, url: str, requests: list[bytes], callers: int, look: Callable[[int, bytes], None]
    ) -> Mapping[str, Any]:
        links = [await _connect(url) for _ in range(callers)]
        free = list(links)

        async def ask(index: int) -> None:
            link = free.pop()
            look(*await link.ask(requests[index]))
            free.append(link)

        try:
            return await each_of(len(requests), callers, ask)
        finally:
            for link in links:
                link.close()

    async def paced(
        self, url: str, key: str, number: int, per_second: float, tag: str, links: int = 64
    ) -> Mapping[str, Any]:
        """Post signups at a steady rate, however long answers take.

        Gives, per user, when it was due to be sent and when it was answered (monotonic seconds).
        """
        free: asyncio.Queue[_Link] = asyncio.Queue()
        made = [await _connect(url) for _ in range(min(links, number))]
        for link in made:
            free.put_nowait(link)
        sent: dict[str, tuple[float, float]] = {}

        async def one(user: str, due: float) -> None:
            link = await free.get()
            status, body = await link.ask(_request(url, "/v1/events", key, json.dumps(event(user)).encode()))
            free.put_nowait(link)
            if status != 202:
                raise RuntimeError(f"not accepted: {status} {body[:300]!r}")
            sent[user] = (due, time.monotonic())

        started = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for index in range(number):
                due = started + index / per_second
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                group.create_task(one(f"{tag}{index}", due))
        for link in made:
            link.close()
        return {"sent": sent, "seconds": time.monotonic() - started}

    async def rest(self) -> Mapping[str, Any]:
        """Nothing is left open."""
        return {}


async def _connect(url: str) -> _Link:
    parts = urlsplit(url)
    return _Link(*await asyncio.open_connection(parts.hostname, parts.port, limit=LINE_MAX))


def _request(url: str, path: str, key: str, body: bytes) -> bytes:
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {urlsplit(url).netloc}\r\nAuthorization: Bearer {key}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


if __name__ == "__main__":
    talk(Client())
