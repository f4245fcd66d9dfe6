"""A bare SMTP client: says a line, hears an answer, hangs up when it likes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

LETTER = (
    b"From: Notifier <hello@example.com>\r\nTo: ada@example.com\r\nSubject: Hi\r\n"
    b"Message-ID: <1@example.com>\r\n\r\nHi Ada\r\n"
)


class Talk:
    """One connection. A line that never comes fails the test."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def hear(self) -> str:
        """The next answer, lines joined; empty when the other side has closed or reset the connection."""
        lines: list[str] = []
        async with asyncio.timeout(10):
            while True:
                try:
                    line = (await self.reader.readline()).decode()
                except ConnectionError:
                    return ""
                lines.append(line.rstrip("\r\n"))
                if line[3:4] != "-":
                    return "\n".join(lines)

    async def say(self, line: str | bytes) -> str:
        """Say one line (or the bytes as they are) and hear the answer."""
        self.writer.write(line if isinstance(line, bytes) else f"{line}\r\n".encode())
        return await self.hear()

    async def hello(self) -> str:
        assert (await self.hear()).startswith("220 ")
        return await self.say("EHLO client")

    async def begin(self, *, to: str = "ada@example.com") -> None:
        """Everything up to DATA."""
        assert (await self.say("MAIL FROM:<hello@example.com>")).startswith("250 ")
        assert (await self.say(f"RCPT TO:<{to}>")).startswith("250 ")

    async def send(self, letter: bytes = LETTER) -> str:
        """A whole transaction; the answer to the dot."""
        await self.begin()
        assert (await self.say("DATA")).startswith("354 ")
        return await self.say((b"\r\n" + letter).replace(b"\r\n.", b"\r\n..")[2:] + b".\r\n")

    async def is_silent(self, seconds: float = 0.2) -> bool:
        """Whether nothing comes, and nothing ends, for so long."""
        try:
            await asyncio.wait_for(self.reader.readline(), seconds)
        except TimeoutError:
            return True
        return False

    async def hang_up(self, *, reset: bool = False) -> None:
        if reset:
            self.writer.transport.abort()
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()


@contextlib.asynccontextmanager
async def talking(url: str) -> AsyncIterator[Talk]:
    address = urlsplit(url)
    talk = Talk(*await asyncio.open_connection(address.hostname, address.port))
    try:
        yield talk
    finally:
        await talk.hang_up()
