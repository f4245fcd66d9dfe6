"""POST over kept connections, with certainty about how far a call came: aiohttp's connections without its session.

The session's request and response objects cost more than everything below them, and hide the one thing we must know.
What is used here of aiohttp is partly below its documented surface: tests/integration/test_http_post.py holds all we
ask of it, so that a release which changes it is noticed there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection
from aiohttp.http import StreamWriter
from aiohttp.streams import StreamReader
from yarl import URL

from providers.base import Written
from providers.resend_answers import Answer

ANSWER_BYTES_MAX = 65_536
_NO_TIMEOUT = aiohttp.ClientTimeout(total=None)  # the caller sets one for the whole


@dataclass(slots=True)
class Call:
    """How far one call has come. `callers_error`: what `written` raised, to be told from what the network did."""

    written: Written | None = None
    started: bool = False
    callers_error: Exception | None = None

    async def tell_written(self, written: Written) -> None:
        """Call it, and keep its error apart."""
        try:
            await written()
        except Exception as error:
            self.callers_error = error
            raise


class Poster:
    """A way to POST to one server. Connections are opened with the first call, inside the running loop.

    `keep`: whether a connection may serve a second call. One that died unnoticed makes a doubt for nothing.
    """

    def __init__(self, base_url: str, headers: Mapping[str, str], *, connections: int, keep: bool) -> None:
        self._url = base_url
        self._headers = {**headers, "Accept": "*/*", "Accept-Encoding": "identity", "User-Agent": "notifier"}
        if not keep:
            self._headers["Connection"] = "close"
        self._connections = connections
        self._keep = keep
        self._server: _Server | None = None
        self._closed = False

    async def post(self, path: str, headers: Mapping[str, str], body: bytes, call: Call) -> Answer:
        """Make one call, once. Raises aiohttp's errors, OSError and ValueError; `call` then says if it had started."""
        if self._closed:
            raise aiohttp.ClientConnectionError("closed")
        if self._server is None:
            self._server = _Server.at(self._url, self._headers, self._connections, self._keep)
        request = self._server.head(path, headers, len(body)) + body
        connection = await self._server.connect()
        try:
            protocol, transport = _both_ends(connection)
            protocol.set_response_params(read_until_eof=True)
            call.started = True  # the next thing to happen is the first byte: from here on nothing is certain
            if call.written is None:
                transport.write(request)
            else:
                await write_through(StreamWriter(protocol, asyncio.get_running_loop()), transport, request)
                await call.tell_written(call.written)
            answer = await _answer(protocol)
            if not transport.get_write_buffer_size():  # else the rest of this request would begin the next one
                connection.release()  # which still closes it where the answer is not read to its end
            return answer
        finally:
            connection.close()  # unless it was released

    async def close(self) -> None:
        """Let go of connections; a call still under way loses its own."""
        self._closed = True
        if self._server is not None:
            await self._server.connector.close()


@dataclass(frozen=True, slots=True)
class _Server:
    """What is the same for every call: the connections, where they lead, and how a request begins."""

    connector: aiohttp.TCPConnector
    request: aiohttp.ClientRequest  # is never sent: the connector asks it where to connect
    path: str
    headers: str

    @classmethod
    def at(cls, url: str, headers: Mapping[str, str], connections: int, keep: bool) -> _Server:
        request = aiohttp.ClientRequest("POST", URL(url), loop=asyncio.get_running_loop())
        return cls(
            aiohttp.TCPConnector(limit=connections, force_close=not keep),
            request,
            request.url.raw_path.rstrip("/"),
            _lines({"Host": request.headers["Host"], **headers}),
        )

    def head(self, path: str, headers: Mapping[str, str], length: int) -> bytes:
        return (
            f"POST {self.path}{path} HTTP/1.1\r\n{self.headers}{_lines(headers)}Content-Length: {length}\r\n\r\n"
        ).encode()

    async def connect(self) -> Connection:
        try:
            return await self.connector.connect(self.request, [], _NO_TIMEOUT)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and not task.cancelling():  # it is the connector that ends, not this call
                raise aiohttp.ClientConnectionError("closed while waiting for a connection") from error
            raise


def _lines(headers: Mapping[str, str]) -> str:
    for name, value in headers.items():
        if not value.isprintable():
            raise ValueError(f"the header {name} holds a control character")
    return "".join([f"{name}: {value}\r\n" for name, value in headers.items()])


def _both_ends(connection: Connection) -> tuple[ResponseHandler, asyncio.Transport]:
    """The connection's two sides, if it can be used; raises ClientConnectionError before anything is written."""
    protocol, transport = connection.protocol, connection.transport
    if protocol is None or transport is None or transport.is_closing():
        raise aiohttp.ClientConnectionError("the connection is gone already")
    if protocol.should_close:
        # What it has sent would be read as the answer to a request it has not seen.
        raise aiohttp.ClientConnectionError("the server spoke before it was asked")
    return protocol, transport


async def write_through(writer: StreamWriter, transport: asyncio.Transport, data: bytes) -> None:
    """Write, and return when the kernel holds the last byte: a SIGKILL after that takes nothing back."""
    transport.set_write_buffer_limits(high=0)  # drain() then waits for an empty buffer
    await writer.write(data)
    await writer.drain()
    if not transport.is_closing():  # uvloop's refuses to be told anything then
        transport.set_write_buffer_limits()


async def _answer(protocol: ResponseHandler) -> Answer:
    while True:
        message, payload = await protocol.read()
        if message.code >= 200 or message.code == 101:  # what comes before is no answer
            return Answer(message.code, message.headers, await _read(payload))


async def _read(payload: StreamReader) -> bytes | None:
    """The body, or None where it breaks off or never ends: the status may be enough all the same."""
    body = b""
    try:
        while not payload.at_eof():
            body += await payload.readany()
            if len(body) > ANSWER_BYTES_MAX:
                return None
    except aiohttp.ClientError:
        return None
    return body
