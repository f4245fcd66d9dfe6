"""Oban for Python: one queue with a large limit, its default debounce."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Mapping
from typing import Any

from oban import Oban, worker
from oban.schema import install

from notifier.proof.bench.peers.over_http import Poster
from notifier.proof.bench.peers.talk import Count, each_of, talk

POOL = 20
FILL = 1_000
_count = Count()
_poster: list[Poster] = []


class Mail:
    """The job."""

    async def process(self, job: Any) -> None:
        """Do it."""
        if _poster:
            await _poster[0].post(str(job.args["n"]))
        _count.add()


_Mail: Any = worker(queue="mail", max_attempts=3)(Mail)


class OnOban:
    """A driver of Oban."""

    def __init__(self) -> None:
        self._pool: Any = None
        self._oban: Any = None

    async def hello(self) -> Mapping[str, Any]:
        """Say which versions run here."""
        return {"python": platform.python_version(), "version": importlib.metadata.version("oban")}

    async def prepare(self, database: str) -> Mapping[str, Any]:
        """Make the tables."""
        pool = await Oban.create_pool(database)
        await install(pool)
        await pool.close()
        return {}

    async def enqueue(self, database: str, number: int, callers: int) -> Mapping[str, Any]:
        """Put jobs in, one row and one commit each."""
        pool = await Oban.create_pool(database, min_size=min(callers, POOL), max_size=POOL)
        async with Oban(pool=pool, leadership=False) as oban:
            told = await each_of(number, callers, lambda index: oban.enqueue(_Mail.new({"n": index})))
        await pool.close()
        return told

    async def fill(self, database: str, number: int) -> Mapping[str, Any]:
        """Put a backlog in."""
        pool = await Oban.create_pool(database)
        oban = Oban(pool=pool, leadership=False)
        for start in range(0, number, FILL):
            await oban.enqueue_many([_Mail.new({"n": n}) for n in range(start, min(start + FILL, number))])
        await pool.close()
        return {}

    async def open(self, database: str, job: str, url: str, body: str, slots: int) -> Mapping[str, Any]:
        """Get ready to work."""
        if job == "http":
            _poster.append(Poster(url, body, slots))
        self._pool = await Oban.create_pool(database, min_size=5, max_size=POOL)
        return {}

    async def work(self, batch: int, slots: int) -> Mapping[str, Any]:
        """Begin to take jobs. The queue's limit is both how many are fetched and how many are in hand."""
        self._oban = Oban(pool=self._pool, queues={"mail": max(batch, slots)})
        await self._oban.start()
        return {}

    async def count(self) -> Mapping[str, Any]:
        """Say how many jobs were done here."""
        return _count.told()

    async def rest(self) -> Mapping[str, Any]:
        """Stop working and let go of everything."""
        if self._oban is not None:
            await self._oban.stop()
            self._oban = None
        while _poster:
            await _poster.pop().close()
        if self._pool is not None:
            await self._pool.close()
            self._pool = None
        return {}


if __name__ == "__main__":
    talk(OnOban())
