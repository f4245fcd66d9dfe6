"""Retention: what is old goes, what is young, open or uncertain stays, and the guards stay for ever."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from notifier import observe
from notifier.clock import boot_clock
from notifier.http.invariants import RULES
from notifier.retention import SLACK_S, Retention
from notifier.store import retention
from notifier.store.retention import PART_PAGES, Step
from tests.support.api import Api, running_api, together
from tests.support.stack import open_stack, until

# Real time goes on by itself only; a row that is old is one whose time was set back.
AGE_EVENTS = "UPDATE events SET received_at = received_at - make_interval(days => $1) WHERE user_id = $2"
AGE_ENDS = "UPDATE settlements SET settled_at = settled_at - make_interval(days => $1) WHERE user_id = $2"
SIGNUP = {"id": "evt_old", "type": "user.signed_up", "user": {"id": "u_1", "email": "ada@example.com"}}
WHY = {"reason": "a test"}


async def a_pass(api: Api) -> None:
    """One pass of a scheduler that has just started."""
    await Retention(api.runtime).run()


async def count(api: Api, table: str) -> int:
    found: int = await api.conn.fetchval(f"SELECT count(*) FROM {table}")
    return found


async def violations(api: Api) -> dict[str, int]:
    told = await api.get("/v1/invariants")
    assert set(told.body["invariants"]) == set(RULES)
    return {rule: item["violations"] for rule, item in told.body["invariants"].items() if item["violations"]}


async def ended(api: Api, state: str, user_id: str = "u_1", days_ago: int = 91) -> str:
    """A notification that came to this state, and ended so many days ago if that is an end."""
    notification = await api.bring_to(state, user_id)
    await api.conn.execute("UPDATE outbox SET data = $2 WHERE user_id = $1", user_id, '{"data": {"city": "London"}}')
    await api.conn.execute(AGE_ENDS, days_ago, user_id)
    await api.conn.execute("UPDATE deliveries SET next_attempt_at = now() + interval '1 hour'")
    return notification


# ---------------------------------------------------------------------------------------------- events


@pytest.mark.parametrize(("days", "is_left"), [(29, True), (31, False)])
async def test_an_event_is_kept_for_its_days(api: Api, days: int, is_left: bool) -> None:
    await api.signup()
    await api.conn.execute(AGE_EVENTS, days, "u_1")
    await a_pass(api)
    assert await count(api, "events") == int(is_left)


async def test_the_guard_holds_when_the_event_is_forgotten(api: Api) -> None:
    """The repeat of an old signup is a new event, meets the old decisions, and mails nobody."""
    first = await api.ask("POST", "/v1/events", json=SIGNUP)
    [claim] = await api.claim()
    await api.conn.execute(AGE_EVENTS, 31, "u_1")
    await api.conn.execute(AGE_ENDS, 91, "u_1")
    await a_pass(api)
    again = await api.ask("POST", "/v1/events", json=SIGNUP)
    assert (first.status, again.status) == (202, 202)
    assert again.body["event"]["duplicate"] is False, "it was remembered"
    told = {item["id"]: (item["kind"], item["existing"]) for item in again.body["notifications"]}
    assert told == {item["id"]: (item["kind"], True) for item in first.body["notifications"]}
    assert await count(api, "outbox") == 2
    assert await api.claim() == []
    assert str(claim.id) in told
    replay = await api.ask("POST", "/v1/events", json=SIGNUP)
    assert (replay.status, replay.body["event"]["duplicate"]) == (200, True)


async def test_a_repeat_beside_its_deletion_is_answered_or_taken_anew(api: Api) -> None:
    numbers = range(40)
    events = [{**SIGNUP, "id": f"evt_{n}", "user": {"id": f"u_{n}", "email": "a@example.com"}} for n in numbers]
    for event in events:
        assert (await api.ask("POST", "/v1/events", json=event)).status == 202
    await api.conn.execute("UPDATE events SET received_at = received_at - interval '31 days'")
    _, *repeats = await together(a_pass(api), *(api.ask("POST", "/v1/events", json=event) for event in events))
    assert {answer.status for answer in repeats} <= {200, 202}
    assert all(answer.body["event"]["duplicate"] is (answer.status == 200) for answer in repeats)
    assert await count(api, "outbox") == 2 * len(events)
    known = await api.conn.fetchval("SELECT count(DISTINCT id) FROM events")
    assert await count(api, "events") == known == sum(answer.status == 202 for answer in repeats)


# ---------------------------------------------------------------------------------------------- what ended


@pytest.mark.parametrize("state", ["sent", "failed", "skipped"])
@pytest.mark.parametrize(("days", "is_trimmed"), [(89, False), (91, True)])
async def test_what_ended_long_ago_keeps_how_it_ended(api: Api, state: str, days: int, is_trimmed: bool) -> None:
    notification = await ended(api, state, days_ago=days)
    before = (await api.read(notification)).body
    await a_pass(api)
    after = (await api.read(notification)).body
    if not is_trimmed:
        assert after == before
        return
    gone = {"claimed_by": None, "claimed_at": None, "provider": None, "provider_message_id": None, "attempts": []}
    assert after == {**before, **gone, "trimmed_at": after["trimmed_at"]}
    assert after["trimmed_at"] is not None
    assert await api.conn.fetchval("SELECT data FROM outbox WHERE id = $1", UUID(notification)) == "{}"
    row = await api.conn.fetchrow("SELECT * FROM settlements WHERE id = $1", UUID(notification))
    assert {row[name] for name in ("entered_at", "template_hash", "batch_id")} == {None}
    timeline = (await api.get("/v1/users/u_1/timeline")).body["timeline"]
    told = [entry["what"] for entry in timeline if entry.get("notification") == notification]
    assert sorted(told) == ["decision", "settled"]


@pytest.mark.parametrize("state", ["pending", "sending", "doubtful", "uncertain"])
async def test_what_is_open_or_uncertain_keeps_everything(api: Api, state: str) -> None:
    notification = await ended(api, state, days_ago=1_000)
    await api.conn.execute("UPDATE attempts SET finished_at = finished_at - interval '1000 days'")
    before = (await api.read(notification)).body, await count(api, "attempts")
    assert before[1] == int(state in ("doubtful", "uncertain"))
    await a_pass(api)
    assert ((await api.read(notification)).body, await count(api, "attempts")) == before
    assert await api.conn.fetchval("SELECT data FROM outbox WHERE id = $1", UUID(notification)) != "{}"
    assert await count(api, "scheduled_sends") == 1


async def test_what_was_uncertain_is_resolved_as_ever(api: Api) -> None:
    notification = await ended(api, "uncertain", days_ago=1_000)
    await a_pass(api)
    told = await api.act("resolve", notification, (await api.read(notification)).etag, {"outcome": "not_sent", **WHY})
    assert (told.status, told.body["state"]) == (200, "pending")
    [claim] = await api.claim()
    assert claim.data()["data"] == {"city": "London"}


async def test_what_was_trimmed_is_not_sent_again(api: Api) -> None:
    notification = await ended(api, "failed")
    await a_pass(api)
    told = await api.act("retry", notification, (await api.read(notification)).etag, WHY)
    assert (told.status, told.body["state"], told.body["reason"]) == (409, "failed", "trimmed")
    assert "removed" in told.body["detail"]
    assert await api.claim() == []


@pytest.mark.parametrize("is_due", [True, False])
async def test_a_retry_that_waited_for_the_trimming_finds_the_mark(api: Api, is_due: bool) -> None:
    """The trimming comes between its look and its move: a condition on the row itself, read under its lock."""
    notification = await ended(api, "failed")
    kind = "onboarding"
    if not is_due:
        kind = "followup"
        followup = await api.conn.fetchval("SELECT id FROM scheduled_sends")
        assert (await api.act("cancel", str(followup), "0", WHY)).status == 200
        notification = str(followup)
        await api.conn.execute(AGE_ENDS, 91, "u_1")
    etag = (await api.read(notification)).etag
    holder = await asyncpg.connect(api.runtime.settings.database_url)
    try:
        async with holder.transaction():
            [size] = [(await retention.sizes(holder))["settlements"]]
            steps = [await retention.trim_settled(holder, part, 90) for part in range(size.parts)]
            assert sum(step.removed["notifications"] for step in steps) >= 1
            retrying = asyncio.create_task(api.act("retry", notification, etag, WHY))

            async def waits() -> bool:
                return bool(await api.conn.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"))

            await until(waits, f"the retry of the {kind} waits for the row")
        told = await retrying
    finally:
        await holder.close()
    assert (told.status, told.body["reason"]) == (409, "trimmed")
    assert await api.conn.fetchval("SELECT count(*) FROM deliveries WHERE id = $1", UUID(notification)) == 0


async def test_a_retry_that_came_first_keeps_its_data(api: Api) -> None:
    notification = await ended(api, "failed")
    assert (await api.act("retry", notification, (await api.read(notification)).etag, WHY)).status == 200
    await a_pass(api)
    [claim] = await api.claim()
    assert (str(claim.id), claim.data()["data"]) == (notification, {"city": "London"})


async def test_all_rules_hold_after_a_pass(api: Api) -> None:
    for number, state in enumerate(("pending", "sent", "failed", "uncertain", "doubtful", "skipped", "sending")):
        await ended(api, state, f"u_{number}")
        await api.conn.execute(AGE_EVENTS, 31, f"u_{number}")
    await api.conn.execute("UPDATE outbox SET taken_at = taken_at - interval '91 days'")
    await api.login("u_2")
    before = await count(api, "outbox")
    await a_pass(api)
    assert await count(api, "settlements WHERE trimmed_at IS NOT NULL") == 3
    assert await count(api, "outbox") == before
    assert await violations(api) == {}
    assert await count(api, "templates") == 2
    await api.conn.execute(
        "DELETE FROM outbox WHERE id = (SELECT id FROM settlements WHERE trimmed_at IS NOT NULL LIMIT 1)"
    )
    assert await violations(api) != {}, "the rules still see"


async def test_nothing_personal_of_what_ended_stays_but_the_profile(api: Api) -> None:
    await api.event("user.signed_up", user={"email": "ada@example.com", "name": "Ada L."}, data={"city": "London"})
    await api.login()
    await api.conn.execute(AGE_ENDS, 91, "u_1")
    await api.conn.execute("UPDATE deliveries SET next_attempt_at = now() + interval '1 hour'")
    await a_pass(api)
    data = {row["kind"]: row["data"] for row in await api.conn.fetch("SELECT kind, data FROM outbox")}
    assert {kind for kind, text in data.items() if text == "{}"} == {
        row["kind"] for row in await api.conn.fetch("SELECT kind FROM settlements")
    }
    assert data["followup"] == "{}"


# ---------------------------------------------------------------------------------------------- bounds, and company

MANY_EVENTS = """
    INSERT INTO events (source, id, type, user_id, occurred_at, fingerprint, answer, taken_at, received_at)
    SELECT 'api', 'many_' || n, 'user.signed_up', 'u_' || n, now(), sha256('x'),
           '{"notifications": [], "filler": "some words that make a row as long as they usually are"}', now(),
           now() - CASE WHEN n <= $1 THEN interval '31 days' ELSE interval '1 day' END
      FROM generate_series(1, $2::int) n
