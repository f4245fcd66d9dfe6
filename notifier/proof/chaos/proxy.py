"""A wire that can be cut: everything between two processes of the rig passes through one of these."""

from __future__ import annotations

import asyncio
import contextlib
import enum
import random
import socket
import struct
from typing import cast

from notifier.embedded.process import LOOPBACK

PORTS = range(20_000, 32_000)  # below those from which systems take the near end of a connection
BACKLOG = 512


class Cut(enum.Enum):
    """What a cut does: to whoever is connected, and to whoever comes."""

    RESET = "reset"  # severed; refused
    SILENT = "silent"  # nothing passes either way until it heals
    DEAF = "deaf"  # what is sent arrives, what is answered does not come back until it heals


def fixed_port() -> int:
    """A port that is free and stays so while its owner is away: no outgoing connection is given it by chance.

    Not one that another rig only holds, either: that is why it is tried without SO_REUSEADDR.
    """
    for port in random.sample(PORTS, len(PORTS)):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind((LOOPBACK, port))
            return port
    raise OSError(f"no free port between {PORTS.start} and {PORTS.stop - 1}")


class Proxy:
    """Listens on a port of its own for as long as it is open, and passes bytes on to `target` (a port)."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.port = 0
        self.state: Cut | None = None
        self._holder: socket.socket | None = None
        self._server: asyncio.Server | None = None
        self._links: set[_Link] = set()
        self._connecting: set[asyncio.Task[None]] = set()
        self._healed = asyncio.Event()
        self._healed.set()

    async def open(self) -> None:
        """Start to listen. The port is held by a second socket, so that it is ours while nobody listens."""
        self.port = fixed_port()
        self._holder = _bound(self.port)
        await self._listen()

    async def close(self) -> None:
        """Let go of everything."""
        self._deafen()
        self._sever()
        for task in self._connecting:
            task.cancel()
        await asyncio.gather(*self._connecting, return_exceptions=True)
        if self._holder:
            self._holder.close()
            self._holder = None

    async def cut(self, how: Cut) -> None:
        """Cut the wire until `heal`."""
        self.state = how
        self._healed.clear()
        if how is Cut.RESET:
            self._deafen()
            self._sever()
        for link in list(self._links):
            link.apply(how)

    async def heal(self) -> None:
        """Let everything pass again, and what was held back with it."""
        self.state = None
        if self._server is None and self._holder is not None:
            await self._listen()
        self._healed.set()
        for link in list(self._links):
            link.apply(None)

    async def retarget(self, port: int) -> None:
        """Lead to another server; whoever is connected to the one before is severed."""
        self.target = port
        self._sever()

    async def _listen(self) -> None:
        near = _bound(self.port)
        self._server = await asyncio.get_running_loop().create_server(lambda: _Near(self), sock=near, backlog=BACKLOG)

    def _deafen(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    def _sever(self) -> None:
        for link in list(self._links):
            link.sever()

    def came(self, link: _Link) -> None:
        """Take somebody who connected; called by the near end, in its first turn."""
        if link.near.is_closing():
            return
        link.near.pause_reading()
        self._links.add(link)
        if self._server is None:  # cut, or closed, between the connection and its first turn
            link.sever()
            return
        task = asyncio.create_task(self._connect(link))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    def went(self, link: _Link) -> None:
        """Forget a connection that is over; called by the link."""
        self._links.discard(link)

    async def _connect(self, link: _Link) -> None:
        if self.state is Cut.SILENT:
            await self._healed.wait()
        if link not in self._links:
            return
        try:
            await asyncio.get_running_loop().create_connection(lambda: _Far(link), LOOPBACK, self.target)
        except OSError:
            link.sever()
            return
        link.apply(self.state)


class _Link:
    """One connection through the proxy: its two ends."""

    def __init__(self, proxy: Proxy, near: asyncio.Transport) -> None:
        self._proxy = proxy
        self.near = near
        self.far: asyncio.Transport | None = None
        self._cut: Cut | None = None
        self._full: set[asyncio.Transport] = set()  # what we read from goes nowhere at the moment
        self._early = b""  # uvloop may read before the first turn, in which reading is paused

    def joined(self, far: asyncio.Transport) -> None:
        """The far end is there."""
        self.far = far
        if self._early:
            far.write(self._early)
        self.apply(self._proxy.state)

    def apply(self, cut: Cut | None) -> None:
        """Read from each end only what may pass now."""
        self._cut = cut
        if self.far is None:
            return
        _read(self.near, self.near not in self._full and cut is not Cut.SILENT)
        _read(self.far, self.far not in self._full and cut not in (Cut.SILENT, Cut.DEAF))

    def held_up(self, writer: asyncio.Transport, *, full: bool) -> None:
        """One end takes nothing more for now, or takes it again: that decides whether we read from the other."""
        reader = self._other(writer)
        if reader is None:
            return
        (self._full.add if full else self._full.discard)(reader)
        self.apply(self._cut)

    def passed(self, reader: asyncio.Transport, data: bytes) -> None:
        """Hand on what was read from one end."""
        writer = self._other(reader)
        if writer is None:
            self._early += data
        else:
            writer.write(data)

    def ended(self, end: asyncio.Transport, error: Exception | None) -> None:
        """One end is gone, so the other goes: as abruptly where there was an error."""
        self._proxy.went(self)
        other = self._other(end)
        if other is not None:
            _reset(other) if error else other.close()

    def sever(self) -> None:
        """Both ends, at once and for good."""
        self._proxy.went(self)
        for end in (self.near, self.far):
            if end is not None:
                _reset(end)

    def _other(self, end: asyncio.Transport) -> asyncio.Transport | None:
        return self.far if end is self.near else self.near


class _End(asyncio.Protocol):
    """One end. It has its first turn after connection_made: pauses made in there are forgotten by Python 3.11.2."""

    link: _Link
    transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.link.passed(self.transport, data)

    def pause_writing(self) -> None:
        self.link.held_up(self.transport, full=True)

    def resume_writing(self) -> None:
        self.link.held_up(self.transport, full=False)

    def connection_lost(self, exc: Exception | None) -> None:
        self.link.ended(self.transport, exc)


class _Near(_End):
    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.link = _Link(self._proxy, self.transport)
        asyncio.get_running_loop().call_soon(self._proxy.came, self.link)


class _Far(_End):
    def __init__(self, link: _Link) -> None:
        self.link = link

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        asyncio.get_running_loop().call_soon(self._join)

    def _join(self) -> None:
        if self.link.near.is_closing() or self.transport.is_closing():
            self.transport.abort()
        else:
            self.link.joined(self.transport)


def _bound(port: int) -> socket.socket:
    """A socket that shares its port with others of ours."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        sock.bind((LOOPBACK, port))
    except OSError:
        sock.close()
        raise
    sock.setblocking(False)
    return sock


def _read(end: asyncio.Transport, wanted: bool) -> None:
    if not end.is_closing():
        end.resume_reading() if wanted else end.pause_reading()


def _reset(end: asyncio.Transport) -> None:
    """Close without a word: the other side gets an RST, not an end of what was sent."""
    sock = end.get_extra_info("socket")
    if sock is not None:
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    end.abort()
