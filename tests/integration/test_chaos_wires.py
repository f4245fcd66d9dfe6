"""The wires of the rig: what passes, what is refused, and what nobody hears of; and the Redis that lies."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from uuid import uuid4

import pytest
from redis.asyncio import Redis
from redis.exceptions import RedisError

from notifier import observe
from notifier.coordination.client import RedisClient
from notifier.coordination.lease import Leases
from notifier.coordination.wakeup import Wakeup
from notifier.proof.chaos.liars import Lie, denies, grants, lying_redis
from notifier.proof.chaos.proxy import PORTS, Cut, Proxy
from tests.support.stack import until

SILENCE_S = 0.2
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass
class Echo:
    """A server that says what it hears, and remembers it."""

    name: bytes
    port: int = 0
    heard: bytearray = field(default_factory=bytearray)
    ended: int = 0


@asynccontextmanager
async def echoing(name: bytes = b"") -> AsyncIterator[Echo]:
    echo = Echo(name)

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65_536):
                echo.heard += data
                writer.write(echo.name + data)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            echo.ended += 1
            writer.close()

    async with await asyncio.start_server(talk, "127.0.0.1", 0) as server:
        echo.port = server.sockets[0].getsockname()[1]
        yield echo
        server.close()


@asynccontextmanager
async def wired(target: int) -> AsyncIterator[Proxy]:
    wire = Proxy(target)
    await wire.open()
    try:
        yield wire
    finally:
        await wire.close()


@asynccontextmanager
async def connected(wire: Proxy) -> AsyncIterator[Streams]:
    reader, writer = await asyncio.open_connection("127.0.0.1", wire.port)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def said(streams: Streams, words: bytes) -> bytes:
    reader, writer = streams
    writer.write(words)
    async with asyncio.timeout(5):
        return await reader.readexactly(len(words))


async def test_what_is_said_with_the_connection_arrives() -> None:
    """The loop hears of both in one turn, as the thread that runs it does nothing else meanwhile."""
    loop = asyncio.get_running_loop()
    async with echoing() as echo, wired(echo.port) as wire:
        for number in range(20):
            with socket.create_connection(("127.0.0.1", wire.port)) as client:
                client.sendall(b"hello")
                client.setblocking(False)
                async with asyncio.timeout(5):
                    assert await loop.sock_recv(client, 5) == b"hello", number


async def is_silent(reader: asyncio.StreamReader) -> bool:
    """Whether nothing comes for a moment; the moment is the thing itself, not a wait for a state."""
    try:
        async with asyncio.timeout(SILENCE_S):
            return not await reader.read(1)
    except TimeoutError:
        return True


async def test_everything_passes_while_nothing_is_cut() -> None:
    async with echoing() as echo, wired(echo.port) as wire, connected(wire) as streams:
        assert wire.port in PORTS
        much = bytes(range(256)) * 40_000  # more than the buffers on the way hold
        assert await said(streams, b"hello") == b"hello"
        assert await said(streams, much) == much


async def test_a_client_that_hangs_up_is_gone_at_the_other_end() -> None:
    async with echoing() as echo, wired(echo.port) as wire:
        async with connected(wire) as streams:
            assert await said(streams, b"hello") == b"hello"
        await until(lambda: echo.ended == 1, "its session ends")


async def test_a_reset_severs_and_refuses_until_it_heals() -> None:
    async with echoing() as echo, wired(echo.port) as wire, connected(wire) as streams:
        assert await said(streams, b"hello") == b"hello"
        await wire.cut(Cut.RESET)
        with pytest.raises(ConnectionResetError):
            await streams[0].read()
        await until(lambda: echo.ended == 1, "the other end hears of it")
        for _ in range(3):
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection("127.0.0.1", wire.port)
        with socket.socket() as somebody, pytest.raises(OSError, match="in use"):
            somebody.bind(("127.0.0.1", wire.port))
        await wire.heal()
        async with connected(wire) as again:
            assert await said(again, b"back") == b"back"


async def test_in_silence_nothing_passes_and_nobody_is_told() -> None:
    async with echoing() as echo, wired(echo.port) as wire, connected(wire) as old:
        assert await said(old, b"hello") == b"hello"
        await wire.cut(Cut.SILENT)
        async with connected(wire) as new:
            for _, writer in (old, new):
                writer.write(b"late")
            assert await is_silent(old[0])
            assert await is_silent(new[0])
            assert echo.heard == b"hello"
            await wire.heal()
            for reader, _ in (old, new):
                async with asyncio.timeout(5):
                    assert await reader.readexactly(4) == b"late"


async def test_a_call_given_up_in_silence_still_arrives() -> None:
    async with echoing() as echo, wired(echo.port) as wire:
        await wire.cut(Cut.SILENT)
        _, writer = await asyncio.open_connection("127.0.0.1", wire.port)
        writer.write(b"too late")
        await writer.drain()
        writer.close()
        await wire.heal()
        await until(lambda: echo.heard == b"too late", "what was written arrives")


async def test_deaf_means_heard_but_not_answered() -> None:
    async with echoing() as echo, wired(echo.port) as wire, connected(wire) as old:
        assert await said(old, b"hello") == b"hello"
        await wire.cut(Cut.DEAF)
        async with connected(wire) as new:
            for _, writer in (old, new):
                writer.write(b"heard")
            await until(lambda: echo.heard == b"hello" + 2 * b"heard", "both are heard")
            assert await is_silent(old[0])
            assert await is_silent(new[0])
            await wire.heal()
            for reader, _ in (old, new):
                async with asyncio.timeout(5):
                    assert await reader.readexactly(5) == b"heard"


async def test_a_wire_can_lead_elsewhere() -> None:
    async with echoing(b"1") as one, echoing(b"2") as two, wired(one.port) as wire, connected(wire) as streams:
        assert await said(streams, b"a") == b"1"
        assert await streams[0].readexactly(1) == b"a"
        await wire.retarget(two.port)
        with pytest.raises(ConnectionResetError):
            await streams[0].read()
        async with connected(wire) as again:
            assert await said(again, b"a") == b"2"


async def test_where_nobody_listens_behind_it_the_connection_breaks() -> None:
    async with echoing() as echo:
        nobody = echo.port
    async with wired(nobody) as wire, connected(wire) as (reader, _):
        with pytest.raises(ConnectionResetError):
            await reader.read()


async def test_a_wire_that_is_closed_lets_go_of_everybody() -> None:
    async with echoing() as echo:
        async with wired(echo.port) as wire:
            await wire.cut(Cut.SILENT)
            waiting = await asyncio.open_connection("127.0.0.1", wire.port)
        with pytest.raises(ConnectionResetError):
            await waiting[0].read()
        waiting[1].close()


@pytest.mark.parametrize(("lie", "is_held"), [(grants, False), (denies, True)])
async def test_a_liar_is_believed_by_whoever_asks_for_leases(lie: Lie, is_held: bool) -> None:
    owners = {uuid4(): "w1", uuid4(): "w2"}
    async with lying_redis(lie) as port:
        url = f"redis://:secret@127.0.0.1:{port}/0"
        client = RedisClient(url)
        leases, wakeup = Leases(client), Wakeup(client, url)

        async def is_told() -> bool:
            """Whether it said what it was to say; a machine that is busy may take longer than the budget."""
            before = {outcome: counted(outcome) for outcome in ("granted", "denied")}
            await leases.renew(list(owners), "w1", timedelta(seconds=1))
            held = await leases.held(owners)
            outcome = "denied" if is_held else "granted"
            return held == (set(owners) if is_held else set()) and counted(outcome) == before[outcome] + 4

        heard = asyncio.Event()
        listening = asyncio.create_task(wakeup.listen(heard.set))
        try:
            await until(is_told, "renewed and held are answered with the lie")
            assert client.is_well
            async with asyncio.timeout(5):
                await heard.wait()  # it has subscribed
        finally:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)
            await client.close()


def counted(outcome: str) -> float:
    return observe.COORDINATION_ACQUIRE.labels("send_lease", outcome)._value.get()


async def test_a_late_liar_keeps_whoever_waits() -> None:
    async with lying_redis(grants, after_s=5) as port, Redis(port=port, socket_timeout=SILENCE_S, retry=None) as redis:
        with pytest.raises(RedisError):
            await redis.ping()
