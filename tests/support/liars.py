"""Servers that speak just enough of the Redis protocol to lie."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

GRANT = b"+OK\r\n"
GRANT_NUMBER = b":1\r\n"
DENY = b"$-1\r\n"
NONSENSE = b"*2\r\n$3\r\nfoo\r\n:7\r\n"


@asynccontextmanager
async def lying_redis(answer: bytes, *, after_s: float = 0.0) -> AsyncIterator[str]:
    """Answer every command with `answer`; gives the URL."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                if not line.startswith(b"*"):
                    continue
                for _ in range(int(line[1:])):
                    size = int((await reader.readline())[1:])
                    await reader.readexactly(size + 2)
                await asyncio.sleep(after_s)
                writer.write(answer)
                await writer.drain()
        except (ConnectionError, ValueError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        yield f"redis://127.0.0.1:{port}/0"
        server.close()
