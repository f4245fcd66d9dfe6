"""Our ingest as a driver: callers who each await their own committed event, in one process."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import Any

import notifier
from notifier.domain.event import API, Event, Profile, fingerprint
from notifier.ingest import Ingest
from notifier.lifecycle import collect_rarely
from notifier.proof.bench.peers.talk import each_of, talk
from notifier.runtime import background, open_runtime
from notifier.settings import Settings


def signups(number: int, tag: str = "u") -> Sequence[Event]:
    """Events of as many new users."""
    now = datetime.now(UTC)
    return [_signup(f"{tag}{index}", now) for index in range(number)]


def _signup(user: str, at: datetime) -> Event:
    profile = Profile(email=f"{user}@example.com", name="Ada", locale="en")
    content = {"type": "user.signed_up", "user": {"id": user, "email": profile.email}, "occurred_at": at.isoformat()}
    return Event(API, f"evt_{user}", "user.signed_up", user, at, fingerprint(content), profile, {})


class OurIngest:
    """A driver of the ingest."""

    async def hello(self) -> Mapping[str, Any]:
        """Say which versions run here."""
        return {"python": platform.python_version(), "version": notifier.version()}

    async def enqueue(self, database: str, number: int, callers: int) -> Mapping[str, Any]:
        """Accept events of as many new users; the events are made beforehand."""
        events = signups(number)
        settings = Settings(database_url=database)
        async with AsyncExitStack() as stack:
            runtime = await stack.enter_async_context(open_runtime(settings, "api"))
            ingest = Ingest(runtime.database, runtime.journeys, runtime.wakeup, pool_size=settings.pool_size)
            await stack.enter_async_context(background(ingest.run()))
            return await each_of(number, callers, lambda index: ingest.accept(events[index]))

    async def rest(self) -> Mapping[str, Any]:
        """Nothing is left open."""
        return {}


if __name__ == "__main__":
    collect_rarely()  # as every process of the service does
    talk(OurIngest())
