"""The live invariants while everything goes wrong that may: nothing is broken, so nothing is ever counted."""

from __future__ import annotations

import asyncio
import itertools
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.stack import Stack, open_stack, until, users

PEOPLE = users(60)


@pytest.fixture
async def stack(tmp_path: Path, database_url: str, redis_url: str) -> AsyncIterator[Stack]:
    async with open_stack(tmp_path, database_url, redis_url) as opened:
        yield opened


async def watch(stack: Stack, alarms: list[object], looks: list[float]) -> None:
    """Ask without a pause."""
    while True:
        status, told = await stack.get("/v1/invariants")
        looks.append(asyncio.get_running_loop().time())
        if status != 200 or told["violations"]:
            alarms.append(told)


async def traffic(stack: Stack) -> None:
    for person in itertools.cycle(PEOPLE):
        await stack.signup(person)
        await stack.login(person)


async def faults(stack: Stack, **fields: object) -> None:
    async with stack.http.put(f"{stack['mock'].url}/api/faults", json=fields) as answer:
        assert answer.status == 200


@pytest.mark.timeout(240)
async def test_nothing_is_counted_where_nothing_is_broken(stack: Stack) -> None:
    """Kills, a frozen scheduler, lost answers, an outage, and days that pass at once, under traffic."""
    await stack.start_all(workers=2)
    await stack.signups(users(150, "waiting"))
    await stack.rows(
        "UPDATE workers SET started_at = started_at - interval '1 hour' RETURNING id"
    )  # old enough to blame
    alarms: list[object] = []
    looks: list[float] = []
    tasks = [asyncio.create_task(watch(stack, alarms, looks)), asyncio.create_task(traffic(stack))]
    try:
        await faults(stack, drop_response_rate=0.2, fail_rate=0.2, latency_ms=[5, 50])
        stack["scheduler"].signal(signal.SIGSTOP)
        await stack.advance(4 * 86_400)  # a hundred and fifty are overdue by a day, and the scheduler seems to live
        await asyncio.sleep(1)  # part of the fault
        stack["scheduler"].signal(signal.SIGCONT)
        stack["worker-0"].signal(signal.SIGKILL)
        await faults(stack, hang_s=5)  # nobody answers: breakers open, and claims of the dead wait behind them
        await asyncio.sleep(4)  # part of the fault: longer than a claim lasts
        await faults(stack)
        await stack.start("worker", "worker-0")

        async def quiet() -> bool:
            found = await stack.states()
            return found["scheduled"] + found["sending"] == 0 and found["sent"] >= 150

        tasks[1].cancel()
        await until(quiet, "all is sent or canceled", deadline_s=120)
        # One with a suspicion takes eight seconds: the first may have begun before the trouble, and end after it.
        enough = max(len(looks) + 2, 3)
        await until(lambda: len(looks) >= enough, "it was looked at after that")
    finally:
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
    assert [one for one in ended if not isinstance(one, asyncio.CancelledError)] == []
    assert alarms == []
    assert len(looks) >= 3
