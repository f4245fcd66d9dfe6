"""One thread that writes to SQLite, many callers to a transaction."""

from __future__ import annotations

import asyncio
import queue
import sqlite3
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

GROUP_MAX = 256

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Job:
    work: Callable[[sqlite3.Connection], Any]
    future: asyncio.Future[Any]
    loop: asyncio.AbstractEventLoop


class Committer:
    """Runs jobs in order; each caller hears of its result only once the transaction round it is committed.

    Whatever arrives while one commit is under way shares the next: the busier it gets, the cheaper a job.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="mock-ledger", daemon=True)
        self._thread.start()

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do `work` inside a transaction, return its result after the commit; cancelling undoes nothing."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._jobs.put(_Job(work, future, loop))
        return await future

    def close(self) -> None:
        """Finish what was given, then stop; blocks until it has."""
        self._jobs.put(None)
        self._thread.join()
        self._connection.close()

    def _run(self) -> None:
        last = False
        while not last:
            group, last = self._next_group()
            results = self._commit(group)
            if group:
                group[0].loop.call_soon_threadsafe(_deliver, group, results)

    def _next_group(self) -> tuple[list[_Job], bool]:
        job = self._jobs.get()
        group: list[_Job] = []
        while job is not None:
            group.append(job)
            if len(group) == GROUP_MAX:
                return group, False
            try:
                job = self._jobs.get_nowait()
            except queue.Empty:
                return group, False
        return group, True

    def _commit(self, group: Sequence[_Job]) -> list[object]:
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            results = [job.work(self._connection) for job in group]
            self._connection.execute("COMMIT")
        except Exception as error:  # noqa: BLE001 - whatever it is belongs to the job's caller
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            if len(group) == 1:
                return [error]
            return [result for job in group for result in self._commit([job])]  # one bad job harms no other
        return results


def _deliver(group: Sequence[_Job], results: Sequence[object]) -> None:
    for job, result in zip(group, results, strict=True):
        if job.future.done():  # its caller was cancelled
            continue
        if isinstance(result, Exception):
            job.future.set_exception(result)
        else:
            job.future.set_result(result)
