"""Our worker as a driver: the real loop, with the mock's client or with a provider that takes everything at once."""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

import notifier
from notifier import observe
from notifier.proof.bench.peers.talk import Count, talk
from notifier.runtime import open_runtime, way_out
from notifier.settings import Settings
from notifier.worker.loop import Worker
from providers.base import Accepted, Family, HandOver, Message, Outcome, Provider, Traits, Written


class AtOnce:
    """A provider that is no further away than a function call."""

    def __init__(self, count: Count, *, keys: bool) -> None:
        self._count = count
        family, batch_max = (Family.REJECT, 100) if keys else (Family.NONE, 1)
        self.traits = Traits("mock", "mock:bench", family, timedelta(days=1), batch_max)

    async def send(
        self,
        message: Message,
        key: str,
        context: Mapping[str, str],
        hand_over: HandOver | None = None,
        written: Written | None = None,
    ) -> Outcome | None:
        """Take it."""
        if hand_over is not None and not await hand_over():
            return None
        self._count.add()
        return Accepted("at-once")

    async def send_batch(
        self,
        messages: Sequence[Message],
        key: str,
        contexts: Sequence[Mapping[str, str]],
        hand_over: HandOver | None = None,
        written: Written | None = None,
    ) -> list[Outcome] | None:
        """Take all of them."""
        if hand_over is not None and not await hand_over():
            return None
        self._count.add(len(messages))
        return [Accepted("at-once")] * len(messages)

    async def close(self) -> None:
        """Nothing to let go of."""


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
        mails: int = 1,
        redis: str | None = None,
        keys: bool = True,
    ) -> Mapping[str, Any]:
        """Get ready to work. The body is rendered here, whatever others are given."""
        observe.configure_logging()
        settings = Settings(
            database_url=database, redis_url=redis, mock_url=url, worker_concurrency=slots, batch_max=mails
        )
        self._provider = AtOnce(self._count, keys=keys) if job == "noop" else way_out(settings)
        runtime = await self._resources.enter_async_context(open_runtime(settings, "worker"))
        self._worker = Worker(runtime, self._provider, self._stop)
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
    talk(OurWorker())
