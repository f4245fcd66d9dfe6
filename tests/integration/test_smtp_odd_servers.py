"""Mail servers that speak out of turn or out of form: whatever they say, no verdict is made up."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import trustme

from providers.base import Accepted, Ambiguous, Outcome, Rejected, RetryLater
from providers.mail_server import MailServer
from providers.smtp import SmtpProvider
from tests.support.mock_server import CONTEXT, MAIL
from tests.support.stack import until


@dataclass
class Odd:
    """A server that is good up to DATA. `taken`: mails whose dot it has read."""

    at_data: Callable[[Odd, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
    taken: int = 0
    sessions: int = 0
    port: int = 0
    replies: dict[str, bytes] = field(default_factory=dict)
    tasks: set[asyncio.Task[Any]] = field(default_factory=set)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.sessions += 1
        self.tasks.add(asyncio.current_task())
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            writer.write(b"220 odd\r\n")
            while True:
                word = (await reader.readuntil(b"\r\n")).split()[0].decode().upper()
                if word == "DATA":
                    await self.at_data(self, reader, writer)
                elif (reply := self.replies.get(word, b"250 2.0.0 Ok\r\n")) != b"":
                    writer.write(reply)
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    async def read_mail(self, reader: asyncio.StreamReader) -> None:
        await reader.readuntil(b"\r\n.\r\n")
        self.taken += 1


@contextlib.asynccontextmanager
async def odd(
    at_data: Any, timeout_s: float = 2, folder: Path | None = None, **replies: bytes
) -> AsyncIterator[tuple[Odd, SmtpProvider]]:
    """With a `folder`, for its certificate, it speaks TLS."""
    server, context = Odd(at_data, replies=replies), None
    if folder is not None:
        authority, context = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("localhost").configure_cert(context)
        authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0, ssl=context)
    server.port = listening.sockets[0].getsockname()[1]
    where = MailServer("localhost", server.port, "tls" if folder else "none", folder and folder / "ca.pem")
    provider = SmtpProvider(where, timeout_s=timeout_s)
    try:
        yield server, provider
    finally:
        await provider.close()
        listening.close()
        await listening.wait_closed()
        async with asyncio.timeout(5):  # every client has left
            await asyncio.gather(*server.tasks)


async def slow_begin() -> bool:
    await asyncio.sleep(0.1)  # time for what is on its way to arrive
    return True


@pytest.mark.parametrize("early", [b"451 4.3.0 x", b"250 2.0.0 x", b"550 5.1.1 x", b"354 x"])
@pytest.mark.parametrize("together", [True, False])
async def test_a_reply_before_the_dot_is_no_verdict_and_nothing_is_handed_over(early: bytes, together: bool) -> None:
    async def at_data(server: Odd, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"354 go\r\n" + (early + b"\r\n" if together else b""))
        if not together:
            await reader.readuntil(b"\r\n")
            writer.write(early + b"\r\n")
        await server.read_mail(reader)
        writer.write(b"250 2.0.0 Ok: queued as LATE\r\n")

    async with odd(at_data) as (server, provider):
        outcome = await provider.send(MAIL, "k1", CONTEXT, slow_begin)
        assert isinstance(outcome, Rejected if early.startswith(b"550") else RetryLater)
        assert server.taken == 0


@pytest.mark.parametrize("early", [b"552 5.3.4 too big", b"421 4.3.2 closing"])
async def test_a_refusal_during_the_content_is_certain_also_when_nothing_follows(early: bytes) -> None:
    async def at_data(_server: Odd, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"354 go\r\n")
        await reader.readuntil(b"\r\n")
        writer.write(early + b"\r\n")
        await reader.read()

    async with odd(at_data) as (_, provider):
        outcome = await provider.send(MAIL, "k1", CONTEXT, slow_begin)
        assert isinstance(outcome, Rejected if early.startswith(b"552") else RetryLater)


@pytest.mark.parametrize(
    ("verdict", "outcome"),
    [
        (b"250 2.0.0 Ok: queued as A1\r\n", Accepted("A1")),
        (b"250-2.0.0 Ok\r\n250 2.0.0 Ok: queued as A2\r\n", Accepted("A2")),
        (b"250\r\n", Accepted(None)),
        (b"250 2.0.0 Ok: queued as A3\n", Accepted("A3")),
        (b"451-a\r\n250 b\r\n", Ambiguous("unreadable_answer")),
        (b"250-a\r\n451 b\r\n", Ambiguous("unreadable_answer")),
        (b"2500 Ok\r\n", Ambiguous("unreadable_answer")),
        (b"OK\r\n", Ambiguous("unreadable_answer")),
        (b"\r\n250 Ok\r\n", Ambiguous("unreadable_answer")),
        (b"250-" + b"x" * 70_000, Ambiguous("unreadable_answer")),
        (b"354 go on\r\n", Ambiguous("smtp_dot_354")),
        (b"\xff\xfe\r\n", Ambiguous("unreadable_answer")),
        (b"", Ambiguous("disconnected")),
        (b"250 Ok", Ambiguous("disconnected")),
    ],
)
async def test_a_verdict_is_read_strictly(verdict: bytes, outcome: Outcome) -> None:
    async def at_data(server: Odd, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"354 go\r\n")
        await server.read_mail(reader)
        writer.write(verdict)
        writer.close()

    async with odd(at_data) as (server, provider):
        assert await provider.send(MAIL, "k1", CONTEXT) == outcome
        assert server.taken == 1


async def test_a_verdict_may_come_byte_by_byte() -> None:
    async def at_data(server: Odd, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"354 go\r\n")
        await server.read_mail(reader)
        for byte in b"250-2.0.0 Ok\r\n250 2.0.0 Ok: queued as DRIP\r\n":
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0.001)

    async with odd(at_data) as (server, provider):
        assert await provider.send(MAIL, "k1", CONTEXT) == Accepted("DRIP")
        assert await provider.send(MAIL, "k2", CONTEXT) == Accepted("DRIP")
        assert (server.taken, server.sessions) == (2, 1)


@pytest.mark.parametrize("verdict", [b"250 Ok\r\n250 again\r\n", b"354 what\r\n"])
async def test_a_connection_that_is_out_of_step_is_used_no_more(verdict: bytes) -> None:
    async def at_data(server: Odd, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"354 go\r\n")
        await server.read_mail(reader)
        writer.write(verdict)

    async with odd(at_data) as (server, provider):
        first = await provider.send(MAIL, "k1", CONTEXT)
        assert await provider.send(MAIL, "k2", CONTEXT) == first
        assert (server.taken, server.sessions) == (2, 2)


async def test_an_answer_that_came_while_we_stood_still_counts() -> None:
    """Answer and alarm are found in one moment, as after a pause of the whole machine."""

    async def at_data(server: Odd, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"354 go\r\n")
        await server.read_mail(reader)
        writer.write(b"250 2.0.0 Ok: queued as STILL\r\n")
        await writer.drain()
        time.sleep(1.8)  # noqa: ASYNC251 - the whole loop stands still, ours and the server's

    async with odd(at_data, timeout_s=1.2) as (_, provider):
        assert await provider.send(MAIL, "k1", CONTEXT) == Accepted("STILL")


async def test_a_recipient_refused_stays_refused_when_the_server_then_hangs() -> None:
    async def never(*_: Any) -> None: ...

    async with odd(never, RCPT=b"550 5.1.1 nobody\r\n", RSET=b"") as (_, provider):
        assert await provider.send(MAIL, "k1", CONTEXT) == Rejected("smtp_rcpt_550_5.1.1")


@pytest.fixture(params=["none", "tls"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    """Where the certificate goes, for a server that speaks TLS."""
    return tmp_path if request.param == "tls" else None


@pytest.mark.parametrize("pieces", [(b"354-go\r\n", b"354 on\r\n"), (b"354", b" go ahead\r\n"), (b"354 go\r\n",)])
async def test_an_invitation_may_come_in_pieces(folder: Path | None, pieces: tuple[bytes, ...]) -> None:
    async def at_data(server: Odd, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.02)
        await server.read_mail(reader)
        writer.write(b"250 2.0.0 Ok: queued as PIECES\r\n")

    async with odd(at_data, folder=folder) as (server, provider):
        assert await provider.send(MAIL, "k1", CONTEXT) == Accepted("PIECES")
        assert await provider.send(MAIL, "k2", CONTEXT) == Accepted("PIECES")
        assert (server.taken, server.sessions) == (2, 1)


async def test_written_is_told_before_the_answer(folder: Path | None) -> None:
    told = asyncio.Event()

    async def written() -> None:
        told.set()

    async def at_data(server: Odd, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"354 go\r\n")
        await server.read_mail(reader)
        await told.wait()
        writer.write(b"250 Ok\r\n")

    async with odd(at_data, folder=folder) as (_, provider):
        assert await provider.send(MAIL, "k1", CONTEXT, written=written) == Accepted(None)


async def test_a_server_that_stops_reading_is_asked_for_nothing_more(folder: Path | None) -> None:
    """Most of the mail is still ours: nothing is begun, and nothing is in doubt."""
    begun: list[bool] = []

    async def begin() -> bool:
        begun.append(True)
        return True

    async def at_data(_server: Odd, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        transport = writer.transport
        transport.pause_reading()
        writer.write(b"354 go\r\n")
        await asyncio.sleep(1.5)
        transport.resume_reading()
        await reader.read()

    async with odd(at_data, timeout_s=1, folder=folder) as (_, provider):
        big = MAIL._replace(html="<p>" + "y\n" * 4_000_000)
        assert await provider.send(big, "k1", CONTEXT, begin) == RetryLater("timeout_at_data", answered=False)
        assert begun == []


async def test_a_large_mail_that_is_refused_while_it_is_told_is_refused(folder: Path | None) -> None:
    async def at_data(_server: Odd, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"354 go\r\n")
        await reader.readuntil(b"\r\n")
        writer.write(b"552 5.3.4 too big\r\n")
        await reader.read()

    async with odd(at_data, folder=folder) as (_, provider):
        big = MAIL._replace(html="<p>" + "y\n" * 1_000_000)
        assert await provider.send(big, "k1", CONTEXT, slow_begin) == Rejected("smtp_data_552_5.3.4")


async def test_half_a_reply_before_the_dot_holds_nobody_up() -> None:
    sessions: list[int] = []

    async def at_data(server: Odd, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sessions.append(1)
        writer.write(b"354 go\r\n" + (b"4" if len(sessions) == 1 else b""))
        await server.read_mail(reader)
        writer.write(b"250 Ok\r\n")

    async with odd(at_data) as (_, provider):
        outcomes = await asyncio.gather(*(provider.send(MAIL, f"k{n}", CONTEXT, slow_begin) for n in range(4)))
        assert outcomes.count(Accepted(None)) == 3
        assert RetryLater("unreadable_answer_at_data", answered=False) in outcomes


async def test_replies_that_were_out_of_step_before_data_send_nothing() -> None:
    async def at_data(server: Odd, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"354 go\r\n")
        await server.read_mail(reader)
        writer.write(b"250 Ok\r\n")

    async with odd(at_data, RCPT=b"250 2.1.5 Ok\r\n550 5.1.1 stray\r\n") as (server, provider):
        assert await provider.send(MAIL, "k1", CONTEXT) == RetryLater("disconnected_at_data", answered=False)
        assert server.taken == 0


async def test_a_begin_that_hangs_is_not_the_servers_fault() -> None:
    async def at_data(server: Odd, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"354 go\r\n")
        await server.read_mail(reader)

    async def hangs() -> bool:
        await asyncio.sleep(60)
        return True

    async with odd(at_data, timeout_s=1.2) as (server, provider):
        outcomes = await asyncio.gather(*(provider.send(MAIL, f"k{n}", CONTEXT, hangs) for n in range(3)))
        assert (outcomes, server.taken) == ([None] * 3, 0)


async def test_a_verdict_counts_also_when_the_connection_ends_while_it_is_told(folder: Path | None) -> None:
    async def written() -> None:
        await asyncio.sleep(0.3)  # time for the verdict and the end to arrive

    async def at_data(server: Odd, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"354 go\r\n")
        await server.read_mail(reader)
        writer.write(b"250 2.0.0 Ok: queued as BYE\r\n")
        raise ConnectionError

    async with odd(at_data, folder=folder) as (_, provider):
        assert await provider.send(MAIL, "k1", CONTEXT, written=written) == Accepted("BYE")


async def test_a_connection_is_let_go_of_although_the_server_takes_nothing(folder: Path | None) -> None:
    """What still waits to be written is no reason to keep it."""
    ports: list[int] = []
    over = asyncio.Event()

    async def at_data(_server: Odd, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ports.append(writer.get_extra_info("peername")[1])
        writer.transport.pause_reading()
        writer.write(b"354 go\r\n")
        await over.wait()
        raise ConnectionError

    def is_open(port: int) -> bool:
        """Whether the kernel holds the client's end for established."""
        rows = [line.split() for line in Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]]
        return any(row[1].endswith(f":{port:04X}") and row[3] == "01" for row in rows)

    async with odd(at_data, timeout_s=1, folder=folder) as (_, provider):
        try:
            big = MAIL._replace(html="<p>" + "y\n" * 8_000_000)
            assert await provider.send(big, "k1", CONTEXT) == RetryLater("timeout_at_data", answered=False)
            await until(lambda: not is_open(ports[0]), "it is let go of")
        finally:
            over.set()