"""
MANY_ENDS = """
    WITH o AS (
        INSERT INTO outbox (id, user_id, kind, decided_at, decided_by, due_at, cancel_from, data)
        SELECT gen_random_uuid(), 'u_' || n, 'onboarding', now(), 'operator:k', now(), now(), '{"user": {}}'
          FROM generate_series(1, $1::int) n
        RETURNING id, user_id, kind),
    a AS (
        INSERT INTO attempts (notification_id, generation, worker, user_id, provider, resend_number, outcome,
                              provider_message_id, claimed_at, started_at, finished_at)
        SELECT id, 1, 'w', user_id, 'mock:1', 0, 'accepted', id::text, now(), now(), now() FROM o)
    INSERT INTO settlements (id, user_id, kind, state, evidence, decided_by, generation, settled_at)
    SELECT id, user_id, kind, 'sent', 'accepted', 'worker:w', 1, now() - interval '91 days' FROM o
"""


async def test_a_step_is_bounded_and_says_what_is_left(api: Api) -> None:
    await api.conn.execute(MANY_EVENTS, 700, 800)
    await api.conn.execute(MANY_ENDS, 300)
    first, second, third = [await retention.forget_events(api.conn, 0, 30) for _ in range(3)]
    assert [(step.removed, step.left) for step in (first, second, third)] == [
        ({"events": 500}, True),
        ({"events": 200}, False),
        ({"events": 0}, False),
    ]
    assert first.next_s == pytest.approx(29 * 86_400, abs=60)
    steps = [await retention.trim_settled(api.conn, 0, 90) for _ in range(3)]
    assert [(step.removed["notifications"], step.left) for step in steps] == [(200, True), (100, False), (0, False)]
    assert await count(api, "attempts") == 0
    assert third.next_s is not None
    assert steps[2].next_s is None


async def test_a_step_looks_at_its_own_part_only(api: Api) -> None:
    await api.conn.execute(MANY_EVENTS, 8_000, 8_000)
    parts = (await retention.sizes(api.conn))["events"].parts
    assert parts >= 3, "not filled far enough to show anything"
    while (await retention.forget_events(api.conn, 1, 30)).left:
        pass
    places = await api.conn.fetch(
        "SELECT DISTINCT split_part(trim(leading '(' from ctid::text), ',', 1)::int / $1 AS part FROM events",
        PART_PAGES,
    )
    assert {row["part"] for row in places} == set(range(parts)) - {1}


async def test_two_schedulers_at_once_do_what_one_would(api: Api) -> None:
    await api.conn.execute(MANY_EVENTS, 2_000, 3_000)
    await api.conn.execute(MANY_ENDS, 1_000)
    two = [Retention(api.runtime) for _ in range(2)]
    await together(*(one.run() for one in two))
    assert await count(api, "events") == 1_000
    assert await count(api, "settlements WHERE trimmed_at IS NULL") == 0
    assert await count(api, "settlements") == 1_000
    assert await count(api, "outbox WHERE data = '{}'") == 1_000
    assert await count(api, "attempts") == 0


HELD = {
    "event": "SELECT FROM events WHERE id = 'many_1' FOR UPDATE",
    "end": "SELECT FROM settlements WHERE user_id = 'u_1' FOR UPDATE",
    "decision": "SELECT FROM outbox WHERE user_id = 'u_1' FOR UPDATE",
}


@pytest.mark.parametrize("held", HELD)
async def test_what_somebody_holds_is_passed_over_and_found_later(api: Api, held: str) -> None:
    await api.conn.execute(MANY_EVENTS, 10, 10)
    await api.conn.execute(MANY_ENDS, 10)
    holder = await asyncpg.connect(api.runtime.settings.database_url)

    async def steps() -> list[Step]:
        return [await retention.forget_events(api.conn, 0, 30), await retention.trim_settled(api.conn, 0, 90)]

    try:
        async with holder.transaction():
            await holder.execute(HELD[held])
            async with asyncio.timeout(10):
                found = await steps()
                await a_pass(api)  # ends, although something old is left
        assert [step.left for step in found] == [held == "event", held != "event"]
        assert await count(api, "events") == int(held == "event")
        assert await count(api, "settlements WHERE trimmed_at IS NULL") == int(held != "event")
        assert await count(api, "attempts") == int(held != "event")
        assert [step.left for step in await steps()] == [False, False]
    finally:
        await holder.close()
    assert await count(api, "events") + await count(api, "attempts") == 0


async def test_a_scheduler_frozen_between_two_steps_holds_nothing_up(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step commits by itself: what the frozen one has not done, another one does."""
    await api.conn.execute(MANY_EVENTS, 700, 800)
    frozen = Retention(api.runtime)
    done, thawed = asyncio.Event(), asyncio.Event()

    async def remove(conn: Any, part: int, keep_days: int) -> Step:
        step = await retention.forget_events(conn, part, keep_days)
        done.set()
        await thawed.wait()  # with the connection in its hands
        return step

    monkeypatch.setattr(frozen.walks[0], "remove", remove)
    running = asyncio.create_task(frozen.run())
    await done.wait()
    assert await count(api, "events") == 300
    await a_pass(api)
    assert await count(api, "events") == 100
    thawed.set()
    await running
    assert await count(api, "events") == 100


