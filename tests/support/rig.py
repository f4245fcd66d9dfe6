"""The parts of the service in this process, on a database of the test's own."""

from __future__ import annotations

import itertools
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from notifier.coordination.client import RedisClient
from notifier.coordination.wakeup import Wakeup
from notifier.domain.event import API, Event, Profile, fingerprint
from notifier.domain.journey import Journeys
from notifier.domain.notification import Settlement, State
from notifier.ingest import Accepted, Ingest
from notifier.journeys import load_journeys, load_templates
from notifier.runtime import background
from notifier.settings import Settings
from notifier.store import deliveries, results, templates
from notifier.store.database import Database, open_database
from notifier.store.deliveries import Claim, Claimant
from notifier.store.results import Call, Result

_ids = itertools.count(1)
ACCOUNT = "mock:test"
SENT = Settlement(State.SENT, None, doubt=False, evidence="accepted", message_id="m_1")


@dataclass(frozen=True, slots=True)
class Rig:
    """A database, an ingest on it, and short-hands."""

    settings: Settings
    database: Database
    journeys: Journeys
    ingest: Ingest

    async def accept(self, *args: Any, **fields: Any) -> Mapping[str, Any]:
        accepted: Accepted = await self.ingest.accept(an_event(*args, **fields))
        return accepted.answer

    async def rows(self, query: str, *arguments: Any) -> list[dict[str, Any]]:
        async with self.database.connection() as conn:
            return [dict(row) for row in await conn.fetch(query, *arguments)]

    async def value(self, query: str, *arguments: Any) -> Any:
        async with self.database.connection() as conn:
            return await conn.fetchval(query, *arguments)

    async def states(self, user: str) -> dict[str, str]:
        rows = await self.rows("SELECT kind, state FROM notifications WHERE user_id = $1", user)
        return {row["kind"]: row["state"] for row in rows}

    def claimant(self, worker: str, ttl_s: float = 30, *, has_keys: bool = True) -> Claimant:
        hashes = {kind: template.hash for kind, template in load_templates(self.settings, self.journeys).items()}
        return Claimant(worker, timedelta(seconds=ttl_s), hashes, "mock", ACCOUNT, has_keys)

    async def claim(self, worker: str = "w1", ttl_s: float = 30, limit: int = 100, **traits: Any) -> list[Claim]:
        claimant = self.claimant(worker, ttl_s, **traits)
        async with self.database.connection() as conn:
            return await deliveries.claim(conn, claimant, list(claimant.templates), limit)

    async def take_over(self, worker: str = "w2", ttl_s: float = 30, **traits: Any) -> list[Claim]:
        claimant = self.claimant(worker, ttl_s, **traits)
        async with self.database.connection() as conn:
            ids = [row.id for row in (await deliveries.look(conn, claimant)).expired]
            return await deliveries.take_over(conn, claimant, list(claimant.templates), ids)

    async def settle(self, worker: str, claims: Sequence[Claim], settlement: Settlement = SENT) -> int:
        """Write the same settlement for all; how many were ours."""
        made = [Result(claim, settlement, a_call(settlement), f"worker:{worker}") for claim in claims]
        async with self.database.connection() as conn:
            if settlement.state is State.PENDING:
                return len(await results.put_back(conn, worker, made))
            return len((await results.settle(conn, worker, made)).ids)


def a_call(settlement: Settlement) -> Call:
    outcome = "accepted" if settlement.state is State.SENT else "ambiguous" if settlement.doubt else "retry_later"
    return Call(outcome, settlement.reason, began=0.0, took_s=0.01)


def an_event(
    type_: str,
    user: str,
    occurred_at: datetime | None = None,
    *,
    id_: str = "",
    source: str = API,
    data: Mapping[str, Any] | None = None,
    **profile: Any,
) -> Event:
    """Make an event; a signup has an address unless told otherwise."""
    if type_ == "user.signed_up":
        profile = {"email": f"{user}@example.com", **profile}
    id_ = id_ or f"evt_{next(_ids)}_{random.randrange(10**9)}"
    content = {"type": type_, "user": user, "at": str(occurred_at), "data": data, **profile}
    return Event(source, id_, type_, user, occurred_at, fingerprint(content), Profile(**profile), data or {})


def ago(**parts: float) -> datetime:
    return datetime.now(UTC) - timedelta(**parts)


@asynccontextmanager
async def open_rig(database_url: str, **settings: Any) -> AsyncIterator[Rig]:
    """Open the parts; `settings` as Settings has them."""
    made = Settings(database_url=database_url, **settings)
    journeys = load_journeys(made)
    database = await open_database(made)
    redis = RedisClient(made.redis_url)
    ingest = Ingest(database, journeys, Wakeup(redis, made.redis_url), pool_size=made.pool_size)
    try:
        async with database.connection() as conn:
            await templates.keep(conn, list(load_templates(made, journeys).values()))
        async with background(ingest.run()):
            yield Rig(made, database, journeys, ingest)
    finally:
        await redis.close()
        await database.close()
