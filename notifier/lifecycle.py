"""What every long-running process shares: when it is to stop, and how it says that it answers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

Ready = Callable[[str, str | None], None]
Serve = Callable[[asyncio.Event, Ready], Awaitable[None]]


async def run_until_stopped(serve: Serve, *, ready_file: Path | None, parent_fd: int | None) -> None:
    """Serve until SIGTERM, SIGINT, or the end of the process that holds the other end of `parent_fd`."""
    stop = asyncio.Event()

    def ready(url: str, metrics: str | None) -> None:
        if ready_file:
            write_ready_file(ready_file, url, metrics)

    with _signals(stop), _parent(parent_fd, stop):
        await serve(stop, ready)


def write_ready_file(path: Path, url: str, metrics: str | None) -> None:
    """Write it whole: whoever waits for the file reads all of it or does not find it."""
    new = path.with_name(f"{path.name}.{os.getpid()}.new")
    new.write_text(json.dumps({"pid": os.getpid(), "url": url, "metrics": metrics}) + "\n", encoding="utf-8")
    new.replace(path)


@contextlib.contextmanager
def _signals(stop: asyncio.Event) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        yield
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


@contextlib.contextmanager
def _parent(parent_fd: int | None, stop: asyncio.Event) -> Iterator[None]:
    if parent_fd is None:
        yield
        return
    loop = asyncio.get_running_loop()

    def heard() -> None:
        if not os.read(parent_fd, 1):
            loop.remove_reader(parent_fd)
            stop.set()

    loop.add_reader(parent_fd, heard)
    try:
        yield
    finally:
        loop.remove_reader(parent_fd)
