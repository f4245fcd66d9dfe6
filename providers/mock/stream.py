"""Server-sent events: whoever watches the mock hears of every mail taken and every call refused."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Mapping

from aiohttp import web

from providers.mock.records import pack

WAITING_MAX = 1_000
KEEP_ALIVE_S = 15.0


class Hub:
    """Hands each event to every watcher; one who cannot keep up is let go rather than waited for."""

    def __init__(self) -> None:
        self._watchers: set[asyncio.Queue[bytes | None]] = set()

    def publish(self, event: str, data: Mapping[str, object]) -> None:
        """Tell everybody; never waits."""
        if not self._watchers:
            return
        chunk = f"event: {event}\ndata: {pack(data)}\n\n".encode()
        for watcher in list(self._watchers):
            self._put(watcher, chunk)

    def close(self) -> None:
        """End every stream, at shutdown."""
        for watcher in list(self._watchers):
            self._put(watcher, None)

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """GET /api/stream, until the watcher leaves or the mock stops."""
        response = web.StreamResponse(
            headers={
                "Content-Type": "text/event-stream",
                "Cache-Control": "no-store",
                "X-Accel-Buffering": "no",
            }
        )
        with self._watching() as watcher, contextlib.suppress(ConnectionError):
            await response.prepare(request)
            chunk: bytes | None = b": hello\n\n"
            while chunk is not None:
                await response.write(chunk)
                try:
                    chunk = await asyncio.wait_for(watcher.get(), KEEP_ALIVE_S)
                except TimeoutError:
                    chunk = b": still here\n\n"
            await response.write_eof()
        return response

    @contextlib.contextmanager
    def _watching(self) -> Iterator[asyncio.Queue[bytes | None]]:
        watcher: asyncio.Queue[bytes | None] = asyncio.Queue(WAITING_MAX)
        self._watchers.add(watcher)
        try:
            yield watcher
        finally:
            self._watchers.discard(watcher)

    def _put(self, watcher: asyncio.Queue[bytes | None], chunk: bytes | None) -> None:
        if chunk is None or watcher.full():
            self._watchers.discard(watcher)
            while not watcher.empty():
                watcher.get_nowait()
            chunk = None
        watcher.put_nowait(chunk)
