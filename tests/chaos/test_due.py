"""Logins around the due instant: canceled and nothing sent, or too late and sent. Never a third case."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.support.stack import Stack, open_stack, until, users

DELAY_S = 3 * 86_400


@pytest.mark.parametrize(
    ("failpoints", "redis"),
    [
        ("", "with-redis"),
        ("", "without-redis"),
        ("scheduler.after_release=pause:0.2", "with-redis"),
        ("login.between_cancels=pause:0.2", "without-redis"),
    ],
    ids=["plain", "without-redis", "release", "cancel-without-redis"],
)
async def test_a_login_around_the_due_instant(
    tmp_path: Path, database_url: str, redis_url: str, failpoints: str, redis: str
) -> None:
    if redis == "without-redis":
        redis_url = ""
    async with open_stack(tmp_path, database_url, redis_url) as stack:
        await stack.start_all(workers=2, FAILPOINTS=failpoints)
        people = users(150)
        spread_s = 3.0
        # The followups fall due one after the other, from a few seconds after the signups on.
        first_due = datetime.now(UTC) + timedelta(seconds=4)
        due = {person: first_due + timedelta(seconds=spread_s * random.random()) for person in people}
        await asyncio.gather(
            *(
                stack.signup(person, occurred_at=(moment - timedelta(seconds=DELAY_S)).isoformat())
                for person, moment in due.items()
            )
        )
        await stack.until_mails(len(people))
        answers = dict(await asyncio.gather(*(_login_near(stack, person, due[person]) for person in people)))
        await asyncio.sleep(max(0.0, (max(due.values()) - datetime.now(UTC)).total_seconds()))

        async def quiet() -> bool:
            return not (await stack.states()).keys() & {"scheduled", "pending", "sending"}

        await until(quiet, "everything is closed")
        mails = await stack.mails()
        cases = Counter((answers[person], mails[person, "followup"]) for person in people)
        assert set(cases) <= {("canceled", 0), ("too_late", 1)}, cases
        assert cases["canceled", 0] >= 5, cases
        assert cases["too_late", 1] >= 5, cases


async def _login_near(stack: Stack, person: str, due: datetime) -> tuple[str, str]:
    moment = due.timestamp() + random.uniform(-0.5, 1.0)
    await asyncio.sleep(max(0.0, moment - time.time()))
    answer = await stack.login(person)
    listed = [name for name in ("canceled", "too_late") if any(row["kind"] == "followup" for row in answer[name])]
    return person, "+".join(listed) or "neither"
