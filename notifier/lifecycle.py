"""What every long-running process shares: when it is to stop, and how it says that it answers."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import json
import os
import re
import signal
import socket
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Protocol

from notifier.domain.errors import NotReady
from notifier.embedded.process import explain


class Ready(Protocol):
    """Called once with the addresses; `smtp` where mails are taken that way, too.

    `process` is the id of this process start, where it has one: what its claims, calls and log lines name.
    """

    def __call__(self, url: str, metrics: str | None, smtp: str | None = None, process: str | None = None) -> None:
        """Say where."""


Serve = Callable[[asyncio.Event, Ready], Awaitable[None]]


async def run_until_stopped(
    serve: Serve,
    *,
    ready_file: Path | None,
    parent_fd: int | None,
    host: str = "127.0.0.1",
    port_settings: Mapping[int, str] | None = None,
) -> None:
    """Serve until SIGTERM, SIGINT, or the end of the process that holds the other end of `parent_fd`.

    Raises NotReady for what the operating system refuses before the process answers; `host` and `port_settings`
    (port → its setting) are for its words. Later the same error is a defect of ours and stays what it is.
    """
    stop, answers = asyncio.Event(), asyncio.Event()

    def ready(url: str, metrics: str | None, smtp: str | None = None, process: str | None = None) -> None:
        if ready_file:
            try:
                write_ready_file(ready_file, url, metrics, smtp, process)
            except OSError as error:
                raise NotReady(f"cannot write --ready-file {ready_file}: {error.strerror}") from error
        answers.set()
        collect_rarely()

    try:
        with _signals(stop), parent(parent_fd, stop):
            await serve(stop, ready)
    except OSError as error:
        if answers.is_set():
            raise
        raise NotReady(why_not(error, host, port_settings or {})) from error


GARBAGE_AFTER = 50_000  # objects; far above Python's own, which is for programs that hold little


def collect_rarely() -> None:
    """Look for cycles seldom, and never among what was loaded: thousands of mails in hand are no garbage.

    Looking through them again and again is a fifth of a worker's time; next to nothing here is a cycle.
    """
    gc.freeze()
    gc.set_threshold(GARBAGE_AFTER, 20, 50)


def why_not(error: OSError, host: str, port_settings: Mapping[int, str]) -> str:
    """What kept a process from answering, and what to do about it."""
    port_setting = _setting_of_port(error, port_settings)
    binding = "bind on" in str(error)  # asyncio's words, in which the number of the error may be missing
    if isinstance(error, BlockingIOError):
        return f"{error.strerror or error}: stop that one, or set NOTIFIER_DATA_DIR to another directory"
    if error.errno == errno.EADDRINUSE:
        return f"the port is taken ({error.strerror}): set {port_setting} to another one, or to 0 for any"
    if binding and error.errno == errno.EACCES:
        return f"this user may not listen on that port ({error.strerror}): set {port_setting} to one above 1023"
    if binding or isinstance(error, socket.gaierror):
        return (
            f"cannot listen on NOTIFIER_HOST={host} ({error.strerror or error}): set it to an address of this "
            "machine, e.g. 127.0.0.1, or 0.0.0.0 for all of them"
        )
    if isinstance(error, ConnectionError | TimeoutError):
        return f"a server that is needed went away during the start ({str(error) or type(error).__name__}): start again"
    return explain(error, error.filename or "the start")


def _setting_of_port(error: OSError, port_settings: Mapping[int, str]) -> str:
    """Which port it was; asyncio says so in words only: "… bind on address ('127.0.0.1', 1025): …"."""
    found = re.search(r"address \('[^']*', (\d+)", str(error))
    named = port_settings.get(int(found[1])) if found else None
    return named or next(iter(port_settings.values()), "")


def write_ready_file(
    path: Path, url: str, metrics: str | None, smtp: str | None = None, process: str | None = None
) -> None:
    """Write it whole: whoever waits for the file reads all of it or does not find it."""
    new = path.with_name(f"{path.name}.{os.getpid()}.new")
    note = {"pid": os.getpid(), "url": url, "metrics": metrics}
    note |= {name: value for name, value in (("smtp", smtp), ("process", process)) if value}
    new.write_text(json.dumps(note) + "\n", encoding="utf-8")
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
def parent(parent_fd: int | None, stop: asyncio.Event) -> Iterator[None]:
    """Set `stop` when the process that holds the other end of `parent_fd` ends, however it does."""
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
