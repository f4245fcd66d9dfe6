"""SIGSTOP past the claim: whoever wakes up late changes nothing and mails nobody twice."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.support.stack import Stack, open_stack, until, users


async def test_a_late_call_is_refused_by_the_provider_and_its_settle_by_the_fence(
    tmp_path: Path, database_url: str, redis_url: str
) -> None:
    async with open_stack(tmp_path, database_url, redis_url) as stack:
        await stack.start_all(workers=0)
        slow = await stack.start("worker", "slow", FAILPOINTS="worker.before_send=freeze*1")
        [person] = users(1)
        await stack.signup(person)
        await until(lambda: slow.is_frozen, "the worker freezes")
        await stack.start("worker", "fast")
        await stack.until_states(sent=1)
        slow.signal(signal.SIGCONT)

        async def refused() -> bool:
            return [attempt["verdict"] for attempt in await stack.attempts()] == ["duplicate", "accepted"]

        await until(refused, "the late call is refused")
        await until(lambda: _is_one(stack, "slow"), "the late settle is counted")
        assert await stack.mails() == {(person, "onboarding"): 1}


async def _is_one(stack: Stack, worker: str) -> bool:
    return await stack.metric(worker, "notifier_stale_settles_total") == 1


async def test_a_worker_thawed_after_its_claim_makes_no_call(tmp_path: Path, database_url: str, redis_url: str) -> None:
    async with open_stack(tmp_path, database_url, redis_url) as stack:
        await stack.start_all(workers=0)
        slow = await stack.start("worker", "slow", FAILPOINTS="worker.after_claim=freeze*1")
        [person] = users(1)
        await stack.signup(person)
        await until(lambda: slow.is_frozen, "the worker freezes")
        await stack.start("worker", "fast")
        await stack.until_states(sent=1)
        slow.signal(signal.SIGCONT)

        async def gave_up() -> bool:
            return await stack.metric("slow", "notifier_lost_races_total") == 1

        await until(gave_up, "the thawed worker finds that it lost its claim")
        assert [attempt["verdict"] for attempt in await stack.attempts()] == ["accepted"]
        assert await stack.metric("slow", "notifier_attempts_total") == 0


async def test_a_login_while_the_followup_is_frozen_in_flight_is_too_late(
    tmp_path: Path, database_url: str, redis_url: str
) -> None:
    async with open_stack(tmp_path, database_url, redis_url) as stack:
        await stack.start_all(workers=1)
        [person] = users(1)
        await stack.signup(person)
        await stack.until_mails(1)
        await stack["worker-0"].stop()
        slow = await stack.start("worker", "slow", FAILPOINTS="worker.before_send=freeze*1")
        await stack.advance(3 * 86_400 + 1)
        await until(lambda: slow.is_frozen, "the worker freezes with the follow-up in hand")
        first = await stack.login(person)
        assert [(row["kind"], row["state"]) for row in first["too_late"]] == [("followup", "sending")]
        assert first["canceled"] == []
        await stack.start("worker", "fast")
        await stack.until_states(sent=2)
        second = await stack.login(person)
        assert [(row["kind"], row["state"]) for row in second["too_late"]] == [("followup", "sent")]
        slow.signal(signal.SIGCONT)

        async def three_calls() -> bool:
            return len(await stack.attempts()) == 3

        await until(three_calls, "the late call is made")
        assert await stack.mails() == {(person, "onboarding"): 1, (person, "followup"): 1}


async def test_a_lease_saves_the_second_call(tmp_path: Path, database_url: str, redis_url: str) -> None:
    timings = {"CLAIM_TTL_S": "3", "PROVIDER_TIMEOUT_S": "1"}
    async with open_stack(tmp_path, database_url, redis_url, **timings) as stack:
        await stack.start_all(workers=0)
        idle = await stack.start("worker", "idle")
        idle.signal(signal.SIGSTOP)  # until there is nothing to claim: a start might take longer than the pause
        await stack.start("worker", "slow", FAILPOINTS="worker.before_settle=pause:4.8*1")
        people = users(20)
        await stack.signups(people)
        await stack.until_mails(20)
        idle.signal(signal.SIGCONT)
        await stack.until_states(sent=20)
        assert [attempt["verdict"] for attempt in await stack.attempts()] == ["accepted"] * 20
        assert await stack.metric("idle", "redis_coordination_acquire_total") > 0


async def test_without_redis_the_second_call_is_refused(tmp_path: Path, database_url: str) -> None:
    async with open_stack(tmp_path, database_url, "") as stack:
        await stack.start_all(workers=0)
        slow = await stack.start("worker", "slow", FAILPOINTS="worker.before_settle=freeze*1")
        people = users(20)
        await stack.signups(people)
        await until(lambda: slow.is_frozen, "the worker freezes")
        await stack.start("worker", "idle")
        await stack.until_states(sent=20)
        slow.signal(signal.SIGCONT)

        async def settled_late() -> bool:
            return await stack.metric("slow", "notifier_stale_settles_total") > 0

        await until(settled_late, "the slow worker finds its claims taken over")
        verdicts = {attempt["verdict"] for attempt in await stack.attempts()}
        assert verdicts == {"accepted", "duplicate"}
        assert set((await stack.mails()).values()) == {1}


async def test_a_dropped_answer_then_a_login(tmp_path: Path, database_url: str, redis_url: str) -> None:
    async with open_stack(tmp_path, database_url, redis_url, BACKOFF_FIRST_S="3") as stack:
        await stack.start_all(workers=1)
        [person] = users(1)
        await stack.signup(person)
        await stack.until_states(sent=1)
        await stack.faults(drop_response_rate=1)
        await stack.advance(3 * 86_400 + 1)
        await stack.until_mails(2)
        await stack.until_states(sending=0)
        answer = await stack.login(person)
        assert [row["kind"] for row in answer["too_late"]] == ["followup"]
        assert answer["canceled"] == []
        await stack.faults(drop_response_rate=0)
        await stack.until_states(sent=2)
        assert await stack.mails() == {(person, "onboarding"): 1, (person, "followup"): 1}
