"""Events, batches, logins, operators, releases and workers on the same users at once: no deadlock, no third case."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from notifier import failpoints, observe
from notifier.domain.errors import Busy, CallerError
from notifier.domain.notification import Settlement, State
from notifier.operate import Act, Operator
from notifier.store import invariants, moves, results
from notifier.store.deliveries import Claim
from notifier.store.results import Result
from tests.support.rig import SENT, Rig, a_call, ago, open_rig

SIGNUP, LOGIN = "user.signed_up", "user.logged_in"
USERS = [f"user{number}" for number in range(40)]
SECONDS = 6.0
DELAY = timedelta(days=3)
AMBIGUOUS = Settlement(State.PENDING, "http_503", doubt=True)
REFUSED = Settlement(State.PENDING, "rate_limited", doubt=False, counted=False)
NOT_BEGUN = Settlement(State.PENDING, None, doubt=False, counted=False)


@dataclass
class World:
    """What an observer outside would have seen."""

    rigs: list[Rig]
    accepted: dict[UUID, int] = field(default_factory=dict)  # taken by the provider: notification → times
    promised: set[str] = field(default_factory=set)  # canceled by an event: never to be called again
    broken: list[str] = field(default_factory=list)
    random: random.Random = field(default_factory=lambda: random.Random(7))
    judged: int = 0
    over: bool = False

    def call(self, claim: Claim) -> None:
        """The provider takes it, once per key."""
        if str(claim.id) in self.promised:
            self.broken.append(f"{claim.kind} of {claim.user_id} was canceled and is called")
        self.accepted[claim.id] = 1

    def told(self, answer: Any) -> None:
        """An event was answered."""
        for row in answer["canceled"]:
            self.promised.add(row["id"])
            if UUID(row["id"]) in self.accepted:
                self.broken.append(f"{row['kind']} is answered canceled and was accepted before")
        for row in answer["too_late"]:
            if row["since"] is None:
                self.broken.append(f"too late since never: {row}")
            if row["id"] in self.promised:
                self.broken.append(f"canceled before and too late now: {row}")


async def _events(world: World, rig: Rig, types: list[str]) -> None:
    while not world.over:
        user = world.random.choice(USERS)
        # The follow-ups of these signups fall due within the next seconds.
        at = ago(days=3) + timedelta(seconds=world.random.random() * SECONDS)
        with suppress(Busy):
            if world.random.choice(types) == SIGNUP:
                world.told(await rig.accept(SIGNUP, user, at))
            else:
                world.told(await rig.accept(LOGIN, user))


async def _batches(world: World, rig: Rig) -> None:
    """Many users at once, as /batch does: they meet in one transaction."""
    while not world.over:
        some = world.random.sample(USERS, 12)
        answers = await asyncio.gather(
            *(rig.accept(world.random.choice([SIGNUP, LOGIN]), user, ago(days=2)) for user in some),
            return_exceptions=True,
        )
        for answer in answers:
            if isinstance(answer, BaseException):
                assert isinstance(answer, Busy), answer
            else:
                world.told(answer)


async def _release(world: World, rig: Rig) -> None:
    while not world.over:
        async with rig.database.connection() as conn:
            await moves.release(conn)
        await asyncio.sleep(0.01)


async def _work(world: World, rig: Rig, name: str) -> None:
    """Claim, take over, call, settle, give back; sometimes too slowly, so that others take over."""
    while not world.over:
        ttl_s = world.random.choice([0.02, 5])
        claims = await rig.claim(name, ttl_s, limit=10)
        claims += await rig.take_over(name, ttl_s)
        made = []
        for claim in claims:
            settlement = world.random.choice([SENT, SENT, AMBIGUOUS, REFUSED, NOT_BEGUN])
            if settlement in (SENT, AMBIGUOUS):
                async with rig.database.connection() as conn:
                    # The last look of a worker: it makes no call when its claim is gone or too short.
                    if await conn.fetchval(
                        "SELECT count(*) FROM deliveries WHERE id = $1 AND generation = $2 AND claimed_by = $3",
                        claim.id,
                        claim.generation,
                        name,
                    ):
                        world.call(claim)
                    else:
                        settlement = NOT_BEGUN
            if claim.in_doubt and settlement is REFUSED:
                settlement = AMBIGUOUS
            made.append(Result(claim, settlement, None if settlement is NOT_BEGUN else a_call(settlement), "w"))
        await asyncio.sleep(world.random.choice([0, 0, 0.05]))
        async with rig.database.connection() as conn:
            if final := [r for r in made if r.settlement.state is not State.PENDING]:
                await results.settle(conn, name, final)
            if back := [r for r in made if r.settlement.state is State.PENDING]:
                await results.put_back(conn, name, back)
        await asyncio.sleep(0.005)


RULES = (
    invariants.doubled_or_lost,
    invariants.promised_and_missing,
    invariants.accepted_twice,
    invariants.canceled_and_called,
    invariants.unasked,
    invariants.sent_and_record_differ,
)


async def _judge(world: World, rig: Rig) -> None:
    """Ask for the invariants all the while: none is ever broken, not even for a moment."""
    while not world.over:
        async with rig.database.connection() as conn:
            for rule in RULES:
                if found := await rule(conn):
                    world.broken.append(f"{rule.__name__}: {found}")
        world.judged += 1
        await asyncio.sleep(0.01)


async def _operate(world: World, rig: Rig) -> None:
    operator = Operator(rig.database, rig.ingest.wakeup)
    while not world.over:
        rows = await rig.rows("SELECT id, state, generation, reason FROM notifications ORDER BY random() LIMIT 5")
        for row in rows:
            act = Act(row["id"], row["generation"], "key:test", "a test")
            with suppress(CallerError, Busy):
                if row["state"] in ("scheduled", "pending") and world.random.random() < 0.3:
                    await operator.cancel(act)
                elif row["state"] == "canceled" and row["reason"] == "operator":
                    await operator.retry(act)
        await asyncio.sleep(0.02)


@pytest.fixture
async def world(database_url: str) -> AsyncIterator[World]:
    async with AsyncExitStack() as stack:
        yield World([await stack.enter_async_context(open_rig(database_url)) for _ in range(2)])


@pytest.mark.parametrize(
    "armed",
    ["", "ingest.after_lock=pause:0.02@0.3", "login.between_cancels=pause:0.02@0.5"],
    ids=["plain", "slow-under-lock", "slow-between-cancels"],
)
async def test_all_paths_at_once(world: World, armed: str) -> None:
    one, other = world.rigs
    left_standing = observe.answers_left_standing()
    failpoints.arm(armed)
    try:
        tasks = [
            asyncio.create_task(path)
            for path in (
                *(_events(world, rig, [SIGNUP, LOGIN]) for rig in world.rigs for _ in range(6)),
                _batches(world, one),
                _batches(world, other),
                _release(world, one),
                _release(world, other),
                *(_work(world, rig, f"w{number}") for number, rig in enumerate([one, other, one])),
                _operate(world, one),
                _operate(world, other),
                _judge(world, one),
            )
        ]
        await asyncio.sleep(SECONDS)  # the length of the race
        world.over = True
        await asyncio.gather(*tasks)
    finally:
        failpoints.arm("")
    assert world.broken == []
    assert world.judged > 5
    assert observe.answers_left_standing() == left_standing
    assert len(world.promised) > 5
    assert len(world.accepted) > 20
    assert await one.value("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()") == 0
    places = await one.rows(
        "SELECT o.id, (s.id IS NOT NULL)::int + (d.id IS NOT NULL)::int + (t.id IS NOT NULL)::int AS places "
        "FROM outbox o LEFT JOIN scheduled_sends s USING (id) LEFT JOIN deliveries d USING (id) "
        "LEFT JOIN settlements t USING (id)"
    )
    assert {row["places"] for row in places} == {1}
    canceled_for_good = await one.rows("SELECT id FROM settlements WHERE state = 'canceled' AND reason = 'login'")
    assert not {row["id"] for row in canceled_for_good} & set(world.accepted)
