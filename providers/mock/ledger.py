"""The mock's memory: the keys it has accepted, the mails, and every call; one SQLite file, WAL."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import os
import sqlite3
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from providers.mock.committer import Committer
from providers.mock.records import AttemptRecord, MessageRecord
from providers.mock.tables import KeyRecord, delete_messages, find_key, insert_attempt, insert_message, remember_key
from providers.mock.upgrade import prepare

LOCK_WAIT_S = 5.0

T = TypeVar("T")


class Ledger:
    """Opened once per data directory; writes go through one thread, reads through another.

    Names and addresses are in it: nobody but its owner can read it. Raises OSError when the directory is in use, or
    is none, or what is in it cannot be read.
    """

    def __init__(self, data_dir: Path) -> None:
        _make_private(data_dir)
        self._lock = _lock(data_dir / "mock.lock")
        path = data_dir / "mock.sqlite3"
        try:
            _close_to_others(path)
            writer = _connect(path)
            prepare(writer)
            self._reader = _connect(path)
            self._reader.execute("PRAGMA query_only = on")
        except sqlite3.Error as error:
            os.close(self._lock)
            raise OSError(f"{path} cannot be used ({error}): move it away to begin with an empty inbox") from error
        self._committer = Committer(writer)
        self._readers = ThreadPoolExecutor(1, thread_name_prefix="mock-reader")

    async def take(
        self,
        key: str | None,
        fingerprint: str,
        ttl_s: float,
        messages: Sequence[MessageRecord],
        attempt: AttemptRecord,
    ) -> KeyRecord | None:
        """Accept the messages and remember the key, or return the key's earlier acceptance and write nothing.

        Without a key everything is accepted. When this returns, the acceptance is on disk.
        """

        def work(connection: sqlite3.Connection) -> KeyRecord | None:
            now = time.time()
            if key is not None:
                if (known := find_key(connection, key, now - ttl_s)) is not None:
                    return known
                remember_key(connection, key, fingerprint, messages, now)
            for message in messages:
                insert_message(connection, message)
            insert_attempt(connection, attempt)
            return None

        return await self._committer.run(work)

    async def record(self, attempt: AttemptRecord) -> int:
        """Write down a call that took nothing; returns its number."""
        return await self._committer.run(lambda connection: insert_attempt(connection, attempt))

    async def forget_keys(self) -> int:
        """Forget every key, as a provider does when its window ends; returns how many."""
        return await self._committer.run(lambda connection: connection.execute("DELETE FROM keys").rowcount)

    async def empty_inbox(self) -> int:
        """Throw the mails away and keep keys and calls; returns how many."""
        return await self._committer.run(delete_messages)

    async def read(self, query: Callable[[sqlite3.Connection], T]) -> T:
        """Run one of the queries of search.py away from the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self._readers, query, self._reader)

    def close(self) -> None:
        """Commit what was promised and let go of the files; blocks."""
        self._readers.shutdown()
        self._reader.close()
        self._committer.close()
        os.close(self._lock)


def _make_private(directory: Path) -> None:
    """Make a directory, and those above it, for their owner only; whatever the umask is."""
    missing = [path for path in (directory, *directory.parents) if not path.exists()]
    for path in reversed(missing):
        path.mkdir(mode=0o700, exist_ok=True)
    if not directory.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(directory))
    if directory.stat().st_uid == os.geteuid():
        directory.chmod(0o700)


def _close_to_others(path: Path) -> None:
    """SQLite makes its files as open as the umask lets it, and those beside the first as open as that one."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    os.fchmod(file, 0o600)
    os.close(file)
    for suffix in ("-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            path.with_name(path.name + suffix).chmod(0o600)


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=10)
    connection.row_factory = sqlite3.Row
    connection.execute("PRAGMA journal_mode = WAL")
    # A commit outlives this process, SIGKILL included; only a crash of the whole machine could cost some.
    connection.execute("PRAGMA synchronous = NORMAL")
    return connection


def _lock(path: Path) -> int:
    """Keep a second mock off the same directory: what is in flight is known to one process only.

    Waits a little for a predecessor that is about to end, then raises BlockingIOError.
    """
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + LOCK_WAIT_S
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if time.monotonic() > deadline:
                os.close(file)
                raise BlockingIOError(error.errno, f"another mock provider is using {path.parent}") from None
            time.sleep(0.05)
        else:
            return file
