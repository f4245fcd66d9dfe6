"""An api that freezes or dies with a user's lock, and what the others' callers notice of it."""

from __future__ import annotations

import asyncio
import signal
import time
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.support.stack import Stack, open_stack, until, users

NEIGHBOURS_S = 1.5  # far below the 4 s that an event may wait, with room for a busy machine


def _signup(user: str) -> dict[str, Any]:
    return {"id": f"evt_{user}", "type": "user.signed_up", "user": {"id": user, "email": f"{user}@example.com"}}


async def _timed(stack: Stack, path: str, document: Any) -> tuple[float, int, Any]:
    started = time.monotonic()
    status, answer = await stack.post(path, document)
    return time.monotonic() - started, status, answer


async def test_a_frozen_api_delays_only_the_user_it_holds(tmp_path: Path, database_url: str, redis_url: str) -> None:
    async with open_stack(tmp_path, database_url, redis_url) as stack:
        await stack.start_all(workers=1)
        frozen = await stack.start("api", "frozen", FAILPOINTS="ingest.after_lock=freeze*1")
        held, *others = users(31)
        hanging = asyncio.create_task(stack.post("/v1/events", _signup(held), api="frozen"))
        await until(lambda: frozen.is_frozen, "the second api freezes under the user's lock")
        login = {"id": f"login_{held}", "type": "user.logged_in", "user": {"id": held}}
        batch = {"events": [{**login, "id": f"batch_{held}"}, *(_signup(user) for user in others[20:])]}
        one, many, *rest = await asyncio.gather(
            _timed(stack, "/v1/events", login),
            _timed(stack, "/v1/events/batch", batch),
            *(_timed(stack, "/v1/events", _signup(user)) for user in others[:20]),
        )
        assert one[0] < 6
        assert one[1] in (202, 503)
        assert many[0] < 6
        assert [result["status"] for result in many[2]["results"][1:]] == [202] * 10
        assert many[2]["results"][0]["status"] in (202, 503)
        for took, status, _ in rest:
            assert status == 202
            assert took < NEIGHBOURS_S
        frozen.signal(signal.SIGCONT)
        status, _ = await hanging
        assert status in (202, 503)
        # Whoever repeats is answered: the lock was taken from the frozen session.
        assert await stack.login(held)
        await stack.signup(held)
        assert set((await stack.until_mails(31)).values()) == {1}


@pytest.mark.parametrize("step", ["ingest.after_lock", "ingest.before_commit", "ingest.after_commit"])
async def test_an_api_killed_at_any_step(tmp_path: Path, database_url: str, redis_url: str, step: str) -> None:
    async with open_stack(tmp_path, database_url, redis_url) as stack:
        await stack.start_all(workers=1)
        victim = await stack.start("api", "victim", FAILPOINTS=f"{step}=kill*1")
        [person] = users(1)
        with pytest.raises(aiohttp.ClientConnectionError):
            await stack.post("/v1/events", _signup(person), api="victim")
        await victim.ended()
        status, answer = await stack.post("/v1/events", _signup(person))
        assert status == (200 if step == "ingest.after_commit" else 202)
        assert [row["kind"] for row in answer["notifications"]] == ["onboarding", "followup"]
        assert await stack.until_mails(1) == {(person, "onboarding"): 1}
        await stack.until_states(sent=1, scheduled=1)
