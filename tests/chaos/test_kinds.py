"""Journeys and templates of one's own, old builds beside new ones, and addresses that change in time."""

from __future__ import annotations

import asyncio
import random
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from notifier import journeys
from tests.support.stack import open_stack, users

SHIPPED = Path(journeys.__file__).parent


def _own_journeys(folder: Path, extra: str, subject: str = "{{ user.id }}") -> dict[str, str]:
    """The shipped kinds and one more; gives the settings that name them."""
    file = folder / "journeys.toml"
    file.write_text((SHIPPED / "journeys.toml").read_text() + extra)
    templates = folder / "templates"
    for source in (SHIPPED / "templates").glob("*/*"):
        target = templates / source.parent.name / source.name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(source.read_text())
    gift = templates / "gift"
    gift.mkdir()
    for name, text in {"subject.txt": subject, "body.txt": "a gift", "body.html": "<p>a gift</p>"}.items():
        (gift / name).write_text(text)
    return {"JOURNEYS_FILE": str(file), "TEMPLATES_DIR": str(templates)}


GIFT = '\n[kinds.gift]\non = "user.signed_up"\n'


async def test_a_template_with_an_unknown_variable(tmp_path: Path, database_url: str, redis_url: str) -> None:
    own = _own_journeys(tmp_path, GIFT, subject="{{ nobody_knows }}")
    async with open_stack(tmp_path, database_url, redis_url, **own) as stack:
        await stack.start_all(workers=1)
        [person] = users(1)
        await stack.signup(person)
        await stack.until_states(sent=1, failed=1, scheduled=1)
        _, page = await stack.get(f"/v1/notifications?user_id={person}&kind=gift")
        [row] = page["notifications"]
        assert (row["reason"], row["generation"]) == ("template_error", 1)
        assert {attempt["kind"] for attempt in await stack.attempts()} == {"onboarding"}


async def test_an_old_build_leaves_what_it_does_not_know(tmp_path: Path, database_url: str, redis_url: str) -> None:
    own = _own_journeys(tmp_path, GIFT)
    async with open_stack(tmp_path, database_url, redis_url) as stack:
        await stack.start_all(workers=1)
        await stack.start("api", "new-api", **own)
        people = users(30)
        for person in people:
            await stack.signup(person, api="new-api")
        await stack.until_states(sent=30, pending=30, scheduled=30)
        assert {attempt["kind"] for attempt in await stack.attempts()} == {"onboarding"}
        await stack.start("worker", "new-worker", **own)
        await stack.until_states(sent=60, pending=0)
        assert set((await stack.mails()).values()) == {1}


async def test_the_address_changes_while_the_followup_waits_and_while_it_is_released(
    tmp_path: Path, database_url: str, redis_url: str
) -> None:
    async with open_stack(tmp_path, database_url, redis_url) as stack:
        await stack.start_all(workers=1, FAILPOINTS="scheduler.after_release=pause:0.3")
        people = users(40)
        await stack.signups(people)
        await stack.until_mails(40)

        changed_at: dict[str, float] = {}

        async def move(person: str) -> None:
            await asyncio.sleep(random.random() * 0.4)
            await stack.event("user.moved", person, user={"email": f"new-{person}@example.com"})
            changed_at[person] = time.time()

        early, during = people[:20], people[20:]
        await asyncio.gather(*(move(person) for person in early))
        # The release holds its rows for 0.3 s before it commits; these changes are accepted within that time.
        await asyncio.gather(stack.advance(3 * 86_400 + 1), *(move(person) for person in during))
        await stack.until_states(sent=80)
        told = {row["user"]: row["to"] for row in await stack.messages() if row["kind"] == "followup"}
        claimed = await stack.rows("SELECT user_id, claimed_at FROM settlements WHERE kind = 'followup'")
        in_time = {row["user_id"] for row in claimed if changed_at[row["user_id"]] < row["claimed_at"].timestamp()}
        assert in_time >= set(early)
        assert len(in_time & set(during)) >= 3
        for person in in_time:
            assert told[person] == [f"new-{person}@example.com"]


async def test_a_pause_holds_everything_and_ends(tmp_path: Path, database_url: str, redis_url: str) -> None:
    async with open_stack(tmp_path, database_url, redis_url) as stack:
        await stack.start_all(workers=1)
        url = stack["api"].url + "/v1/switches/pause:onboarding"
        headers = {"Authorization": "Bearer test-key"}
        switch = {"owner": "ops", "reason": "a test", "ttl_s": 3600}
        async with stack.http.put(url, json=switch, headers=headers) as response:
            assert response.status == 200
        people = users(5)
        await stack.signups(people)
        # Follow-ups of others, sent afterwards, show that the worker claims all the while.
        early = (datetime.now(UTC) - timedelta(days=4)).isoformat()
        await asyncio.gather(*(stack.signup(person, occurred_at=early) for person in users(5, "early")))
        await stack.until_states(sent=5, pending=10, scheduled=5)
        assert {kind for _, kind in await stack.mails()} == {"followup"}
        async with stack.http.delete(url, headers=headers) as response:
            assert response.status in (200, 204)
        await stack.until_states(sent=15)
