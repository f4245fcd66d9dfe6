"""A Redis that speaks just enough of the protocol to lie: it says the same to every command."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from notifier.embedded.process import LOOPBACK

GRANT = b"+OK\r\n"
DENY = b"$-1\r\n"


@asynccontextmanager
async def lying_redis(answer: bytes, *, after_s: float = 0.0) -> AsyncIterator[int]:
    """Answer every command with `answer`, `after_s` later; gives the port."""
    talks: set[asyncio.Task[None]] = set()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        talks.add(task)
        try:
            with contextlib.suppress(ConnectionError, ValueError, asyncio.IncompleteReadError):
                while await _command(reader):
                    await asyncio.sleep(after_s)
                    writer.write(answer)
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


async def _command(reader: asyncio.StreamReader) -> bool:
    """Read one command; False at the end. Raises ValueError for what is none."""
    head = await reader.readline()
    if not head:
        return False
    for _ in range(int(head.removeprefix(b"*"))):
        size = int((await reader.readline()).removeprefix(b"$"))
        await reader.readexactly(size + 2)
    return True
