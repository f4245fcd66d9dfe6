"""Mail servers that speak out of turn or out of form: whatever they say, no verdict is made up."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from providers.base import Accepted, Ambiguous, Outcome, Rejected, RetryLater
from providers.mail_server import MailServer
from providers.smtp import SmtpProvider
from tests.support.mock_server import CONTEXT, MAIL


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
        self.tasks.add(asyncio.current_task())  # type: ignore[arg-type]
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
async def odd(at_data: Any, timeout_s: float = 2, **replies: bytes) -> AsyncIterator[tuple[Odd, SmtpProvider]]:
    server = Odd(at_data, replies=replies)
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.port = listening.sockets[0].getsockname()[1]
    provider = SmtpProvider(MailServer("127.0.0.1", server.port, "none"), timeout_s=timeout_s)
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
        time.sleep(0.8)  # noqa: ASYNC251 - the whole loop stands still, ours and the server's

    async with odd(at_data, timeout_s=0.4) as (_, provider):
        assert await provider.send(MAIL, "k1", CONTEXT) == Accepted("STILL")


async def test_a_recipient_refused_stays_refused_when_the_server_then_hangs() -> None:
    async def never(*_: Any) -> None: ...

    async with odd(never, RCPT=b"550 5.1.1 nobody\r\n", RSET=b"") as (_, provider):
        assert await provider.send(MAIL, "k1", CONTEXT) == Rejected("smtp_rcpt_550_5.1.1")