async def test_a_schedulers_first_pass_is_at_its_start_and_is_told(tmp_path: Path, api: Api) -> None:
    await api.conn.execute(MANY_EVENTS, 700, 800)
    sent = await ended(api, "sent")
    async with open_stack(tmp_path, api.runtime.settings.database_url or "", "") as stack:
        await stack.start("scheduler", "scheduler")

        async def done() -> bool:
            return await count(api, "events") == 101 and (await api.read(sent)).body["trimmed_at"] is not None

        await until(done, "what is old is gone")
        assert await stack.metric("scheduler", "notifier_retention_removed_total") == 701
        assert await stack.metric("scheduler", "notifier_retention_late_seconds") == 0
        assert await stack["scheduler"].stop() == 0


# ---------------------------------------------------------------------------------------------- the walk


class Counting:
    """Counts the statements that look at a part."""

    def __init__(self, retention_job: Retention, monkeypatch: pytest.MonkeyPatch) -> None:
        self.parts: list[tuple[str, int]] = []
        for walk in retention_job.walks:
            monkeypatch.setattr(walk, "remove", self._counted(walk.table, walk.remove))

    def _counted(self, table: str, remove: Any) -> Any:
        async def counted(conn: Any, part: int, keep_days: int) -> Step:
            self.parts.append((table, part))
            step: Step = await remove(conn, part, keep_days)
            return step

        return counted


