"""The floor of a drain: the same client makes the same calls, with the same rendering or none, and no database."""

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
from notifier.lifecycle import collect_rarely
from notifier.proof.bench.own.ready import BareClient
from notifier.proof.bench.peers.talk import Count, each_of, talk
from notifier.runtime import way_out
from notifier.settings import Settings
from providers.base import Accepted, BatchProvider, Message

DATA: Mapping[str, Any] = {  # what the template may ask for, as a decision keeps it
    "user": {"id": "u1", "name": "Ada", "locale": "en", "timezone": None, "attributes": {}},
    "data": {},
}


class Rendering:
    """Renders every mail and sends it as a worker would."""

    def __init__(self, url: str, connections: int) -> None:
        settings = Settings(mock_url=url, worker_concurrency=connections)
        self._template = load_templates(settings, load_journeys(settings))["onboarding"]
        self._provider = way_out(settings)

    async def post(self, key: str, mails: int = 1) -> None:
        """Make one call for so many mails. Raises RuntimeError when they are not taken."""
        provider = self._provider
        assert isinstance(provider, BatchProvider)
        messages = [self._message(number) for number in range(mails)]
        contexts = [{"worker": "bare", "generation": "1", "user": f"u{n}", "kind": "onboarding"} for n in range(mails)]
        if mails == 1:
            outcomes = [await provider.send(messages[0], key, contexts[0])]
        else:
            outcomes = [*(await provider.send_batch(messages, key, contexts) or ())]
        if not outcomes or not all(isinstance(outcome, Accepted) for outcome in outcomes):
            raise RuntimeError(f"the receiver did not accept: {outcomes[:1]}")

    def _message(self, number: int) -> Message:
        return render(self._template, DATA, to=f"u{number}@example.com", kind="onboarding")

    async def close(self) -> None:
        """Let go of the connections."""
        await self._provider.close()


class Bare:
    """A driver of the bare client."""

    def __init__(self) -> None:
        self._count = Count()
        self._client: BareClient | Rendering | None = None
        self._mails = 1
        self._working: asyncio.Task[Any] | None = None

    async def hello(self) -> Mapping[str, Any]:
        """Say which versions run here."""
        return {"python": platform.python_version(), "version": notifier.version()}

    async def open(
        self, database: str, job: str, url: str, body: str, slots: int, mails: int, bodies: str, client: str
    ) -> Mapping[str, Any]:
        """Get ready."""
        self._client = Rendering(url, slots) if bodies == "rendered" else BareClient(client, url, body, slots)
        self._mails = mails
        return {}

    async def work(self, batch: int, slots: int) -> Mapping[str, Any]:
        """Send `batch` mails, with so many calls at once."""
        self._working = asyncio.create_task(self._send_all(batch, slots))
        return {}

    async def _send_all(self, number: int, at_once: int) -> None:
        client, mails = self._client, self._mails
        assert client is not None, "open comes first"

        async def send(index: int) -> None:
            await client.post(str(UUID(int=(os.getpid() << 64) + index)), mails)  # a key of no other process
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
        if self._client is not None:
            await self._client.close()
        return {}


if __name__ == "__main__":
    collect_rarely()  # as every process of the service does
    talk(Bare())
