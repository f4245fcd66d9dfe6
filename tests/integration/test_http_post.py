"""Calls broken at every step: what surely did not go out is certain, the rest a doubt, no answer is another's."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import socket
import ssl
import struct
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

import pytest
import trustme

from providers import http_post
from providers.base import Accepted, Ambiguous, ConfigError, Family, Outcome, Provider, Rejected, RetryLater
from providers.mock_client import MockProvider
from tests.support.mock_server import CONTEXT, MAIL, a_provider, until

CERTAIN = RetryLater("connect_failed", answered=False)
CUT = Ambiguous("disconnected")
BIG = MAIL._replace(html="x" * 10_000_000)  # far more than both sides' socket buffers hold
SILENT_S = 1.2


def ok(message_id: str) -> bytes:
    body = b'{"id":"%s"}' % message_id.encode()
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


@dataclass
class Line:
    """One connection as the server sees it."""

    number: int
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    read: int = 0

    async def head(self) -> bytes:
        head = await self.reader.readuntil(b"\r\n\r\n")
        self.read += len(head)
        return head

    async def request(self) -> bytes:
        """Read one whole request; the head of it."""
        head = await self.head()
        [length] = [int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
        self.read += len(await self.reader.readexactly(length))
        return head

    async def say(self, *pieces: bytes) -> None:
        for piece in pieces:
            self.writer.write(piece)
            await self.writer.drain()

    async def gone(self) -> None:
        """Wait for the client to hang up."""
        while await self.reader.read(65_536):
            pass


Script = Callable[[Line], Awaitable[None]]


@dataclass
class Server:
    """What is listening, and everybody who came."""

    url: str = ""
    lines: list[Line] = field(default_factory=list)


@contextlib.asynccontextmanager
async def serving(script: Script, tls: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
    """A server that does to each connection what the script says, and then cuts it."""
    server = Server()
    handlers: list[asyncio.Task[None]] = []

    async def on_connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        handlers.append(task)
        line = Line(len(server.lines), reader, writer)
        server.lines.append(line)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await script(line)
        writer.transport.abort()

    here = socket.create_server(("127.0.0.1", 0))
    here.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)  # or the kernel might take a big body by itself
    listening = await asyncio.start_server(on_connect, sock=here, ssl=tls)
    async with listening:
        scheme = "http" if tls is None else "https"
        server.url = f"{scheme}://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        yield server
        await asyncio.gather(*handlers)


async def sent(provider: Provider, key: str = "k1") -> Outcome | None:
    return await provider.send(MAIL, key, CONTEXT)


@pytest.mark.parametrize("read", [1, 20, 100])
async def test_a_cut_while_the_head_goes_out_is_a_doubt(read: int) -> None:
    async def script(line: Line) -> None:
        await line.reader.readexactly(read)

    async with serving(script) as server, a_provider(server.url) as provider:
        assert await sent(provider) == CUT


@pytest.mark.parametrize("told", [False, True])
@pytest.mark.parametrize("read", [1, 100_000, 2_000_000])
async def test_a_cut_while_the_body_goes_out_is_a_doubt(read: int, told: bool) -> None:
    async def script(line: Line) -> None:
        await line.head()
        await line.reader.readexactly(read)

    async def never() -> None:
        raise AssertionError("not all of it was written")

    async with serving(script) as server, a_provider(server.url) as provider:
        assert await provider.send(BIG, "k1", CONTEXT, written=never if told else None) == CUT


async def test_a_cut_before_anything_was_read_is_never_called_certain_once_bytes_may_have_gone() -> None:
    async def script(line: Line) -> None:
        pass  # accepted, and cut at once: whether the request was on its way by then is a matter of luck

    async with serving(script) as server, a_provider(server.url) as provider:
        assert {await sent(provider) for _ in range(20)} <= {CUT, CERTAIN}


async def test_a_cut_after_the_whole_request_is_a_doubt() -> None:
    async def script(line: Line) -> None:
        await line.request()

    async with serving(script) as server, a_provider(server.url) as provider:
        assert await sent(provider) == CUT


async def test_a_cut_while_the_caller_is_told_that_all_was_written_is_a_doubt() -> None:
    async def script(line: Line) -> None:
        await line.request()

    async with serving(script) as server, a_provider(server.url) as provider:

        async def written() -> None:
            async def cut() -> bool:
                return server.lines[0].writer.is_closing()

            await until(cut)

        assert await provider.send(MAIL, "k1", CONTEXT, written=written) == CUT


async def test_an_answer_that_comes_while_the_caller_is_told_is_kept() -> None:
    said = asyncio.Event()

    async def script(line: Line) -> None:
        await line.request()
        await line.say(ok("m"))
        line.writer.write_eof()
        said.set()
        await line.gone()

    async def written() -> None:
        await said.wait()
        await _all_heard()

    async with serving(script) as server, a_provider(server.url) as provider:
        assert await provider.send(MAIL, "k1", CONTEXT, written=written) == Accepted("m")


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (b'HTTP/1.1 413 No\r\nContent-Length: 21\r\n\r\n{"name":"too_large"} ', Rejected("too_large")),
        (ok("early"), Accepted("early")),
    ],
)
async def test_an_answer_before_the_request_is_complete_counts_but_the_connection_is_spent(
    answer: bytes, expected: Outcome
) -> None:
    async def script(line: Line) -> None:
        if line.number == 0:
            await line.head()
            await line.say(answer)
            await line.gone()
        else:
            await line.request()
            await line.say(ok("second"))
            await line.gone()

    async with serving(script) as server, a_provider(server.url, concurrency=1) as provider:
        assert await provider.send(BIG, "k1", CONTEXT) == expected
        assert await sent(provider, "k2") == Accepted("second")


async def test_a_second_answer_in_one_breath_is_nobodys() -> None:
    async def script(line: Line) -> None:
        await line.request()
        await line.say(ok(f"own-{line.number}") + ok("stale"))
        await line.gone()

    async with serving(script) as server, a_provider(server.url, concurrency=1) as provider:
        assert [await sent(provider), await sent(provider)] == [Accepted("own-0"), Accepted("own-1")]


@pytest.mark.parametrize("stray", [ok("stale"), b"HTTP/1.1 408 Slow\r\nContent-Length: 0\r\n\r\n"])
async def test_what_a_waiting_connection_says_is_not_the_next_calls_answer(stray: bytes) -> None:
    ask, asked = asyncio.Event(), asyncio.Event()

    async def script(line: Line) -> None:
        await line.request()
        await line.say(ok(f"own-{line.number}"))
        if line.number == 0:
            await ask.wait()
            await line.say(stray)
            asked.set()
        await line.gone()

    async with serving(script) as server, a_provider(server.url, concurrency=1) as provider:
        assert await sent(provider) == Accepted("own-0")
        ask.set()
        await asked.wait()
        await _all_heard()
        assert await sent(provider) == Accepted("own-1")
        assert len(server.lines) == 2


async def _all_heard() -> None:
    """What was written to a loopback socket is readable at once: after a few turns of the loop it has been read."""
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.mark.parametrize("family", [Family.REJECT, Family.NONE])
async def test_a_connection_closed_while_it_waited_is_not_used(family: Family) -> None:
    async def script(line: Line) -> None:
        await line.request()
        await line.say(ok(f"own-{line.number}"))

    async with serving(script) as server, a_provider(server.url, family, concurrency=1) as provider:
        for number in range(3):
            assert await sent(provider) == Accepted(f"own-{number}")
            await _all_heard()


async def test_a_connection_is_kept_where_keys_make_a_doubt_harmless() -> None:
    async def script(line: Line) -> None:
        while True:
            await line.request()
            await line.say(ok(f"on-{line.number}"))

    async with serving(script) as server, a_provider(server.url, concurrency=1) as provider:
        assert {await sent(provider) for _ in range(5)} == {Accepted("on-0")}


async def test_without_keys_the_server_hears_that_the_connection_ends() -> None:
    async def script(line: Line) -> None:
        assert b"connection: close\r\n" in (await line.request()).lower()
        await line.say(ok("m"))
        await line.gone()

    async with serving(script) as server, a_provider(server.url, Family.NONE) as provider:
        assert await sent(provider) == Accepted("m")


@pytest.mark.parametrize("mine", [OSError("mine"), TimeoutError("mine"), ValueError("mine"), LookupError("mine")])
async def test_an_error_of_the_callback_is_never_taken_for_the_networks(mine: Exception) -> None:
    async def script(line: Line) -> None:
        await line.request()
        await line.say(ok("m"))
        await line.gone()

    async def written() -> None:
        raise mine

    async with serving(script) as server, a_provider(server.url) as provider:
        with pytest.raises(type(mine), match="mine"):
            await provider.send(MAIL, "k1", CONTEXT, written=written)


@pytest.mark.parametrize("give_up", ["time-out", "cancel"])
@pytest.mark.parametrize("said", [b"", ok("late")[:20], ok("late")[:-3]])
async def test_the_answer_to_a_call_given_up_is_not_the_next_calls(give_up: str, said: bytes) -> None:
    asked = asyncio.Event()

    async def script(line: Line) -> None:
        await line.request()
        if line.number == 0:
            await line.say(said)
            asked.set()
            await line.gone()
        await line.say(ok(f"own-{line.number}"))
        await line.gone()

    timeout_s = SILENT_S if give_up == "time-out" else 60
    async with serving(script) as server, a_provider(server.url, timeout_s=timeout_s, concurrency=1) as provider:
        call = asyncio.create_task(sent(provider))
        await asked.wait()
        if give_up == "cancel":
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
        else:
            assert await call == Ambiguous("timeout")
        assert isinstance(provider, MockProvider)
        provider._timeout_s = 60  # on a busy machine the second call may take its time
        assert await sent(provider) == Accepted("own-1")


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 100 Continue\r\n\r\n" + ok("m"),
        b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + ok("m"),
        b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{"id"\r\n5\r\n:"m"}\r\n0\r\n\r\n',
        b'HTTP/1.0 200 OK\r\n\r\n{"id":"m"}',
        b'HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 10\r\n\r\n{"id":"m"}',
    ],
)
async def test_an_answer_in_any_dress_and_in_any_pieces_is_read(answer: bytes) -> None:
    async def script(line: Line) -> None:
        await line.request()
        await line.say(*([answer] if line.number == 0 else (bytes([byte]) for byte in answer)))
        line.writer.write_eof()
        await line.gone()

    async with serving(script) as server, a_provider(server.url, Family.NONE) as provider:
        assert [await sent(provider), await sent(provider)] == [Accepted("m")] * 2


async def test_an_answer_that_cannot_be_unpacked_is_unreadable() -> None:
    async def script(line: Line) -> None:
        await line.request()
        await line.say(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 10\r\n\r\n", b'{"id":"m"}')
        await line.gone()

    async with serving(script) as server, a_provider(server.url) as provider:
        assert await sent(provider) == Ambiguous("unreadable_answer")


async def test_an_answer_that_unpacks_to_too_much_is_unreadable() -> None:
    packed = gzip.compress(b'{"id":"m"' + b" " * 50_000_000 + b"}")
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed)

    async def script(line: Line) -> None:
        assert b"accept-encoding: identity" in (await line.request()).lower()
        await line.say(head, packed)
        await line.gone()

    async with serving(script) as server, a_provider(server.url) as provider:
        assert await sent(provider) == Ambiguous("unreadable_answer")


MADE = b'{"id":"m"}'


@pytest.mark.parametrize(
    ("encoding", "packed", "expected"),
    [
        (b"gzip ", gzip.compress(MADE, mtime=0), Accepted("m")),
        (b"X-GZIP", gzip.compress(MADE, mtime=0), Accepted("m")),
        (b"deflate", zlib.compress(MADE), Accepted("m")),
        (b"deflate", zlib.compress(MADE)[2:-4], Accepted("m")),
        (b"identity", MADE, Accepted("m")),
        (b"utf-8", MADE, Accepted("m")),
        (b"gzip", gzip.compress(MADE, mtime=0)[:-1], Ambiguous("unreadable_answer")),
        (b"deflate", b"", Ambiguous("unreadable_answer")),
    ],
)
async def test_an_answer_that_was_packed_unasked_is_read(encoding: bytes, packed: bytes, expected: Outcome) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: %s\r\nContent-Length: %d\r\n\r\n" % (encoding, len(packed))

    async def script(line: Line) -> None:
        await line.request()
        await line.say(head, packed)
        await line.gone()

    async with serving(script) as server, a_provider(server.url) as provider:
        assert await sent(provider) == expected


@pytest.mark.parametrize(
    "rest",
    [
        b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n5\r\nab",
        b"Content-Length: 100000\r\n\r\n" + b"x" * 100_000,
        b"Content-Length: 9\r\n\r\nx",
        b"\r\n" + b"x" * 100_000,
    ],
)
async def test_where_the_rest_of_an_answer_is_broken_its_status_counts_all_the_same(rest: bytes) -> None:
    async def script(line: Line) -> None:
        await line.request()
        await line.say(b"HTTP/1.1 429 Slow\r\n" + rest)
        line.writer.write_eof()
        await line.gone()

    async with serving(script) as server, a_provider(server.url) as provider:
        assert await sent(provider) == RetryLater("rate_limited")


@pytest.mark.parametrize("head", [b"SMTP ready\r\n", b"HTTP/1.1 200 OK\r\nX: " + b"x" * 200_000])
async def test_what_is_no_answer_at_all_is_unreadable(head: bytes) -> None:
    async def script(line: Line) -> None:
        await line.request()
        await line.say(head)
        await line.gone()

    async with serving(script) as server, a_provider(server.url) as provider:
        assert await sent(provider) == Ambiguous("unreadable_answer")


async def test_what_comes_behind_a_body_counts_for_nothing_and_has_an_end() -> None:
    chunks = b"Transfer-Encoding: chunked\r\n\r\n0\r\n"

    async def script(line: Line) -> None:
        await line.request()
        if line.number == 0:
            await line.say(b"HTTP/1.1 429 Slow\r\n" + chunks + b"Retry-After: 77\r\n\r\n")
            await line.gone()
        await line.say(b"HTTP/1.1 429 Slow\r\n" + chunks)
        while True:
            await line.say(b"X: " + b"x" * 10_000 + b"\r\n")

    async with serving(script) as server, a_provider(server.url, Family.NONE) as provider:
        assert [await sent(provider) for _ in range(2)] == [RetryLater("rate_limited")] * 2


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 099 x\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n",
    ],
)
async def test_where_no_answer_came_to_its_status_the_call_is_in_doubt(answer: bytes) -> None:
    async def script(line: Line) -> None:
        await line.request()
        await line.say(answer)
        line.writer.write_eof()
        await line.gone()

    async with serving(script) as server, a_provider(server.url) as provider:
        assert await sent(provider) == CUT


async def test_a_body_that_says_nothing_of_its_length_and_is_cut_off_is_not_whole() -> None:
    async def script(line: Line) -> None:
        await line.request()
        await line.say(b'HTTP/1.1 200 OK\r\n\r\n{"id":"m"}')
        await _all_heard()
        line.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    async with serving(script) as server, a_provider(server.url) as provider:
        assert await sent(provider) == Ambiguous("unreadable_answer")


async def test_an_interim_answers_headers_are_not_the_answers() -> None:
    async def script(line: Line) -> None:
        await line.request()
        await line.say(b"HTTP/1.1 103 Early\r\nRetry-After: 77\r\n\r\nHTTP/1.1 429 Slow\r\nContent-Length: 0\r\n\r\n")
        await line.gone()

    async with serving(script) as server, a_provider(server.url) as provider:
        assert await sent(provider) == RetryLater("rate_limited")


async def test_after_a_protocol_change_the_connection_is_not_used() -> None:
    async def script(line: Line) -> None:
        await line.request()
        upgrade = b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"
        await line.say(upgrade if line.number == 0 else ok(f"own-{line.number}"))
        await line.gone()

    async with serving(script) as server, a_provider(server.url, concurrency=1) as provider:
        assert [await sent(provider) for _ in range(2)] == [ConfigError("http_101"), Accepted("own-1")]


async def test_a_second_answers_headers_are_not_the_firsts() -> None:
    slow = b"HTTP/1.1 429 Slow\r\nContent-Length: 0\r\n"

    async def script(line: Line) -> None:
        await line.request()
        await line.say(slow + b"\r\n" + slow + b"Retry-After: 77\r\n\r\n")
        await line.gone()

    async with serving(script) as server, a_provider(server.url) as provider:
        assert await sent(provider) == RetryLater("rate_limited")


async def test_a_connection_that_waited_too_long_is_not_used() -> None:
    async def script(line: Line) -> None:
        while True:
            await line.request()
            await line.say(ok(f"on-{line.number}"))

    async with serving(script) as server, a_provider(server.url, concurrency=1) as provider:
        assert [await sent(provider) for _ in range(2)] == [Accepted("on-0")] * 2
        assert isinstance(provider, MockProvider)
        [waiting] = provider._poster._waiting
        waiting.waits_since -= http_post.WAIT_S + 1
        assert [await sent(provider) for _ in range(2)] == [Accepted("on-1")] * 2


async def test_a_connection_that_just_ended_is_not_used() -> None:
    """Its end was read, but not yet told."""

    async def script(line: Line) -> None:
        await line.request()
        await line.say(ok(f"own-{line.number}"))
        await line.gone()

    async with serving(script) as server, a_provider(server.url, concurrency=1) as provider:
        assert await sent(provider) == Accepted("own-0")
        assert isinstance(provider, MockProvider)
        provider._poster._waiting[0].transport.close()
        assert await sent(provider) == Accepted("own-1")


@pytest.mark.parametrize("greeting", [ok("stale"), b"220 mails.example ESMTP\r\n"])
async def test_a_server_that_speaks_first_is_asked_nothing(greeting: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    connect = http_post._Server.connect

    async def connect_and_read(self: http_post._Server) -> http_post.Line:
        line = await connect(self)

        async def spoken() -> bool:
            return line.is_spent

        await until(spoken)
        return line

    async def script(line: Line) -> None:
        await line.say(greeting)
        assert await line.reader.read() == b""

    monkeypatch.setattr(http_post._Server, "connect", connect_and_read)
    async with serving(script) as server, a_provider(server.url) as provider:
        assert await sent(provider) == CERTAIN


async def test_one_asks_for_an_address_and_the_others_hear_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = 0

    async def ask(self: http_post._Server) -> list[object]:
        nonlocal asked
        asked += 1
        await asyncio.sleep(0)
        if asked == 1:
            raise socket.gaierror("away")
        return await asyncio.get_running_loop().getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)

    async def script(line: Line) -> None:
        await line.request()
        await line.say(ok("m"))
        await line.gone()

    monkeypatch.setattr(http_post._Server, "_ask", ask)
    async with serving(script) as server, a_provider(server.url, Family.NONE, concurrency=5) as provider:
        assert await asyncio.gather(*(sent(provider) for _ in range(5))) == [CERTAIN] * 5
        assert asked == 1
        assert await asyncio.gather(*(sent(provider) for _ in range(5))) == [Accepted("m")] * 5
        assert await sent(provider) == Accepted("m")
        assert asked == 2
        assert isinstance(provider, MockProvider)
        provider._poster._server._asked_at -= http_post.ADDRESSES_S + 1
        assert await sent(provider) == Accepted("m")
        assert asked == 3


async def test_closing_ends_calls_that_wait_while_another_connects(monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = asyncio.Event()

    async def ask(_: http_post._Server) -> list[object]:
        await go_on.wait()
        raise socket.gaierror("away")

    monkeypatch.setattr(http_post._Server, "_ask", ask)
    async with a_provider("http://mails.example", timeout_s=60, concurrency=1) as provider:
        calls = [asyncio.create_task(sent(provider)) for _ in range(3)]
        await asyncio.sleep(0)
        await provider.close()
        assert await asyncio.wait_for(asyncio.gather(*calls[1:]), 10) == [CERTAIN] * 2
        go_on.set()
        assert await calls[0] == CERTAIN


async def test_over_tls_what_may_still_be_under_way_is_followed_by_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """TLS keeps from us what the socket has not taken: after a big request answered early, a new connection."""
    authority = trustme.CA()
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(tls)

    async def script(line: Line) -> None:
        if line.number == 0:
            await line.head()
        else:
            await line.request()
        await line.say(ok(f"own-{line.number}"))
        await line.gone()

    async with serving(script, tls) as server:
        with authority.cert_pem.tempfile() as trusted:
            monkeypatch.setenv("SSL_CERT_FILE", trusted)
            async with a_provider(server.url, concurrency=1) as provider:
                assert await provider.send(BIG, "k1", CONTEXT) == Accepted("own-0")
                assert await sent(provider, "k2") == Accepted("own-1")


async def test_over_tls_a_server_is_who_its_name_says(monkeypatch: pytest.MonkeyPatch) -> None:
    authority = trustme.CA()
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("mails.example").configure_cert(tls)
    names: list[str | None] = []
    tls.sni_callback = lambda _socket, name, _context: names.append(name)

    async def script(line: Line) -> None:
        await line.request()
        await line.say(ok("m"))
        await line.gone()

    async with serving(script, tls) as server:
        port = int(server.url.rpartition(":")[2])
        here = await asyncio.get_running_loop().getaddrinfo("127.0.0.1", port, type=socket.SOCK_STREAM)

        async def find(_: http_post._Server) -> object:
            return here

        monkeypatch.setattr(http_post._Server, "_find", find)
        with authority.cert_pem.tempfile() as trusted:
            monkeypatch.setenv("SSL_CERT_FILE", trusted)
            for name, expected in (
                ("mails.example", Accepted("m")),
                ("mails.example.", Accepted("m")),
                ("other.example", CERTAIN),
            ):
                async with a_provider(f"https://{name}:{port}") as provider:
                    assert await sent(provider) == expected
    assert names == ["mails.example", "mails.example", "other.example"]


async def test_a_connection_whose_server_says_it_will_hang_up_is_not_used() -> None:
    async def script(line: Line) -> None:
        await line.request()
        await line.say(ok(f"own-{line.number}").replace(b"OK\r\n", b"OK\r\nConnection: close\r\n"))
        await line.gone()

    async with serving(script) as server, a_provider(server.url, concurrency=1) as provider:
        assert [await sent(provider) for _ in range(2)] == [Accepted("own-0"), Accepted("own-1")]


async def test_a_client_closed_while_it_connects_sends_nothing() -> None:
    async def script(line: Line) -> None:
        assert await line.reader.read() == b""

    async with serving(script) as server, a_provider(server.url) as provider:
        call = asyncio.create_task(sent(provider))
        await asyncio.sleep(0)
        await provider.close()
        assert await call == CERTAIN


async def test_never_more_connections_than_calls_at_once() -> None:
    async def script(line: Line) -> None:
        while True:
            await line.request()
            await line.say(ok("m"))

    async with serving(script) as server, a_provider(server.url, concurrency=3) as provider:
        assert set(await asyncio.gather(*(sent(provider) for _ in range(20)))) == {Accepted("m")}
        assert len(server.lines) == 3


async def test_a_name_with_an_address_that_refuses_is_reached_at_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    async def script(line: Line) -> None:
        await line.request()
        await line.say(ok("m"))
        await line.gone()

    loop = asyncio.get_running_loop()
    async with serving(script) as server:
        port = int(server.url.rpartition(":")[2])
        addresses = await loop.getaddrinfo("127.0.0.2", port, type=socket.SOCK_STREAM)
        addresses += await loop.getaddrinfo("127.0.0.1", port, type=socket.SOCK_STREAM)

        async def known(_: object) -> object:
            return addresses

        monkeypatch.setattr(http_post._Server, "_find", known)
        async with a_provider(f"http://mails.example:{port}") as provider:
            assert await sent(provider) == Accepted("m")


async def test_a_protocol_change_is_no_answer_of_ours() -> None:
    async def script(line: Line) -> None:
        await line.request()
        await line.say(b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n")
        await line.gone()

    async with serving(script) as server, a_provider(server.url, timeout_s=SILENT_S) as provider:
        assert await sent(provider) == ConfigError("http_101")


async def test_a_header_that_could_start_another_line_is_never_sent() -> None:
    async def script(line: Line) -> None:
        await line.gone()

    async with serving(script) as server, a_provider(server.url) as provider:
        for key in ("k\r\nX-Else: 1", "k\n", "k\0", "k\x7f"):
            assert await sent(provider, key) == CERTAIN
    assert server.lines == []


async def test_over_tls_a_call_arrives_and_a_stranger_is_certain(monkeypatch: pytest.MonkeyPatch) -> None:
    authority = trustme.CA()
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(tls)

    async def script(line: Line) -> None:
        await line.request()
        await line.say(ok("m"))
        await line.gone()

    async with serving(script, tls) as server:
        async with a_provider(server.url) as provider:
            assert await sent(provider) == CERTAIN
        assert server.lines == []
        with authority.cert_pem.tempfile() as trusted:
            monkeypatch.setenv("SSL_CERT_FILE", trusted)
            async with a_provider(server.url) as provider:
                assert await sent(provider) == Accepted("m")


async def test_closing_ends_a_call_that_waits_for_a_connection_and_it_is_certain() -> None:
    asked = asyncio.Event()

    async def script(line: Line) -> None:
        await line.request()
        asked.set()
        await line.gone()

    async with serving(script) as server, a_provider(server.url, concurrency=1) as provider:
        first = asyncio.create_task(sent(provider))
        await asked.wait()
        second = asyncio.create_task(sent(provider, "k2"))
        await asyncio.sleep(0)
        await provider.close()
        assert await second == CERTAIN
        assert await first == CUT
    assert len(server.lines) == 1


async def test_a_client_closed_while_it_asked_leave_sends_nothing() -> None:
    async def script(line: Line) -> None:
        await line.gone()

    async with serving(script) as server, a_provider(server.url) as provider:

        async def hand_over() -> bool:
            await provider.close()
            return True

        assert await provider.send(MAIL, "k1", CONTEXT, hand_over) == CERTAIN
    assert server.lines == []


@pytest.mark.parametrize("path", ["", "/", "/api/v1", "/api/v1/"])
async def test_the_servers_address_may_have_a_path(path: str) -> None:
    heads: list[bytes] = []

    async def script(line: Line) -> None:
        heads.append(await line.request())
        await line.say(ok("m"))
        await line.gone()

    async with serving(script) as server, a_provider(server.url + path) as provider:
        assert await sent(provider) == Accepted("m")
    host = server.url.removeprefix("http://").encode()
    assert heads[0].startswith(b"POST %s/emails HTTP/1.1\r\nHost: %s\r\n" % (path.rstrip("/").encode(), host))
