"""What a mail and an event cost the database, in bytes of log, commits and statements: none of it may grow unseen.

Counts, never times: they are the same on every machine. Where a change is meant to cost more, the bound moves with it.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
import pytest_asyncio

from notifier.ingest.transaction import Accepted, Door, transact
from notifier.proof.bench.filling import fill_history, fill_owed, fill_waiting, user_of
from notifier.proof.bench.own.ready import AtOnce, Unrendered
from notifier.proof.bench.peers.talk import Count
from notifier.proof.bench.stage import Stage, open_stage
from notifier.proof.bench.steps import GROUP, LOCK_TIMEOUT_S, RELEASE, open_steps
from notifier.runtime import open_runtime
from notifier.settings import Settings
from notifier.store import moves
from notifier.worker import deliver
from notifier.worker.loop import Worker
from tests.support.rig import ago, an_event
from tests.support.stack import until

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.database, pytest.mark.timeout(120)]

MAILS = 400
GROUPS = 3
SIGNUP = "user.signed_up"
EVENTS = 50
# Nothing but what is measured writes, and what it writes does not depend on when a page was last written out.
QUIET = {"autovacuum": "off", "full_page_writes": "off", "bgwriter_delay": "10s"}
# Beside what the service asks: how often a process says that it lives is a matter of time, and what the driver asks of
# a new connection one of how many were needed.
CALLS = r"""
    SELECT coalesce(sum(calls) FILTER (WHERE NOT is_beat), 0)::int AS statements,
           coalesce(sum(calls) FILTER (WHERE is_beat AND query ~* '^\s*insert'), 0)::int AS beats
      FROM (SELECT s.calls, s.query, s.query ~ '\mworkers\M' AS is_beat
              FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid
             WHERE d.datname = $1 AND s.query !~ 'typeinfo_tree|set_config') AS x
"""


@dataclass(frozen=True)
class Cost:
    """Bytes of log without full-page images per unit; commits that wrote and statements in all."""

    wal_bytes: float
    commits: int
    statements: int

    def is_within(self, bound: Cost) -> bool:
        return (
            self.wal_bytes <= bound.wal_bytes and self.commits <= bound.commits and self.statements <= bound.statements
        )


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage() -> AsyncIterator[Stage]:
    async with open_stage(lambda _: None, sys.executable) as opened:
        for name, value in QUIET.items():
            await opened.conn.execute(f"ALTER SYSTEM SET {name} = '{value}'")
        await opened.conn.execute("SELECT pg_reload_conf()")
        yield opened


async def cost_of(stage: Stage, database: str, number: int, do: Callable[[], Awaitable[object]]) -> Cost:
    """What `do` costs the database, which does so many units."""
    async with stage.connected(database) as conn:
        await conn.execute("VACUUM ANALYZE")  # so that nothing of the filling is left to be done by the first reader
    await stage.calm()
    asked = await stage.conn.fetchrow(CALLS, database)
    before = await stage.meter.read(database, {})
    await do()
    after = await stage.meter.read(database, {})
    asked_after = await stage.conn.fetchrow(CALLS, database)
    cost = await stage.meter.cost(before, after)
    assert cost.commits is not None
    return Cost(
        round(cost.wal_bytes / number, 1),
        cost.commits - (asked_after["beats"] - asked["beats"]),
        asked_after["statements"] - asked["statements"],
    )


@asynccontextmanager
async def a_worker(
    stage: Stage, database: str, *, slots: int, mails: int
) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """Give what drains a database with a provider that is no further away than a function call."""
    count, stop = Count(), asyncio.Event()
    settings = Settings(
        database_url=stage.url(database),
        redis_url=stage.redis_url,
        worker_concurrency=slots,
        batch_max=mails,
        poll_s=20,
    )
    async with open_runtime(settings, "worker") as runtime:
        worker = Worker(runtime, AtOnce(count, keys=True), stop)
        worker._look_s = settings.poll_s  # one look, however slow the machine
        worker.deliverer = Unrendered(runtime, worker.provider, worker.breaker)

        async def drain() -> None:
            working = asyncio.create_task(worker.run())

            async def done() -> bool:
                return count.done == MAILS

            await until(done, f"{MAILS} mails are sent", deadline_s=60)
            stop.set()
            await working

        yield drain


# How it is drained: calls in hand (twice as many as are needed: a claim takes half of them), mails a call; and the most
# it may cost.
DRAINS = {
    "singles": (1_000, 1, Cost(850, 2, 4)),
    "batches": (40, 100, Cost(885, 2, 4)),
}


@pytest.mark.parametrize("how", DRAINS)
async def test_a_mail_costs_no_more(stage: Stage, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deliver, "TURN_S", 60)  # all batches are called in one turn, however slow the machine
    slots, mails, bound = DRAINS[how]
    async with stage.database("costs", ours=True) as database:
        async with stage.connected(database) as conn:
            await fill_owed(conn, MAILS)
        async with a_worker(stage, database, slots=slots, mails=mails) as drain:
            cost = await cost_of(stage, database, MAILS, drain)
        async with stage.connected(database) as conn:
            assert await conn.fetchval("SELECT count(*) FROM settlements WHERE state = 'sent'") == MAILS
    assert cost.is_within(bound), f"{how}: {cost}, and at most {bound}"


async def test_an_event_in_a_group_costs_no_more(stage: Stage) -> None:
    async with stage.database("costs", ours=True) as database, open_steps(stage.url(database)) as steps:
        cost = await cost_of(stage, database, GROUP * GROUPS, lambda: steps.ingest(GROUPS))
    bound = Cost(2_420, GROUPS, 5 * GROUPS)
    assert cost.is_within(bound), f"{cost}, and at most {bound}"


async def test_an_event_by_itself_costs_no_more(stage: Stage) -> None:
    events = [an_event(SIGNUP, f"single{number}") for number in range(EVENTS)]
    async with (
        stage.database("costs", ours=True) as database,
        open_runtime(Settings(database_url=stage.url(database)), "api") as runtime,
    ):
        door = Door(runtime.database, runtime.journeys, runtime.wakeup)

        async def one_by_one() -> None:
            for event in events:
                [outcome] = await transact(door, [event], LOCK_TIMEOUT_S)
                assert isinstance(outcome, Accepted)

        cost = await cost_of(stage, database, EVENTS, one_by_one)
    bound = Cost(2_470, EVENTS, 6 * EVENTS)
    assert cost.is_within(bound), f"{cost}, and at most {bound}"


async def test_a_login_costs_no_more(stage: Stage) -> None:
    async with stage.database("costs", ours=True) as database:
        async with stage.connected(database) as conn:
            await fill_history(conn, 1, EVENTS, EVENTS)
        async with open_steps(stage.url(database)) as steps:
            users = [user_of(number) for number in range(1, EVENTS + 1)]
            cost = await cost_of(stage, database, EVENTS, lambda: steps.login(users))
    bound = Cost(1_380, EVENTS, 11 * EVENTS)
    assert cost.is_within(bound), f"{cost}, and at most {bound}"


async def test_a_release_costs_no_more(stage: Stage) -> None:
    async with stage.database("costs", ours=True) as database, stage.connected(database) as conn:
        await fill_waiting(conn, RELEASE, ago(seconds=1))
        cost = await cost_of(stage, database, RELEASE, lambda: moves.release(conn))
    bound = Cost(460, 1, 1)
    assert cost.is_within(bound), f"{cost}, and at most {bound}"
