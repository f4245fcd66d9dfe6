"""Server-sent events: whoever watches the mock hears of every mail taken and every call refused."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Mapping

from aiohttp import web

from providers.mock.records import pack

WAITING_MAX = 1_000
KEEP_ALIVE_S = 15.0
CHANGE_GAP_S = 0.25
RETRY_MS = 500
HELLO = b": hello\n\n"


class Hub:
    """Hands each event to every watcher; one who cannot keep up is let go rather than waited for."""

    def __init__(self) -> None:
        self._watchers: set[asyncio.Queue[bytes | None]] = set()
        self._changes: set[asyncio.Event] = set()
        self._closing = asyncio.Event()
        self.in_flight = 0

    def publish(self, event: str, data: Mapping[str, object]) -> None:
        """Tell everybody; never waits."""
        self.changed()
        if not self._watchers:
            return
        chunk = _event(event, data)
        for watcher in list(self._watchers):
            self._put(watcher, chunk)

    def changed(self) -> None:
        """Something that pages show is no longer as it was."""
        for change in self._changes:
            change.set()

    @contextlib.contextmanager
    def calling(self) -> Iterator[None]:
        """Count a call as in flight while it is under way."""
        self.in_flight += 1
        try:
            yield
        finally:
            self.in_flight -= 1

    def close(self) -> None:
        """End every stream, at shutdown."""
        self._closing.set()
        self.changed()
        for watcher in list(self._watchers):
            self._put(watcher, None)

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """GET /api/stream, until the watcher leaves or the mock stops; `only=changes` is for pages."""
        only = request.query.get("only")
        if only not in (None, "changes"):
            raise web.HTTPUnprocessableEntity(text="only can be `changes`; leave it out to hear everything.")
        response = web.StreamResponse(
            headers={
                "Content-Type": "text/event-stream",
                "Cache-Control": "no-store",
                "X-Accel-Buffering": "no",
            }
        )
        with contextlib.suppress(ConnectionError):
            await response.prepare(request)
            await (self._tell_all(response) if only is None else self._tell_changes(response))
            await response.write_eof()
        return response

    async def _tell_all(self, response: web.StreamResponse) -> None:
        with self._watching() as watcher:
            chunk: bytes | None = HELLO
            while chunk is not None:
                await response.write(chunk)
                try:
                    chunk = await asyncio.wait_for(watcher.get(), KEEP_ALIVE_S)
                except TimeoutError:
                    chunk = b": still here\n\n"

    async def _tell_changes(self, response: web.StreamResponse) -> None:
        """The first change at once, then what came meanwhile at most four times a second: a burst is few events."""
        loop = asyncio.get_running_loop()
        with self._awaiting_changes() as change:
            await response.write(f"retry: {RETRY_MS}\n\n".encode() + HELLO)
            told, spoke_at = -1, loop.time()
            while not self._closing.is_set():
                chunk = b""
                if changed := change.is_set():
                    change.clear()
                    chunk = _event("change", {})
                if told != self.in_flight:
                    told = self.in_flight
                    chunk += _event("in_flight", {"in_flight": told})
                if not chunk and loop.time() - spoke_at > KEEP_ALIVE_S:
                    chunk = b": still here\n\n"
                if chunk:
                    await response.write(chunk)
                    spoke_at = loop.time()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for((self._closing if changed else change).wait(), CHANGE_GAP_S)

    @contextlib.contextmanager
    def _watching(self) -> Iterator[asyncio.Queue[bytes | None]]:
        watcher: asyncio.Queue[bytes | None] = asyncio.Queue(WAITING_MAX)
        self._watchers.add(watcher)
        try:
            yield watcher
        finally:
            self._watchers.discard(watcher)

    @contextlib.contextmanager
    def _awaiting_changes(self) -> Iterator[asyncio.Event]:
        change = asyncio.Event()
        self._changes.add(change)
        try:
            yield change
        finally:
            self._changes.discard(change)

    def _put(self, watcher: asyncio.Queue[bytes | None], chunk: bytes | None) -> None:
        if chunk is None or watcher.full():
            self._watchers.discard(watcher)
            while not watcher.empty():
                watcher.get_nowait()
            chunk = None
        watcher.put_nowait(chunk)


def _event(name: str, data: Mapping[str, object]) -> bytes:
    return f"event: {name}\ndata: {pack(data)}\n\n".encode()
