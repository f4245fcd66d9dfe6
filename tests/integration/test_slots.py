"""How many claims a worker takes in hand, and when: with calls that end one by one, as the test says."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from notifier.proof.bench.filling import fill_owed
from notifier.proof.bench.own.ready import AtOnce, Unrendered
from notifier.proof.bench.peers.talk import Count
from notifier.store import deliveries
from notifier.worker import deliver, loop
from notifier.worker.loop import Worker
from providers.base import Accepted, Family, HandOver, Message, Outcome, Traits, Written
from tests.support.bench import Bench, a_bench
from tests.support.stack import until

TRAITS = Traits("mock", "mock:turnstile", Family.REJECT, timedelta(days=1))
BACKLOG = 40_000
PATIENT = {"claim_ttl_s": 60, "provider_timeout_s": 20}


@dataclass
class Turnstile:
    """A provider that takes mails when the test lets them through."""

    traits: Traits = TRAITS
    called: int = 0
    _passes: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))

    async def send(
        self,
        message: Message,
        key: str,
        context: Mapping[str, str],
        hand_over: HandOver | None = None,
        written: Written | None = None,
    ) -> Outcome | None:
        if hand_over is not None and not await hand_over():
            return None
        self.called += 1
        await self._passes.acquire()
        return Accepted(key)

    def let_through(self, number: int) -> None:
        for _ in range(number):
            self._passes.release()

    async def close(self) -> None:
        self.let_through(1_000)


@asynccontextmanager
async def at_a_turnstile(
    database_url: str, folder: Path, mails: int, **settings: Any
) -> AsyncIterator[tuple[Bench, Turnstile]]:
    """A bench with so many mails owed, and nobody working yet."""
    async with a_bench(database_url, folder, **PATIENT, **settings) as made:
        turnstile = Turnstile()
        for number in range(mails):
            await made.rig.accept("user.signed_up", f"u{number:02}")
        yield replace(made, provider=turnstile), turnstile


async def claims_of(bench: Bench) -> list[int]:
    """How many rows each claim that was ever made has taken, in their order."""
    rows = await bench.rig.rows(
        """
        SELECT count(*) AS number FROM (SELECT claimed_at FROM deliveries WHERE claimed_at IS NOT NULL
                                         UNION ALL SELECT claimed_at FROM settlements WHERE state = 'sent') AS c
         GROUP BY claimed_at ORDER BY claimed_at
        """
    )
    return [row["number"] for row in rows]


async def test_a_free_slot_waits_for_others(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 16 slots two are an eighth; an interval of 25 s helps nobody here."""
    monkeypatch.setattr(loop, "PATIENCE_S", 60.0)
    async with (
        at_a_turnstile(database_url, tmp_path, 18, worker_concurrency=16, poll_s=25) as (bench, turnstile),
        bench.working() as worker,
    ):
        worker._look_s = 25
        await bench.until_claimed(16)
        turnstile.let_through(1)
        await bench.ended(1)
        turnstile.let_through(1)
        await bench.ended(2)
        await bench.until_claimed(16)
        assert await claims_of(bench) == [8, 8, 2]
        turnstile.let_through(16)
        await bench.ended(18)


async def test_while_half_of_the_calls_end_the_other_half_goes_on(database_url: str, tmp_path: Path) -> None:
    async with (
        at_a_turnstile(database_url, tmp_path, 7, worker_concurrency=5, poll_s=25) as (bench, turnstile),
        bench.working(),
    ):
        await bench.until_claimed(5)
        assert await claims_of(bench) == [3, 2]
        turnstile.let_through(7)
        await bench.ended(7)


async def test_half_of_the_calls_are_full_calls(database_url: str, tmp_path: Path) -> None:
    async with a_bench(database_url, tmp_path, worker_concurrency=5, batch_max=2) as made:
        worker = Worker(made.runtime, AtOnce(Count(), keys=True), asyncio.Event())
        assert (worker.slots, worker._allowance()) == (10, 6)


@asynccontextmanager
async def working_at_once(made: Bench, provider: AtOnce) -> AsyncIterator[None]:
    """A worker whose mails are ready and whose provider is no way off."""
    stop = asyncio.Event()
    worker = Worker(made.runtime, provider, stop)
    worker.deliverer = Unrendered(made.runtime, provider, worker.breaker)
    working = asyncio.create_task(worker.run())
    try:
        yield
    finally:
        stop.set()
        await working


class Timed(AtOnce):
    """Says in which turn of the loop each call was made."""

    def __init__(self) -> None:
        super().__init__(Count(), keys=True)
        self.turn, self.calls = 0, []

    async def count_turns(self) -> None:
        while True:
            self.turn += 1
            await asyncio.sleep(0)

    async def send_batch(self, *arguments: Any, **named: Any) -> list[Outcome] | None:
        self.calls.append(self.turn)
        return await super().send_batch(*arguments, **named)


