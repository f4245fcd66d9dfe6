"""SIGKILL at every step of a worker: everybody gets one mail, nobody two."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.support.stack import TIMINGS, open_stack, users

CLAIM_TTL_S = float(TIMINGS["NOTIFIER_CLAIM_TTL_S"])
STEPS = [
    "worker.after_claim",
    "worker.after_begin",
    "worker.before_send",
    "worker.mid_send",
    "worker.after_send",
    "worker.before_settle",
    "worker.after_settle",
]


@pytest.mark.parametrize("step", STEPS)
async def test_a_worker_killed_at_any_step_changes_nothing(
    tmp_path: Path, database_url: str, redis_url: str, step: str
) -> None:
    async with open_stack(tmp_path, database_url, redis_url) as stack:
        await stack.start_all(workers=0)
        victim = await stack.start("worker", "victim", FAILPOINTS=f"{step}=kill*1")
        good = await stack.start("worker", "good")
        good.signal(signal.SIGSTOP)  # until the other has fallen, for else it may take everything
        people = users(50)
        await stack.signups(people)
        assert await victim.ended() == -signal.SIGKILL
        good.signal(signal.SIGCONT)
        await stack.until_states(sent=50, scheduled=50, deadline_s=2 * CLAIM_TTL_S + 15)
        mails = await stack.mails()
        assert set(mails.values()) == {1}
        assert {user for user, _ in mails} == set(people)


@pytest.mark.parametrize("step", ["worker.after_begin", "worker.before_send", "worker.mid_send", "worker.after_send"])
async def test_without_provider_keys_only_the_call_in_hand_is_uncertain(
    tmp_path: Path, database_url: str, redis_url: str, step: str
) -> None:
    keyless = {"MOCK_FAMILY": "none", "WORKER_CONCURRENCY": "1"}
    async with open_stack(tmp_path, database_url, redis_url, **keyless) as stack:
        await stack.start_all(workers=0)
        victim = await stack.start("worker", "victim", FAILPOINTS=f"{step}=kill*1")
        people = users(20)
        await stack.signup(people[0])
        await victim.ended()
        await stack.start("worker", "good", WORKER_CONCURRENCY="20")
        await stack.signups(people[1:])
        await stack.until_states(sent=19, uncertain=1, scheduled=20)
        mails = await stack.mails()
        assert max(mails.values()) == 1
        assert len(mails) == (20 if step in ("worker.mid_send", "worker.after_send") else 19)


async def test_what_was_called_without_a_key_is_never_repeated_under_one(
    tmp_path: Path, database_url: str, redis_url: str
) -> None:
    """The setting changes while a call is in hand: the provider has never seen the key the repeat would carry."""
    async with open_stack(tmp_path, database_url, redis_url) as stack:
        await stack.start_all(workers=0)
        await stack.faults(duplicate_mode="none")
        keyless = await stack.start("worker", "keyless", FAILPOINTS="worker.after_send=kill*1", MOCK_FAMILY="none")
        [person] = users(1)
        await stack.signup(person)
        await keyless.ended()
        await stack.start("worker", "keyed", MOCK_FAMILY="reject")
        await stack.until_states(uncertain=1)
        assert await stack.mails() == {(person, "onboarding"): 1}
        [row] = await stack.rows("SELECT reason FROM settlements WHERE state = 'uncertain'")
        assert row["reason"] == "provider_changed"
