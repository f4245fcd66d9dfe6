"""The short way of an event: a plain POST /v1/events is read, taken in and answered on its connection.

To aiohttp a request costs twice what the event costs us. So connections begin here, and httptools reads what they ask.
Anything but the plainest form of that one request (another path, a body in chunks or compressed, a request behind a
request, HTTP/1.0) goes to aiohttp's server together with its connection, for as long as that lasts: so everything else
about HTTP has one behaviour, that library's, and nothing was done yet with what is handed over.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from email.utils import formatdate
from http import HTTPStatus
from typing import cast

import httptools
from aiohttp import web

from notifier.http.auth import Keys
from notifier.http.events import read_event, told
from notifier.http.problems import Problem, problem_told
from notifier.ingest import Accepted, Ingest

_ROUTE = "POST /v1/events"
_LINE = f"{_ROUTE} HTTP/1.1\r\n".encode()
_ODD = {
    b"connection",
    b"content-encoding",
    b"expect",
    b"proxy-connection",
    b"sec-websocket-key1",
    b"transfer-encoding",
    b"upgrade",
}
REQUEST_MAX = 65_536  # bytes of a request; what comes before it is answered may be one read more
_DIGITS_MAX = len(str(REQUEST_MAX))
HEADERS_MAX = 128  # as many as aiohttp takes
HEAD_MAX = 8_190  # bytes; as much as aiohttp lets one header have
KEPT_S = 3_630.0  # so long an idle connection is kept: aiohttp's own number, so that a proxy hangs up first
SWEEP_S = 60.0  # so often those are looked for


@dataclass(slots=True, eq=False)
class Lanes:
    """All connections that are not aiohttp's. `others`: its server, for theirs."""

    keys: Keys
    ingest: Ingest
    others: Callable[[], asyncio.Protocol]
    is_closing: bool = False
    _open: set[Lane] = field(default_factory=set)
    _gone: asyncio.Event = field(default_factory=asyncio.Event)
    _date: tuple[int, bytes] = (0, b"")

    def add(self, lane: Lane) -> None:
        """Count a connection in."""
        self._open.add(lane)

    def discard(self, lane: Lane) -> None:
        """Count it out: it ended, or is aiohttp's now."""
        self._open.discard(lane)
        if not self._open:
            self._gone.set()

    def date(self) -> bytes:
        """Now, as a header says it."""
        now = int(time.time())
        if self._date[0] != now:
            self._date = now, formatdate(now, usegmt=True).encode()
        return self._date[1]

    async def sweep(self) -> None:
        """Close connections that nobody used for long, for ever."""
        while True:
            await asyncio.sleep(SWEEP_S)
            for lane in list(self._open):
                lane.close_if_unused()

    async def close(self, patience_s: float) -> None:
        """Close what is idle, let answers be given and be read, and end what takes longer."""
        self.is_closing = True
        for lane in list(self._open):
            lane.close()
        if self._open:
            self._gone.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(patience_s):
                    await self._gone.wait()
        for lane in list(self._open):
            lane.abort()


