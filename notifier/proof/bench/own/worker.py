"""Our worker as a driver: the real loop and statements, with mails it renders or mails that are ready."""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any

import notifier
from notifier import observe
from notifier.lifecycle import collect_rarely
from notifier.proof.bench.own.ready import AtOnce, BareClient, ReadyMade, Unrendered
from notifier.proof.bench.peers.talk import Count, talk
from notifier.runtime import open_runtime, way_out
from notifier.settings import Settings
from notifier.worker.loop import Worker
from providers.base import Provider


class OurWorker:
    """A driver of the worker."""

    def __init__(self) -> None:
        self._count = Count()
        self._stop = asyncio.Event()
        self._resources = AsyncExitStack()
        self._worker: Worker | None = None
        self._provider: Provider | None = None
        self._working: asyncio.Task[None] | None = None

    async def hello(self) -> Mapping[str, Any]:
        """Say which versions run here."""
        return {"python": platform.python_version(), "version": notifier.version()}

    async def open(
        self,
        database: str,
        job: str,
        url: str,
        body: str,
        slots: int,
        mails: int,
        bodies: str,
        client: str,
        redis: str | None = None,
        keys: bool = True,
    ) -> Mapping[str, Any]:
        """Get ready to work. Where bodies are not rendered here, the rest of a worker's way is the real one."""
        observe.configure_logging()
        settings = Settings(
            database_url=database, redis_url=redis, mock_url=url, worker_concurrency=slots, batch_max=mails
        )
        if bodies == "rendered":
            self._provider = way_out(settings)
        elif job == "noop":
            self._provider = AtOnce(self._count, keys=keys)
        else:
            self._provider = ReadyMade(BareClient(client, url, body, slots))
        runtime = await self._resources.enter_async_context(open_runtime(settings, "worker"))
        self._worker = Worker(runtime, self._provider, self._stop)
        if bodies != "rendered":
            self._worker.deliverer = Unrendered(runtime, self._provider, self._worker.breaker)
        return {}

    async def work(self, batch: int, slots: int) -> Mapping[str, Any]:
        """Begin to claim."""
        assert self._worker is not None, "open comes first"
        self._working = asyncio.create_task(self._worker.run())
        return {}

    async def count(self) -> Mapping[str, Any]:
        """Say how many mails a provider in here took; one over HTTP is asked itself."""
        if self._working is not None and self._working.done():
            await self._working  # says what ended it
        return self._count.told()

    async def rest(self) -> Mapping[str, Any]:
        """Drain, and let go of everything."""
        self._stop.set()
        if self._working is not None:
            await self._working
            self._working = None
        if self._provider is not None:
            await self._provider.close()
        await self._resources.aclose()
        return {}


if __name__ == "__main__":
    collect_rarely()  # as every process of the service does
    talk(OurWorker())
