"""The floor of a drain: the same client makes the same calls, and there is no database."""

from __future__ import annotations

import asyncio
import os
import platform
from collections.abc import Mapping
from typing import Any
from uuid import UUID

import notifier
from notifier.domain.message import render
from notifier.journeys import load_journeys, load_templates
from notifier.proof.bench.peers.talk import Count, each_of, talk
from notifier.runtime import way_out
from notifier.settings import Settings
from providers.base import Accepted, BatchProvider, Message, Provider

DATA: Mapping[str, Any] = {
    "user": {"id": "u1", "name": "Ada", "locale": "en", "timezone": None, "attributes": {}},
    "data": {},
}


def ready_message(settings: Settings, number: int) -> Message:
    """Render what a worker would send to the n-th user."""
    journeys = load_journeys(settings)
    template = load_templates(settings, journeys)["onboarding"]
    return render(template, DATA, to=f"u{number}@example.com", kind="onboarding")


class Bare:
    """A driver of the bare client."""

    def __init__(self) -> None:
        self._count = Count()
        self._provider: Provider | None = None
        self._message: Message | None = None
        self._mails = 1
        self._working: asyncio.Task[Any] | None = None

    async def hello(self) -> Mapping[str, Any]:
        """Say which versions run here."""
        return {"python": platform.python_version(), "version": notifier.version()}

    async def open(self, database: str, job: str, url: str, body: str, slots: int, mails: int = 1) -> Mapping[str, Any]:
        """Get ready."""
        settings = Settings(mock_url=url, worker_concurrency=slots)
        self._provider, self._message, self._mails = way_out(settings), ready_message(settings, 1), mails
        return {}

    async def work(self, batch: int, slots: int) -> Mapping[str, Any]:
        """Send `batch` mails, with so many calls at once."""
        self._working = asyncio.create_task(self._send_all(batch, slots))
        return {}

    async def _send_all(self, number: int, at_once: int) -> None:
        provider, message, mails = self._provider, self._message, self._mails
        assert isinstance(provider, BatchProvider)
        assert message is not None

        async def send(index: int) -> None:
            key = str(UUID(int=(os.getpid() << 64) + index))  # of no other process
            context = {"worker": "bare", "generation": "1", "user": f"u{index}", "kind": "onboarding"}
            outcome: object
            if mails == 1:
                outcome = await provider.send(message, key, context)
            else:
                outcomes = await provider.send_batch([message] * mails, key, [context] * mails)
                outcome = outcomes and outcomes[-1]
            if not isinstance(outcome, Accepted):
                raise RuntimeError(f"the receiver did not accept: {outcome}")
            self._count.add(mails)

        await each_of(number // mails, at_once, send)

    async def count(self) -> Mapping[str, Any]:
        """Say how many were sent."""
        if self._working is not None and self._working.done():
            await self._working  # says what ended it
        return self._count.told()

    async def rest(self) -> Mapping[str, Any]:
        """Let go of everything."""
        if self._working is not None:
            self._working.cancel()
            await asyncio.gather(self._working, return_exceptions=True)
            self._working = None
        if self._provider is not None:
            await self._provider.close()
        return {}


if __name__ == "__main__":
    talk(Bare())
