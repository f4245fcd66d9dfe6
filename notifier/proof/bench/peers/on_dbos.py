"""DBOS: a queue of one-step workflows, polled twenty times a second."""

from __future__ import annotations

import asyncio
import concurrent.futures
import importlib.metadata
import os
import platform
from collections.abc import Mapping
from typing import Any

import sqlalchemy
from dbos import DBOS, DBOSClient

from notifier.proof.bench.peers.over_http import Poster
from notifier.proof.bench.peers.talk import Count, each_of, talk

POOL = 20
POLL_S = 0.05
OPTIONS = {"queue_name": "mail", "workflow_name": "mail", "app_version": "bench"}
_count = Count()
_poster: list[Poster] = []


async def _mail(n: int) -> None:
    if _poster:
        await _poster[0].post(str(n))
    _count.add()


class OnDbos:
    """A driver of DBOS."""

    def __init__(self) -> None:
        self._database = ""
        self._launched = False

    async def hello(self) -> Mapping[str, Any]:
        """Say which versions run here."""
        return {"python": platform.python_version(), "version": importlib.metadata.version("dbos")}

    async def prepare(self, database: str) -> Mapping[str, Any]:
        """Make the tables, which only an application does."""
        await asyncio.to_thread(self._launch, database, 100)
        await asyncio.to_thread(self._destroy)
        return {}

    async def enqueue(self, database: str, number: int, callers: int) -> Mapping[str, Any]:
        """Put workflows in, one commit each; the client is synchronous, so each caller has a thread."""
        threads = concurrent.futures.ThreadPoolExecutor(min(callers, POOL))
        asyncio.get_running_loop().set_default_executor(threads)
        client = DBOSClient(system_database_url=database, system_database_pool_size=POOL, application_name="bench")
        told = await each_of(number, callers, lambda index: asyncio.to_thread(client.enqueue, OPTIONS, index))
        client.destroy()
        return told

    async def fill(self, database: str, number: int) -> Mapping[str, Any]:
        """Put a backlog in, in one transaction."""
        await asyncio.to_thread(self._fill, database, number)
        return {}

    def _fill(self, database: str, number: int) -> None:
        client = DBOSClient(system_database_url=database, application_name="bench")
        engine = sqlalchemy.create_engine(database.replace("postgresql://", "postgresql+psycopg://"))
        with engine.begin() as conn:
            for index in range(number):
                client.enqueue_in_transaction(conn, OPTIONS, index)
        engine.dispose()
        client.destroy()

    async def open(self, database: str, job: str, url: str, body: str, slots: int) -> Mapping[str, Any]:
        """Get ready to work."""
        if job == "http":
            _poster.append(Poster(url, body, slots))
        self._database = database
        return {}

    async def work(self, batch: int, slots: int) -> Mapping[str, Any]:
        """Begin to take jobs; a poll takes what is free of so many."""
        await asyncio.to_thread(self._launch, self._database, max(batch, slots))
        return {}

    def _launch(self, database: str, at_once: int) -> None:
        DBOS(
            config={
                "name": "bench",
                "system_database_url": database,
                "application_version": "bench",
                "executor_id": f"bench-{os.getpid()}",
                "sys_db_pool_size": POOL,
                "log_level": "ERROR",
            }
        )
        DBOS.workflow(name="mail")(_mail)
        DBOS.launch()
        DBOS.register_queue("mail", worker_concurrency=at_once, polling_interval_sec=POLL_S)
        self._launched = True

    async def count(self) -> Mapping[str, Any]:
        """Say how many jobs were done here."""
        return _count.told()

    async def rest(self) -> Mapping[str, Any]:
        """Stop working and let go of everything."""
        if self._launched:
            await asyncio.to_thread(self._destroy)
        return {}  # the poster lives in the library's own loop, which has just ended, and ends with this process

    def _destroy(self) -> None:
        DBOS.destroy(destroy_registry=True)
        self._launched = False


if __name__ == "__main__":
    talk(OnDbos())
