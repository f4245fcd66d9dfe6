"""The provider away or failing for a while: the breaker opens, nothing is used up, everything is delivered once."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from tests.support.stack import open_stack, until, users

OUTAGE_S = 4.0
PEOPLE = 200


@pytest.mark.parametrize("trouble", ["stopped", "answers-503", "answers-401"])
async def test_an_outage_of_the_provider(tmp_path: Path, database_url: str, redis_url: str, trouble: str) -> None:
    async with open_stack(tmp_path, database_url, redis_url) as stack:
        await stack.start_all(workers=2)
        mock = stack["mock"]
        if trouble == "stopped":
            await mock.stop()
        else:
            await stack.faults(fail_rate=1, fail_status=int(trouble[-3:]))
        await stack.signups(users(PEOPLE))

        async def open_now() -> bool:
            return all([await stack.metric(f"worker-{n}", "notifier_breaker_open") == 1 for n in (0, 1)])

        await until(open_now, "both breakers open")
        await asyncio.sleep(OUTAGE_S)  # the outage itself, not a wait for a state
        states = await stack.states()
        assert states["failed"] == states["uncertain"] == states["sent"] == 0, states
        if trouble == "stopped":
            port = mock.url.rpartition(":")[2]
            await stack.start("mock-provider", "mock", MOCK_PORT=port)
        else:
            await stack.faults(fail_rate=0)
        mails = await stack.until_mails(PEOPLE, deadline_s=60)
        await stack.until_states(sent=PEOPLE)
        assert set(mails.values()) == {1}


async def test_retry_after_is_honoured_and_uses_up_no_attempt(
    tmp_path: Path, database_url: str, redis_url: str
) -> None:
    async with open_stack(tmp_path, database_url, redis_url, ATTEMPTS_MAX="1") as stack:
        await stack.start_all(workers=1)
        await stack.faults(fail_rate=1, fail_status=429, retry_after_s=2)
        await stack.signup("ada")

        async def refused() -> bool:
            return len(await stack.attempts()) >= 2

        await until(refused, "refused twice")
        first, second = sorted(datetime.fromisoformat(attempt["time"]) for attempt in await stack.attempts())[:2]
        assert second - first >= timedelta(seconds=1.9)
        await stack.faults(fail_rate=0)
        assert await stack.until_mails(1) == {("ada", "onboarding"): 1}
