"""Procrastinate, with its psycopg connector: many jobs at once, finished ones deleted."""

from __future__ import annotations

import asyncio
import importlib.metadata
import logging
import platform
from collections.abc import Mapping
from typing import Any

from procrastinate import App, PsycopgConnector

from notifier.proof.bench.peers.over_http import Poster
from notifier.proof.bench.peers.talk import Count, each_of, talk

POOL = 20
FILL = 1_000


class OnProcrastinate:
    """A driver of Procrastinate."""

    def __init__(self) -> None:
        self._count = Count()
        self._poster: Poster | None = None
        self._app: Any = None
        self._working: asyncio.Task[None] | None = None
        logging.getLogger("procrastinate").setLevel(logging.ERROR)

    async def hello(self) -> Mapping[str, Any]:
        """Say which versions run here."""
        return {"python": platform.python_version(), "version": importlib.metadata.version("procrastinate")}

    async def prepare(self, database: str) -> Mapping[str, Any]:
        """Make the tables."""
        app, _ = self._make(database)
        async with app.open_async():
            await app.schema_manager.apply_schema_async()
        return {}

    async def enqueue(self, database: str, number: int, callers: int) -> Mapping[str, Any]:
        """Put jobs in, one row and one commit each."""
        app, mail = self._make(database)
        async with app.open_async():
            return await each_of(number, callers, lambda index: mail.defer_async(n=index))

    async def fill(self, database: str, number: int) -> Mapping[str, Any]:
        """Put a backlog in."""
        app, mail = self._make(database)
        async with app.open_async():
            for start in range(0, number, FILL):
                await mail.batch_defer_async(*({"n": n} for n in range(start, min(start + FILL, number))))
        return {}

    async def open(self, database: str, job: str, url: str, body: str, slots: int) -> Mapping[str, Any]:
        """Get ready to work."""
        if job == "http":
            self._poster = Poster(url, body, slots)
        self._app, _ = self._make(database)
        await self._app.open_async()
        return {}

    async def work(self, batch: int, slots: int) -> Mapping[str, Any]:
        """Begin to take jobs; it fetches them one by one."""
        self._working = asyncio.create_task(
            self._app.run_worker_async(
                concurrency=max(batch, slots), delete_jobs="successful", install_signal_handlers=False
            )
        )
        return {}

    async def count(self) -> Mapping[str, Any]:
        """Say how many jobs were done here."""
        if self._working is not None and self._working.done():
            await self._working  # says what ended it
        return self._count.told()

    async def rest(self) -> Mapping[str, Any]:
        """Stop working and let go of everything."""
        if self._working is not None:
            self._working.cancel()
            await asyncio.gather(self._working, return_exceptions=True)
            self._working = None
        if self._poster is not None:
            await self._poster.close()
        if self._app is not None:
            await self._app.close_async()
            self._app = None
        return {}

    def _make(self, database: str) -> tuple[Any, Any]:
        app = App(connector=PsycopgConnector(conninfo=database, min_size=5, max_size=POOL))

        async def mail(n: int) -> None:
            if self._poster is not None:
                await self._poster.post(str(n))
            self._count.add()

        return app, app.task(name="mail")(mail)


if __name__ == "__main__":
    talk(OnProcrastinate())
