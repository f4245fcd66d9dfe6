"""POST over kept connections, with certainty about how far a call came.

A general client hides the one thing we must know: whether the first byte may have gone out. It also costs more than all
else that is done with a mail. So HTTP is httptools' to read, finding the address that answers is aiohappyeyeballs', and
what is left is here: connections, each with one question at a time.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import zlib
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import aiohappyeyeballs
import httptools
from yarl import URL

from providers.base import Written
from providers.resend_answers import Answer

ANSWER_BYTES_MAX = 65_536  # of a body; with all that is around it, twice as much
WAIT_S = 15.0  # so long a connection waits for its next call: servers hang up on what waits longer
ADDRESSES_S = 10.0  # so long a server's addresses are believed
OTHER_ADDRESS_AFTER_S = 0.25  # RFC 8305, section 8: when the next address is tried beside one that does not answer
AT_ONCE_BYTES = 65_536  # what a socket takes without waiting for the other side


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
        url = URL(base_url)
        self._server = _Server(url.raw_host or "", url.port or 80, with_tls=url.scheme == "https")
        self._path = url.raw_path.rstrip("/")
        own = {"Accept": "*/*", "Accept-Encoding": "identity", "User-Agent": "notifier"}
        own |= {} if keep else {"Connection": "close"}
        self._headers = _written({"Host": url.host_port_subcomponent or "", **headers, **own})
        self._keep = keep
        self._places = asyncio.Semaphore(connections)
        self._open: set[Line] = set()
        self._waiting: deque[Line] = deque()  # for their next call, the one that waits longest first
        self._closed = False

    async def post(self, path: str, headers: Mapping[str, str], body: bytes, call: Call) -> Answer:
        """Make one call, once. Raises OSError and ValueError; `call` then says if it had started."""
        head = f"POST {self._path}{path} HTTP/1.1\r\n{self._headers}{_written(headers)}Content-Length: {len(body)}\r\n"
        request = f"{head}\r\n".encode() + body
        async with self._places:
            line = await self._line()
            try:
                answer = line.ask()
                call.started = True  # the next thing to happen is the first byte: from here on nothing is certain
                if call.written is None:
                    line.transport.write(request)
                else:
                    await line.write_through(request)
                    await call.tell_written(call.written)
                said = await answer
            except BaseException:
                self._drop(line)  # or the answer to this call would be the next one's
                raise
            self._give_back(line, len(request))
        if isinstance(said, Exception):
            raise said
        return said

    async def close(self) -> None:
        """Let go of connections; a call still under way loses its own."""
        self._closed = True
        for line in self._open:
            line.transport.abort()
        self._places.release()  # whoever waits for a place hears of it, and lets the next one hear

    async def _line(self) -> Line:
        """Give a connection that nobody uses. Raises OSError or ValueError where there is none: nothing was sent."""
        now = asyncio.get_running_loop().time()
        while self._waiting and not self._closed:
            line = self._waiting.pop()
            if line.may_ask and now - line.waits_since <= WAIT_S:
                return line
            self._drop(line)
        if not self._closed:
            line = await self._server.connect()
            if self._closed:
                line.transport.abort()
            self._open.add(line)
            if not line.is_spent:  # as it is, too, where the client was closed meanwhile
                return line
            self._drop(line)
        raise ConnectionAbortedError("closed, or the server spoke before it was asked or hung up")

    def _give_back(self, line: Line, asked_bytes: int) -> None:
        # What TLS has handed on to the socket nobody tells: that might hold the rest of a request answered early.
        may_hold_more = self._server.has_tls and asked_bytes > AT_ONCE_BYTES
        if not self._keep or may_hold_more or not line.may_ask:
            self._drop(line)
            return
        line.waits_since = now = asyncio.get_running_loop().time()
        self._waiting.append(line)
        while now - self._waiting[0].waits_since > WAIT_S:
            self._drop(self._waiting.popleft())

    def _drop(self, line: Line) -> None:
        self._open.discard(line)
        line.transport.abort()


def _written(headers: Mapping[str, str]) -> str:
    for name, value in headers.items():
        if not value.isprintable():
            raise ValueError(f"the header {name} holds a control character")
    return "".join([f"{name}: {value}\r\n" for name, value in headers.items()])


class _Server:
    """Where connections lead."""

    def __init__(self, host: str, port: int, *, with_tls: bool) -> None:
        self._host = host
        self._port = port
        self._tls: ssl.SSLContext | None = None
        if with_tls:
            self._tls = ssl.create_default_context()
            self._tls.set_alpn_protocols(["http/1.1"])
        self._asked: asyncio.Future[Any] | None = None  # for the addresses; one asks, and the others hear it
        self._asked_at = 0.0

    @property
    def has_tls(self) -> bool:
        return self._tls is not None

    async def connect(self) -> Line:
        """Open one more. Raises OSError, or ValueError for a name that cannot be one."""
        loop = asyncio.get_running_loop()
        addresses = await self._find()
        try:
            reached = await aiohappyeyeballs.start_connection(
                addresses, happy_eyeballs_delay=OTHER_ADDRESS_AFTER_S, interleave=1, loop=loop
            )
        except RuntimeError as error:  # uvloop, of a socket that was closed under it
            raise ConnectionError(str(error)) from error
        if self._tls is None:
            return (await loop.create_connection(Line, sock=reached))[1]
        name = self._host.rstrip(".")
        return (await loop.create_connection(Line, sock=reached, ssl=self._tls, server_hostname=name))[1]

    async def _find(self) -> Sequence[Any]:
        now = asyncio.get_running_loop().time()
        if self._asked is None or (self._asked.done() and now - self._asked_at > ADDRESSES_S):
            self._asked = asyncio.ensure_future(self._ask())
            self._asked.add_done_callback(_retrieve)
            self._asked_at = now
        asked = self._asked
        try:
            return cast(Sequence[Any], await asyncio.shield(asked))
        except (OSError, ValueError):
            if self._asked is asked:
                self._asked = None  # whoever comes later asks again
            raise

    async def _ask(self) -> Sequence[Any]:
        return await asyncio.get_running_loop().getaddrinfo(
            self._host, self._port, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG
        )


def _retrieve(asked: asyncio.Future[Any]) -> None:
    """Look at an error that nobody may be left to hear of."""
    if not asked.cancelled():
        asked.exception()


class Line(asyncio.Protocol):
    """One connection: one question at a time, and what is said to it. httptools calls `on_…` with what it reads."""

    transport: asyncio.Transport
    waits_since: float = 0.0  # second of the loop's clock

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        # As aiohttp reads answers: what a server means is clear all the same.
        self._parser.set_dangerous_leniencies(
            lenient_headers=True, lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True
        )
        self._answer: asyncio.Future[Answer | Exception] | None = None  # while one is waited for
        self._taken: asyncio.Future[bool] | None = None  # while the kernel does not hold all that was written
        self._spent = False  # whatever it may still say, no question is left that it could belong to
        self._bytes = 0  # read since the question
        self._forget()

    def _forget(self) -> None:
        self._status = 0
        self._headers: dict[str, str] = {}
        self._body = b""

    @property
    def is_spent(self) -> bool:
        """Whether it is of no use any more: it has spoken unasked, or ends."""
        return self._spent or self.transport.is_closing()

    @property
    def may_ask(self) -> bool:
        """Whether one that was asked before may be asked again: what it says next will be the answer to that."""
        # The rest of a request that was answered early would begin the next one.
        return not self.is_spent and not self.transport.get_write_buffer_size()

    def ask(self) -> asyncio.Future[Answer | Exception]:
        """Take the next answer for that to what is written now. It comes as a value also where it is an error."""
        self._forget()
        self._bytes = 0
        self._answer = asyncio.get_running_loop().create_future()
        return self._answer

    async def write_through(self, data: bytes) -> None:
        """Write, and return when the kernel holds the last byte: a SIGKILL after that takes nothing back.

        Over TLS, when TLS has handed on the last byte: of a big request the socket may still hold some here. Raises
        ConnectionResetError where the connection is lost before.
        """
        self.transport.set_write_buffer_limits(high=0)  # so that `pause_writing` is called while any is left
        self.transport.write(data)
        taken = await self._taken if self._taken is not None else not self.transport.is_closing()
        if not taken:
            raise ConnectionResetError("the connection was lost while the request went out")
        if not self.transport.is_closing():  # uvloop's refuses to be told anything then
            self.transport.set_write_buffer_limits()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the way to write."""
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is none by its class

    def pause_writing(self) -> None:
        """Note that something is left to be written."""
        self._taken = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        """Say that nothing is."""
        self._end_of_writing(taken=True)

    def _end_of_writing(self, *, taken: bool) -> None:
        if self._taken is not None and not self._taken.done():
            self._taken.set_result(taken)
        self._taken = None

    def data_received(self, data: bytes) -> None:
        """Read on."""
        if self._answer is None:
            self._spent = True
            self.transport.abort()
            return
        self._bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._spent = True
        except httptools.HttpParserError as error:
            self._break_off(ValueError(f"the server's answer is not HTTP: {error}"))
        if self._bytes > 2 * ANSWER_BYTES_MAX:
            self._break_off(ValueError("the server's answer does not end"))

    def connection_lost(self, error: Exception | None) -> None:
        """End what is under way; a body that says nothing of its length ends here as it should."""
        self._end_of_writing(taken=False)
        if error is None and self._status >= 200 and self._has_no_length:
            self._say(self._body)
        self._break_off(ConnectionResetError("the server hung up"))

    def on_message_begin(self) -> None:
        """Keep what nobody asked for apart from the answer before it."""
        if self._answer is None:
            self._spent = True
            self._forget()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep the first of a name; what comes behind the body counts for nothing."""
        if not self._status:
            self._headers.setdefault(name.decode("latin-1").lower(), value.decode("latin-1").strip())

    def on_headers_complete(self) -> None:
        """Keep the status: from here on it is known, whatever becomes of the rest."""
        self._status = self._parser.get_status_code()

    def on_body(self, body: bytes) -> None:
        """Keep it, to a point."""
        self._body += body
        if len(self._body) > ANSWER_BYTES_MAX:
            self._break_off(ValueError("the server's answer does not end"))

    def on_message_complete(self) -> None:
        """Answer with it; what comes before the answer is none."""
        if self._status < 200 and self._status != 101:
            self._forget()
            return
        self._spent = self._spent or not self._parser.should_keep_alive()
        self._say(self._body)

    @property
    def _has_no_length(self) -> bool:
        return "content-length" not in self._headers and "chunked" not in self._headers.get("transfer-encoding", "")

    def _break_off(self, error: Exception) -> None:
        """Answer with the status alone, where it is known: it may be enough."""
        self._spent = True
        if self._status >= 200:
            self._say(None)
        elif self._answer is not None:
            self._end(error)

    def _say(self, body: bytes | None) -> None:
        encoding = self._headers.get("content-encoding")
        plain = body if encoding is None or body is None else _unpacked(body, encoding.lower())
        self._end(Answer(self._status, self._headers, plain))

    def _end(self, answer: Answer | Exception) -> None:
        if self._answer is not None and not self._answer.done():  # it may have been given up
            self._answer.set_result(answer)
        self._answer = None


def _unpacked(body: bytes, encoding: str) -> bytes | None:
    """An answer that was packed although we asked for none; None where it is not to be read, or too big."""
    if encoding in {"gzip", "x-gzip"}:
        form = zlib.MAX_WBITS | 16
    elif encoding == "deflate":  # zlib's format by RFC 9110, and without its head by what some servers do
        form = zlib.MAX_WBITS if body[:1] and body[0] & 15 == zlib.DEFLATED else -zlib.MAX_WBITS
    else:
        return body
    unpacking = zlib.decompressobj(form)
    try:
        plain = unpacking.decompress(body, ANSWER_BYTES_MAX)
    except zlib.error:
        return None
    return plain if unpacking.eof else None