async def test_a_pass_over_nothing_looks_at_nothing(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    await api.conn.execute(MANY_EVENTS, 0, 4_000)
    job = Retention(api.runtime)
    seen = Counting(job, monkeypatch)
    await job.run()
    parts = (await retention.sizes(api.conn))["events"].parts
    assert parts >= 2
    assert seen.parts == [("events", part) for part in range(parts)]
    await job.run()
    assert len(seen.parts) == parts, "what cannot be old yet was looked at again"
    later = max(job.walks[0].looks_at)
    monkeypatch.setattr("notifier.retention.boot_clock", lambda: later)
    await job.run()
    assert sorted(seen.parts) == sorted(2 * [("events", part) for part in range(parts)])


async def test_a_part_is_looked_at_again_when_its_first_row_is_old(api: Api) -> None:
    await api.conn.execute(MANY_EVENTS, 0, 10)
    job = Retention(api.runtime)
    events = job.walks[0]
    await job.run()
    assert events.looks_at[0] - boot_clock() == pytest.approx(29 * 86_400 + SLACK_S, abs=60)
    assert events.late_s() == 0.0


async def test_rows_that_were_put_elsewhere_are_looked_at_again(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    await api.conn.execute(MANY_EVENTS, 0, 10)
    job = Retention(api.runtime)
    seen = Counting(job, monkeypatch)
    await job.run()
    await api.conn.execute("VACUUM FULL events")
    await job.run()
    assert seen.parts == [("events", 0), ("events", 0)]


async def test_a_stop_waits_for_one_statement_only(api: Api) -> None:
    await api.conn.execute(MANY_EVENTS, 3_000, 3_000)
    job = Retention(api.runtime)
    running = asyncio.create_task(job.run())

    async def begun() -> bool:
        return await count(api, "events") < 3_000

    await until(begun, "the first step was taken")
    async with asyncio.timeout(5):
        await job.rest()
    await running
    assert 0 < await count(api, "events") < 3_000


async def test_the_keeping_of_the_settings_is_the_one_that_counts(database_url: str) -> None:
    async with running_api(database_url, keep_events_days=8, keep_detail_days=10) as api:
        sent = await ended(api, "sent", days_ago=9)
        await api.conn.execute(AGE_EVENTS, 9, "u_1")
        await a_pass(api)
        assert await count(api, "events") == 0
        assert (await api.read(sent)).body["trimmed_at"] is None
        await api.conn.execute(AGE_ENDS, 2, "u_1")
        await a_pass(api)
        assert (await api.read(sent)).body["trimmed_at"] is not None


async def test_a_scheduler_tells_how_it_keeps_up(database_url: str) -> None:
    async with running_api(database_url) as api:
        await api.conn.execute(MANY_EVENTS, 10, 10)
        before = observe.REGISTRY.get_sample_value("notifier_retention_removed_total", {"what": "events"}) or 0
        observe.expose(observe.OF_A_SCHEDULER)
        await a_pass(api)
        text = observe.exposition().decode()
    found = re.search(r'notifier_retention_removed_total\{what="events"\} (\S+)', text)
    assert found is not None
    assert float(found[1]) == before + 10
    assert 'notifier_retention_late_seconds{table="events"} 0.0' in text
    assert "notifier_retention_seconds_count" in text
