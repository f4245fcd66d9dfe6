"""Redis off, flushed, frozen or lying changes no outcome and keeps nobody waiting."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest
from redis.asyncio import Redis

from notifier import embedded
from notifier.proof.chaos.liars import Lie, always, denies, grants, lying_redis
from tests.support.stack import Stack, open_stack, users

NONSENSE = always(b"*2\r\n$3\r\nfoo\r\n:7\r\n")
SLOW_S = 1.0  # far above what is promised, and far below what waiting for a dead Redis would take


async def _hundred(stack: Stack) -> None:
    """A hundred signups: each answered soon, each mailed once."""
    before = sum((await stack.mails()).values())
    people = users(100)

    async def timed(person: str) -> float:
        started = time.monotonic()
        await stack.signup(person)
        return time.monotonic() - started

    took: list[float] = []
    for start in range(0, 100, 10):
        took += await asyncio.gather(*(timed(person) for person in people[start : start + 10]))
    assert sorted(took)[94] < SLOW_S
    mails = await stack.until_mails(before + 100)
    assert [mails[person, "onboarding"] for person in people] == [1] * 100
    await stack.until_states(pending=0, sending=0)


async def test_redis_flushed_frozen_and_stopped_under_load(tmp_path: Path, database_url: str) -> None:
    folder = tmp_path / "valkey"
    folder.mkdir(mode=0o700)
    valkey = await embedded.start_valkey(folder)
    try:
        async with open_stack(tmp_path, database_url, valkey.url) as stack:
            await stack.start_all(workers=2)
            enough = asyncio.Event()
            flushing = asyncio.create_task(_flush(valkey.url, enough))
            await _hundred(stack)
            enough.set()
            await flushing
            os.kill(valkey.pid, signal.SIGSTOP)
            await _hundred(stack)
            os.kill(valkey.pid, signal.SIGCONT)
            await embedded.stop(valkey)
            await _hundred(stack)
            assert await stack.metric("api", "redis_coordination_fallback_total") > 0
            assert set((await stack.mails()).values()) == {1}
    finally:
        await embedded.stop(valkey)


async def _flush(url: str, enough: asyncio.Event) -> None:
    async with Redis.from_url(url) as client:
        while not enough.is_set():
            await client.flushall()
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("lie", "after_s"),
    [(grants, 0), (denies, 0), (NONSENSE, 0), (grants, 5)],
    ids=["grants", "denies", "talks-nonsense", "slow"],
)
async def test_a_lying_redis(tmp_path: Path, database_url: str, lie: Lie, after_s: float) -> None:
    async with (
        lying_redis(lie, after_s=after_s) as port,
        open_stack(tmp_path, database_url, _url(port)) as stack,
    ):
        await stack.start_all(workers=2)
        await _hundred(stack)


async def test_an_all_denying_redis_keeps_a_dead_workers_rows_for_one_claim_time_at_most(
    tmp_path: Path, database_url: str
) -> None:
    async with lying_redis(denies) as port, open_stack(tmp_path, database_url, _url(port)) as stack:
        await stack.start_all(workers=0)
        victim = await stack.start("worker", "victim", FAILPOINTS="worker.before_send=kill*1")
        [person] = users(1)
        await stack.signup(person)
        await victim.ended()
        await stack.start("worker", "good")
        mails = await stack.until_mails(1, deadline_s=3 * 3 + 3)
        assert mails == {(person, "onboarding"): 1}


def _url(port: int) -> str:
    return f"redis://:secret@127.0.0.1:{port}/0"
