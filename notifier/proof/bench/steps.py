"""The hot steps one by one, timed against a database: claim, ingest, release, login."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from notifier.domain.event import API, Event, Profile, fingerprint
from notifier.domain.notification import Settlement, State
from notifier.ingest.transaction import Accepted, Door, transact
from notifier.proof.bench.filling import fill_owed, fill_waiting
from notifier.proof.bench.processes import Broken
from notifier.runtime import Runtime, open_runtime
from notifier.settings import Settings
from notifier.store import deliveries, moves, results
from notifier.store.deliveries import Claim, Claimant
from notifier.store.results import Call, Result
from notifier.worker.resume import LOOK_S, Resume

CLAIM = 100
GROUP = 200
RELEASE = 500
LOCK_TIMEOUT_S = 2.0
COMING = 10_000_000  # users who come in between are numbered from here
SENT = Settlement(State.SENT, None, doubt=False, evidence="accepted", message_id="m")


@dataclass(slots=True)
class Steps:
    """Does each step some times and gives how long each took, in seconds."""

    runtime: Runtime
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    async def claim(self, times: int, *, looks: bool = False) -> list[float]:
        """Claim 100 of a backlog; settle them out of the way.

        A worker looks at everything once a second, and its claims begin where that look says, or behind each other.
        `looks`: time only claims that a look comes before, with the look; else only claims, and the look apart.
        """
        return await self._claims(times, CLAIM, looks=looks)

    async def claim_what_comes(self, times: int) -> list[float]:
        """Claim 100 that have just come, and are all there is: no claim is ever full."""
        return await self._claims(times, 2 * CLAIM, coming=True)

    async def _claims(self, times: int, limit: int, *, looks: bool = False, coming: bool = False) -> list[float]:
        took = []
        kinds = list(self.runtime.templates)
        resume = Resume()
        looked_at = float("-inf")
        async with self.runtime.database.connection() as conn:
            for _ in range(times):
                if coming:
                    await fill_owed(conn, CLAIM, COMING + next(self._numbers) * CLAIM)
                began = time.perf_counter()
                if looks or began - looked_at >= LOOK_S:
                    looked_at = began
                    resume.see(await deliveries.look(conn, self._claimant))
                    if not looks:
                        began = time.perf_counter()
                claims = await deliveries.claim(conn, self._claimant, kinds, limit, resume.places(kinds))
                took.append(time.perf_counter() - began)
                resume.learn(claims, limit)
                if len(claims) != CLAIM:
                    raise Broken(f"{len(claims)} of {CLAIM} were there to be claimed")
                await results.settle(conn, self._claimant.worker, [self._sent(claim) for claim in claims])
        return took

    async def look(self, times: int) -> list[float]:
        """Look at everything, as a worker does once a second."""
        took = []
        async with self.runtime.database.connection() as conn:
            for _ in range(times):
                began = time.perf_counter()
                await deliveries.look(conn, self._claimant)
                took.append(time.perf_counter() - began)
        return took

    async def ingest(self, times: int) -> list[float]:
        """Take in 200 signups of new users in one transaction."""
        took = []
        for _ in range(times):
            events = [self._event("user.signed_up", f"new{next(self._numbers)}") for _ in range(GROUP)]
            took.append(await self._transact(events))
        return took

    async def login(self, users: Sequence[str]) -> list[float]:
        """Take in the login of each of these users, which cancels something."""
        return [await self._transact([self._event("user.logged_in", user)], cancels=1) for user in users]

    async def release(self, times: int) -> list[float]:
        """Release 500 that have just become due."""
        took = []
        async with self.runtime.database.connection() as conn:
            for _ in range(times):
                first = next(self._numbers) * RELEASE + 1
                await fill_waiting(conn, RELEASE, datetime.now(UTC) - timedelta(seconds=1), first)
                began = time.perf_counter()
                released = await moves.release(conn)
                took.append(time.perf_counter() - began)
                if released.owed != RELEASE:
                    raise Broken(f"{released.owed} of {RELEASE} were released")
        return took

    async def _transact(self, events: Sequence[Event], cancels: int = 0) -> float:
        door = Door(self.runtime.database, self.runtime.journeys, self.runtime.wakeup)
        began = time.perf_counter()
        outcomes = await transact(door, events, LOCK_TIMEOUT_S)
        took = time.perf_counter() - began
        for outcome in outcomes:
            if not isinstance(outcome, Accepted):
                raise Broken(f"an event was not accepted: {outcome}")
            if len(outcome.answer["canceled"]) != cancels:
                raise Broken(f"a login canceled {len(outcome.answer['canceled'])}, not {cancels}")
        return took

    def _event(self, type_: str, user: str) -> Event:
        number = next(self._numbers)
        profile = Profile(email=f"{user}@example.com", name="Ada") if type_ == "user.signed_up" else Profile()
        content = {"type": type_, "user": user, "number": number}
        return Event(API, f"step_{number}", type_, user, datetime.now(UTC), fingerprint(content), profile, {})

    @property
    def _claimant(self) -> Claimant:
        templates = {kind: template.hash for kind, template in self.runtime.templates.items()}
        return Claimant("bench", timedelta(seconds=30), templates, "mock", "mock:bench", has_keys=True)

    def _sent(self, claim: Claim) -> Result:
        return Result(claim, SENT, Call("accepted", None, began=0.0, took_s=0.001), "worker:bench")


@contextlib.asynccontextmanager
async def open_steps(database_url: str) -> AsyncIterator[Steps]:
    """Open what the steps need, in this process."""
    async with open_runtime(Settings(database_url=database_url), "worker") as runtime:
        yield Steps(runtime)