class Lane(asyncio.Protocol):
    """One connection, with one event at a time."""

    __slots__ = (
        "_body",
        "_early",
        "_headers",
        "_is_answering",
        "_is_full",
        "_is_odd",
        "_is_paused",
        "_lanes",
        "_parser",
        "_raw",
        "_refused",
        "_requests",
        "_transport",
        "_used_at",
        "_wholes",
    )

    def __init__(self, lanes: Lanes) -> None:
        self._lanes = lanes
        self._transport: asyncio.Transport = cast(asyncio.Transport, None)  # until there is one
        self._parser: httptools.HttpRequestParser | None = httptools.HttpRequestParser(self)
        self._is_answering = False
        self._early = b""  # what came before the answer was given
        self._is_full = False  # whether the other side leaves our answers unread
        self._is_paused = False  # whether we leave unread what it says
        self._used_at = time.monotonic()
        self._begin()

    def _begin(self) -> None:
        self._raw = b""
        self._body = b""
        self._headers: dict[bytes, bytes] = {}
        self._refused: Problem | None = None
        self._requests = self._wholes = 0
        self._is_odd = False

    # ------------------------------------------------------------------------------------------ what asyncio says

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast(asyncio.Transport, transport)
        self._lanes.add(self)
        if self._lanes.is_closing:
            self.close()
        if (sock := transport.get_extra_info("socket")) is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def connection_lost(self, exc: Exception | None) -> None:
        """End; an event that is on its way to the database gets there, and a repeat finds its answer."""
        self._lanes.discard(self)
        self._parser = None  # which holds us

    def data_received(self, data: bytes) -> None:
        """Read on; once there is a whole event, take it in."""
        if self._is_answering:
            self._early += data
            self._read_or_not()
            return
        self._raw = raw = self._raw + data if self._raw else data
        parser = self._parser
        if parser is None:
            return
        if not (raw.startswith(_LINE) or _LINE.startswith(raw)):
            self._hand_over()
            return
        try:
            parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._is_odd = True
        if self._is_odd or self._requests > 1 or len(raw) > REQUEST_MAX or len(raw) - len(self._body) > HEAD_MAX:
            self._hand_over()
        elif self._wholes:
            self._take()
        elif self._refused is not None:
            self._hand_over()  # to be told so now, and not to be listened to for long
        elif raw is data:
            self._used_at = time.monotonic()  # for all of a request, however it comes

    def pause_writing(self) -> None:
        """Ask for no more while the answers are not read."""
        self._is_full = True
        self._read_or_not()

    def resume_writing(self) -> None:
        """Go on."""
        self._is_full = False
        self._read_or_not()

    def _read_or_not(self) -> None:
        pause = self._is_full or len(self._early) > REQUEST_MAX
        if pause != self._is_paused:
            self._is_paused = pause
            if pause:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    # ---------------------------------------------------------------------------------------- what httptools says

    def on_message_begin(self) -> None:
        """Count a request that begins."""
        self._requests += 1

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep it, and see what we do not deal with."""
        name = name.lower()
        if name in self._headers or (name in _ODD and not (name == b"connection" and value.lower() == b"keep-alive")):
            self._is_odd = True
        self._headers[name] = value

    def on_headers_complete(self) -> None:
        """See whether to go on at all, before there is a body."""
        headers = self._headers
        is_large = len(headers.get(b"content-length", b"")) > _DIGITS_MAX
        if is_large or b"host" not in headers or len(headers) > HEADERS_MAX:
            self._is_odd = True
            return
        try:
            self._lanes.keys.check(_text(headers.get(b"authorization", b"")), "events")
        except Problem as problem:
            self._refused = problem

    def on_body(self, body: bytes) -> None:
        """Gather the body."""
        self._body = self._body + body if self._body else body

    def on_message_complete(self) -> None:
        """Count a request that is whole."""
        self._wholes += 1

    # --------------------------------------------------------------------------------------------- what comes of it

    def _take(self) -> None:
        key, body, refused = self._headers.get(b"idempotency-key"), self._body, self._refused
        self._begin()
        self._is_answering = True
        try:
            if refused is not None:
                raise refused
            self._lanes.ingest.put(read_event(body, None if key is None else _text(key)), self._tell)
        except Exception as error:  # noqa: BLE001 - as aiohttp's requests end in one place, these do in this
            self._tell(error)

    def _tell(self, outcome: Accepted | Exception) -> None:
        """Answer what was asked, and go on with what came meanwhile."""
        if self._transport.is_closing():
            return
        try:
            answer = problem_told(outcome, _ROUTE) if isinstance(outcome, Exception) else told(outcome)
        except Exception as error:  # noqa: BLE001 - what has no answer must not keep others from hearing theirs
            answer = problem_told(error, _ROUTE)
        self._answer(*answer)
        self._used_at = time.monotonic()
        if self._lanes.is_closing:
            self._transport.close()
        elif self._early:
            asyncio.get_running_loop().call_soon(self._go_on)  # not from among those who are being told
        else:
            self._is_answering = False

    def _go_on(self) -> None:
        early, self._early = self._early, b""
        self._is_answering = False
        if self._lanes.is_closing:
            self._transport.close()
        else:
            # Reading is paused for more than REQUEST_MAX of it alone, which always is aiohttp's, and it reads on.
            self.data_received(early)

    def _answer(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        more = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
        if self._lanes.is_closing:
            more += "Connection: close\r\n"
        head = f"{_STATUS[status]}{more}Content-Length: {len(body)}\r\nDate: "
        self._transport.write(b"".join((head.encode(), self._lanes.date(), b"\r\n\r\n", body)))

    def _hand_over(self) -> None:
        """Let aiohttp have the connection, and all of what was read and not answered."""
        raw, transport, other = self._raw, self._transport, self._lanes.others()
        self._parser = None
        transport.set_protocol(other)
        other.connection_made(transport)
        if self._is_full:
            other.pause_writing()
        if self._is_paused:
            transport.resume_reading()
        self._lanes.discard(self)
        other.data_received(raw)

    # ------------------------------------------------------------------------------------------------------- its end

    def close(self) -> None:
        """End, but for what is to be answered; the answer says that it is the last."""
        if not self._is_answering:
            self._transport.close()

    def close_if_unused(self) -> None:
        """End what has been idle for too long."""
        if time.monotonic() - self._used_at > KEPT_S:
            self.close()

    def abort(self) -> None:
        """End at once."""
        self._transport.abort()


def _text(value: bytes) -> str:
    """Read a header as aiohttp does."""
    return value.decode("utf-8", "surrogateescape")


_STATUS = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n" for status in HTTPStatus}


@contextlib.asynccontextmanager
async def listen(
    runner: web.AppRunner, keys: Keys, ingest: Ingest, host: str, port: int, patience_s: float
) -> AsyncIterator[tuple[str, int]]:
    """Listen for the length of the block, with lanes in front of a runner that was set up; gives host and port.

    At the end what was asked is answered, on lanes and otherwise, for so long.
    """
    assert runner.server is not None, "set up"
    lanes = Lanes(keys, ingest, runner.server)
    server = await asyncio.get_running_loop().create_server(lambda: Lane(lanes), host, port, backlog=1_024)
    sweeping = asyncio.create_task(lanes.sweep())
    try:
        yield server.sockets[0].getsockname()[:2]
    finally:
        sweeping.cancel()
        server.close()
        async with asyncio.TaskGroup() as ending:
            ending.create_task(lanes.close(patience_s))
            ending.create_task(runner.cleanup())
