"""Hearing a mail server from DATA to its verdict: every byte counts there, also one that comes unasked."""

from __future__ import annotations

import asyncio
import re

from aiosmtplib import SMTPServerDisconnected

LINE = re.compile(rb"([2-5][0-9]{2})(?:([ -])(.*))?", re.DOTALL)
REPLY_BYTES_MAX = 65_536

Reply = tuple[int, str]


class Garbled(Exception):
    """What was heard is no reply of SMTP (RFC 5321 §4.2)."""


class Ear(asyncio.Protocol):
    """Takes a connection over from the library, which throws away what it did not ask for.

    A reply that comes before the dot must not pass for the answer to it: see `unasked`.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._library = transport.get_protocol()
        self._heard = bytearray()
        self._lost = False
        self._news = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        # So that writable means: it is out. Over TLS asyncio takes an empty buffer for a full one when that is 0.
        transport.set_write_buffer_limits(high=1 if transport.get_extra_info("sslcontext") else 0, low=0)
        transport.set_protocol(self)

    def give_back(self) -> bool:
        """Let the library have the connection again. False: it is out of step or gone, and of no more use."""
        if self._lost or self._heard or self._transport.is_closing():
            return False  # not touched any more: uvloop raises RuntimeError where the connection is gone
        self._transport.set_protocol(self._library)
        self._transport.set_write_buffer_limits()
        return True

    def write(self, data: bytes) -> None:
        """Send; raises SMTPServerDisconnected where that is known to be in vain."""
        if self._lost or self._transport.is_closing():
            raise SMTPServerDisconnected("connection lost")
        self._transport.write(data)

    async def flushed(self) -> None:
        """Wait until the kernel has everything; over TLS some 64 KiB may still wait in this process."""
        await self._writable.wait()
        await asyncio.sleep(0)  # hear what came meanwhile

    async def reply(self) -> Reply:
        """Wait for the next reply. Raises SMTPServerDisconnected when none will come, Garbled when it is none."""
        while (found := self.heard()) is None:
            if self._lost:
                raise SMTPServerDisconnected("connection lost")
            self._news.clear()
            await self._news.wait()
        return found

    def heard(self) -> Reply | None:
        """Take the next reply if it is there whole; raises Garbled."""
        code, text, end = b"", [], 0
        while (stop := self._heard.find(b"\n", end)) >= 0:
            line = LINE.fullmatch(bytes(self._heard[end:stop]).rstrip(b"\r"))
            if line is None or code not in (b"", line[1]):
                raise Garbled
            code, end = line[1], stop + 1
            text.append((line[3] or b"").decode("utf-8", "replace").strip())
            if line[2] != b"-":
                del self._heard[:end]
                return int(code), "\n".join(text)
        if len(self._heard) > REPLY_BYTES_MAX:
            raise Garbled
        return None

    @property
    def unasked(self) -> bool:
        """Whether something was said that nobody asked for."""
        return bool(self._heard)

    # What asyncio tells

    def data_received(self, data: bytes) -> None:
        """Something was said."""
        self._heard += data
        self._news.set()

    def eof_received(self) -> bool:
        """The server says no more; so we end it, too."""
        self._end()
        return False

    def connection_lost(self, error: Exception | None) -> None:
        """The connection is gone; the library wants to know."""
        self._end()
        self._library.connection_lost(error)

    def pause_writing(self) -> None:
        """Not all is out."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """All is out."""
        self._writable.set()

    def _end(self) -> None:
        self._lost = True
        self._news.set()
        self._writable.set()
