"""A Redis that speaks just enough of the protocol to lie about who holds what."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from notifier.coordination.lease import HELD
from notifier.embedded.process import LOOPBACK

OK, NIL = b"+OK\r\n", b"$-1\r\n"
Lie = Callable[[Sequence[bytes]], bytes]  # what is answered to a command and its arguments


def grants(command: Sequence[bytes]) -> bytes:
    """Every lease is the asker's, and nobody is at anything: even mails in good hands look abandoned."""
    return _answer(command, are_free=True)


def denies(command: Sequence[bytes]) -> bytes:
    """Every lease is somebody else's, who is still at it: even mails in dead hands look attended to."""
    return _answer(command, are_free=False)


def always(answer: bytes) -> Lie:
    """The same to every command."""
    return lambda _command: answer


def _answer(command: Sequence[bytes], *, are_free: bool) -> bytes:
    match command[0].upper():
        case b"AUTH" | b"SELECT" | b"CLIENT":  # it lets everybody in, or nobody would hear what it says
            return OK
        case b"PING":
            return b"+PONG\r\n"
        case b"SUBSCRIBE":  # and never tells them anything
            form = b"*3\r\n$9\r\nsubscribe\r\n$%d\r\n%b\r\n:%d\r\n"
            return b"".join(form % (len(name), name, n) for n, name in enumerate(command[1:], start=1))
        case b"PUBLISH":
            return b":0\r\n"
        case b"EVAL":
            keys = int(command[2])
            if command[1] == HELD.encode():
                return b"*%d\r\n" % keys + (b":0\r\n" if are_free else b":1\r\n") * keys
            return b":%d\r\n" % (keys if are_free else 0)
    return OK if are_free else NIL


@asynccontextmanager
async def lying_redis(lie: Lie, *, after_s: float = 0.0) -> AsyncIterator[int]:
    """Answer every command with the lie, `after_s` later; gives the port."""
    talks: set[asyncio.Task[None]] = set()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        talks.add(task)
        try:
            with contextlib.suppress(ConnectionError, ValueError, asyncio.IncompleteReadError):
                while command := await _command(reader):
                    await asyncio.sleep(after_s)
                    writer.write(lie(command))
                    await writer.drain()
        except asyncio.CancelledError:
            pass  # the lie is over; the server would take it for an error of ours
        finally:
            talks.discard(task)
            writer.close()

    server = await asyncio.start_server(talk, LOOPBACK, 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in list(talks):
            task.cancel()
        await asyncio.gather(*talks, return_exceptions=True)


async def _command(reader: asyncio.StreamReader) -> list[bytes]:
    """Read one command; nothing at the end. Raises ValueError for what is none."""
    head = await reader.readline()
    words = []
    for _ in range(int(head.removeprefix(b"*")) if head else 0):
        size = int((await reader.readline()).removeprefix(b"$"))
        words.append((await reader.readexactly(size + 2))[:size])
    return words