async def test_between_two_batches_the_loop_hears_what_came(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rendering a hundred mails takes ten milliseconds, and a claim brings ten such batches; these take no time."""
    monkeypatch.setattr(deliver, "TURN_S", 0.0)
    async with a_bench(database_url, tmp_path, worker_concurrency=40, batch_max=2) as made:
        async with made.rig.database.connection() as conn:
            await fill_owed(conn, 20)
        timed = Timed()
        turns = asyncio.create_task(timed.count_turns())
        async with working_at_once(made, timed):
            await made.ended(20)
        turns.cancel()
        assert len(timed.calls) == 10
        assert len(set(timed.calls)) == 10


async def test_but_not_for_long(database_url: str, tmp_path: Path) -> None:
    async with (
        at_a_turnstile(database_url, tmp_path, 18, worker_concurrency=16, poll_s=25) as (bench, turnstile),
        bench.working() as worker,
    ):
        worker._look_s = 25
        await bench.until_claimed(16)
        turnstile.let_through(1)
        await bench.ended(1)
        await bench.until_claimed(16)
        assert await claims_of(bench) == [8, 8, 1]
        turnstile.let_through(17)
        await bench.ended(18)


async def test_what_waits_to_be_written_takes_no_slot_but_has_a_bound(database_url: str, tmp_path: Path) -> None:
    """A lock keeps every result from being written: four more are called meanwhile, and then nobody."""
    async with (
        at_a_turnstile(database_url, tmp_path, 12, worker_concurrency=4, poll_s=25) as (bench, turnstile),
        bench.working() as worker,
    ):
        worker._look_s = 25
        await bench.until_claimed(4)
        async with bench.rig.database.transaction() as lock:
            await lock.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
            await lock.execute("SELECT FROM deliveries WHERE claimed_by IS NOT NULL FOR UPDATE")
            turnstile.let_through(4)
            await until(lambda: turnstile.called == 8, "four more are called", deadline_s=10)
            turnstile.let_through(4)
            await until(lambda: not worker._tasks, "all calls have ended")
            assert (turnstile.called, len(worker._held), worker._free) == (8, 8, 0)
            assert await bench.rig.value("SELECT count(*) FROM settlements") == 0
            turnstile.let_through(4)
        await bench.ended(12)


async def test_without_keys_it_takes_its_slot_until_it_is_written(database_url: str, tmp_path: Path) -> None:
    """What a crash would leave to a person is never more than the slots."""
    settings = {"worker_concurrency": 4, "poll_s": 25, "mock_family": "none"}
    async with at_a_turnstile(database_url, tmp_path, 8, **settings) as (made, turnstile):
        turnstile.traits = replace(TRAITS, family=Family.NONE)
        async with made.working() as worker:
            await made.until_claimed(4)
            await until(lambda: turnstile.called == 4, "four are called")
            async with made.rig.database.transaction() as lock:
                await lock.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
                await lock.execute("SELECT FROM deliveries WHERE claimed_by IS NOT NULL FOR UPDATE")
                turnstile.let_through(4)
                await until(lambda: not worker._tasks, "all calls have ended")
                assert (len(worker._held), worker._free) == (4, 0)
            turnstile.let_through(4)
            await made.ended(8)


@pytest.mark.parametrize("batch_max", [1, 100])
async def test_one_claim_takes_a_thousand_at_most(database_url: str, tmp_path: Path, batch_max: int) -> None:
    """However many slots are free, so that no statement lasts long."""
    async with a_bench(database_url, tmp_path, worker_concurrency=40, batch_max=batch_max) as made:
        async with made.rig.database.connection() as conn:
            await fill_owed(conn, 1_050)
        claimant = Worker(made.runtime, AtOnce(Count(), keys=True), asyncio.Event())._claimant
        async with made.runtime.database.connection() as conn:
            first, second = [await deliveries.claim(conn, claimant, ["onboarding"], 5_000) for _ in range(2)]
        assert (len(first), len(second)) == (1_000, 50)
        batches = Counter(claim.batch_id for claim in first)
        assert list(batches.values()) == ([1_000] if batch_max == 1 else [100] * 10)


@asynccontextmanager
async def in_a_backlog(database_url: str, folder: Path, **settings: Any) -> AsyncIterator[Bench]:
    """A worker for which claim follows claim, because its mails are ready and its provider is no way off.

    Before all others one stands that a dead worker has claimed.
    """
    settings |= {"worker_concurrency": 40, "batch_max": 100}
    async with a_bench(database_url, folder, **settings) as made:
        await made.rig.accept("user.signed_up", "ada")
        await made.claim()
        async with made.rig.database.connection() as conn:
            await fill_owed(conn, BACKLOG)
        async with working_at_once(made, AtOnce(Count(), keys=True)):
            yield made


async def test_in_a_backlog_what_a_dead_worker_left_is_taken_over(database_url: str, tmp_path: Path) -> None:
    async with in_a_backlog(database_url, tmp_path, poll_s=0.1) as made:

        async def taken_over() -> bool:
            return bool(await made.rig.value("SELECT count(*) FROM deliveries WHERE user_id = 'ada'") == 0)

        await until(taken_over, "what the dead worker left is sent", deadline_s=10)
        assert await made.rig.value("SELECT count(*) FROM deliveries") > 0
