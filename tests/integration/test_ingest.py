"""What events mean: ids, order by occurred_at, the guard, and what the sender is told."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest

from notifier import failpoints, observe
from notifier.domain.errors import Busy, Invalid, KeyReused
from notifier.domain.event import Profile
from notifier.domain.notification import Settlement, State
from notifier.ingest import groups
from notifier.ingest.transaction import Accepted, transact
from notifier.store import users
from tests.support.rig import Rig, ago, an_event, open_rig
from tests.support.stack import until

SIGNUP, LOGIN = "user.signed_up", "user.logged_in"
NOT_BEGUN = Settlement(State.PENDING, None, doubt=False, counted=False)


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    yield
    failpoints.arm("")


@pytest.fixture
async def rig(database_url: str) -> AsyncIterator[Rig]:
    async with open_rig(database_url) as opened:
        yield opened


async def test_a_signup_owes_the_onboarding_and_schedules_the_followup(rig: Rig) -> None:
    at = ago(minutes=1)
    answer = await rig.accept(SIGNUP, "ada", at)
    listed = {row["kind"]: (row["state"], row["due_at"]) for row in answer["notifications"]}
    assert listed == {
        "onboarding": ("pending", at),
        "followup": ("scheduled", at + timedelta(days=3)),
    }
    assert answer["canceled"] == answer["too_late"] == []
    assert await rig.states("ada") == {"onboarding": "pending", "followup": "scheduled"}


async def test_a_repeat_is_answered_from_the_store_and_another_content_is_refused(rig: Rig) -> None:
    event = an_event(SIGNUP, "ada", id_="e1")
    first = await rig.ingest.accept(event)
    second = await rig.ingest.accept(event)
    assert (first.replayed, second.replayed) == (False, True)
    assert first.answer == second.answer
    with pytest.raises(KeyReused):
        await rig.ingest.accept(an_event(SIGNUP, "bob", id_="e1"))
    assert await rig.states("bob") == {}


async def test_an_id_is_one_per_source(rig: Rig) -> None:
    await rig.ingest.accept(an_event(SIGNUP, "ada", id_="e1"))
    other = await rig.ingest.accept(an_event(LOGIN, "ada", id_="e1", source="login_webhook"))
    assert not other.replayed


async def test_fifty_identical_events_at_once_are_one(rig: Rig) -> None:
    event = an_event(SIGNUP, "ada")
    answers = await asyncio.gather(*(rig.ingest.accept(event) for _ in range(50)))
    assert sorted(answer.replayed for answer in answers) == [False] + [True] * 49
    assert len({str(answer.answer) for answer in answers}) == 1
    assert await rig.value("SELECT count(*) FROM outbox") == 2


async def test_two_hundred_signups_of_twenty_users_name_the_living_one(rig: Rig) -> None:
    answers = await asyncio.gather(*(rig.accept(SIGNUP, f"user{n % 20}") for n in range(200)))
    assert await rig.value("SELECT count(*) FROM outbox WHERE kind = 'onboarding'") == 20
    living = {
        row["user_id"]: str(row["id"]) for row in await rig.rows("SELECT * FROM outbox WHERE kind = 'onboarding'")
    }
    for answer in answers:
        [named] = [row["id"] for row in answer["notifications"] if row["kind"] == "onboarding"]
        assert named == living[answer["user_id"]]
    assert sum("existing" not in row for answer in answers for row in answer["notifications"]) == 40


@pytest.mark.parametrize(
    ("login_after_ms", "canceled"), [(-1, False), (0, True), (1, True)], ids=["older", "equal", "later"]
)
@pytest.mark.parametrize("login_first", [True, False], ids=["login-first", "signup-first"])
async def test_order_is_by_occurred_at_whatever_the_arrival(
    rig: Rig, login_after_ms: int, canceled: bool, login_first: bool
) -> None:
    at = ago(hours=1)
    login_at = at + timedelta(milliseconds=login_after_ms)
    if login_first:
        await rig.accept(LOGIN, "ada", login_at)
        answer = await rig.accept(SIGNUP, "ada", at)
        told = {row["kind"]: row["state"] for row in answer["notifications"]}
        assert told["followup"] == ("canceled" if canceled else "scheduled")
    else:
        await rig.accept(SIGNUP, "ada", at)
        answer = await rig.accept(LOGIN, "ada", login_at)
        assert [row["kind"] for row in answer["canceled"]] == (["followup"] if canceled else [])
    assert (await rig.states("ada"))["followup"] == ("canceled" if canceled else "scheduled")
    if canceled:
        [row] = await rig.rows("SELECT reason, decided_by FROM settlements WHERE kind = 'followup'")
        assert row["reason"] == "login"
        assert row["decided_by"].startswith("event:api/evt_")


async def test_a_second_signup_brings_a_canceled_followup_not_back(rig: Rig) -> None:
    await rig.accept(SIGNUP, "ada", ago(hours=2))
    await rig.accept(LOGIN, "ada", ago(hours=1))
    answer = await rig.accept(SIGNUP, "ada", ago(minutes=1))
    assert {row["kind"]: (row["state"], row["existing"]) for row in answer["notifications"]}["followup"] == (
        "canceled",
        True,
    )
    assert (await rig.states("ada"))["followup"] == "canceled"


async def test_a_login_of_a_stranger_is_remembered(rig: Rig) -> None:
    answer = await rig.accept(LOGIN, "ada", ago(minutes=1), source="login_webhook")
    assert (answer["canceled"], answer["too_late"], answer["untouched"]) == ([], [], [])
    await rig.accept(SIGNUP, "ada", ago(minutes=2))
    assert (await rig.states("ada"))["followup"] == "canceled"


async def test_the_three_lists_hold_all_there_is(rig: Rig) -> None:
    await rig.accept(SIGNUP, "ada", ago(hours=1))
    answer = await rig.accept(LOGIN, "ada")
    assert [row["kind"] for row in answer["canceled"]] == ["followup"]
    assert [(row["kind"], row["state"]) for row in answer["untouched"]] == [("onboarding", "pending")]


async def test_a_claimed_followup_is_too_late_and_a_doubtful_one_as_well(rig: Rig) -> None:
    await rig.accept(SIGNUP, "ada", ago(days=4))
    [claim] = [claim for claim in await rig.claim() if claim.kind == "followup"]
    answer = await rig.accept(LOGIN, "ada")
    assert answer["too_late"] == [
        {
            "id": str(claim.id),
            "kind": "followup",
            "state": "sending",
            "since": datetime.fromtimestamp(claim.claimed_at, UTC).isoformat(),
        }
    ]
    assert answer["canceled"] == []


@pytest.mark.parametrize("backward", [False, True])
async def test_each_of_a_group_is_told_of_its_own(rig: Rig, *, backward: bool) -> None:
    for user, days in (("ada", 1), ("eve", 4), ("kim", 1), ("zoe", 1)):
        await rig.accept(SIGNUP, user, ago(days=days))
    repeat = an_event(SIGNUP, "bob", ago(days=1))
    await rig.ingest.accept(repeat)
    assert [claim.user_id for claim in await rig.claim() if claim.kind == "followup"] == ["eve"]
    group = [
        an_event(SIGNUP, "kim"),
        an_event(LOGIN, "ada"),
        repeat,
        an_event(SIGNUP, "cleo", name="Cleo"),
        an_event(SIGNUP, "dan", datetime.now(UTC) + timedelta(hours=1)),
        an_event(LOGIN, "eve"),
        an_event(LOGIN, "zoe"),
        an_event(SIGNUP, "mia", name="Mia"),
    ]
    if backward:
        group.reverse()
    told = dict(zip((event.user_id for event in group), await transact(rig.ingest._door, group, 5.0), strict=True))
    assert isinstance(told.pop("dan"), Invalid)
    said: dict[str, dict[str, list[str]]] = {}
    for event in group:
        if (taken := told.get(event.user_id)) is None:
            continue
        assert isinstance(taken, Accepted)
        assert taken.replayed is (event is repeat)
        assert (taken.answer["event"]["id"], taken.answer["user_id"]) == (event.id, event.user_id)
        own = {str(row["id"]) for row in await rig.rows("SELECT id FROM outbox WHERE user_id = $1", event.user_id)}
        lists = {name: taken.answer[name] for name in ("notifications", "canceled", "too_late", "untouched")}
        assert {row["id"] for rows in lists.values() for row in rows} == own
        said[event.user_id] = {name: sorted(row["kind"] for row in rows) for name, rows in lists.items() if rows}
    both = {"notifications": ["followup", "onboarding"]}
    stopped = {"canceled": ["followup"], "untouched": ["onboarding"]}
    assert said == {
        "ada": stopped,
        "bob": both,
        "cleo": both,
        "eve": {"too_late": ["followup"], "untouched": ["onboarding"]},
        "kim": both | {"untouched": ["followup", "onboarding"]},
        "mia": both,
        "zoe": stopped,
    }
    names = await rig.rows("SELECT user_id, data::json #>> '{user,name}' AS name FROM outbox WHERE data::text <> '{}'")
    assert {(row["user_id"], row["name"]) for row in names} == {("cleo", "Cleo"), ("mia", "Mia")}


@pytest.mark.parametrize("first", ["newer", "older"])
async def test_the_newest_profile_wins_field_by_field(rig: Rig, first: str) -> None:
    newer = an_event("user.updated", "ada", ago(minutes=1), name="Ada L.")
    older = an_event("user.updated", "ada", ago(minutes=5), name="Ada", email="ada@example.com")
    for event in (newer, older) if first == "newer" else (older, newer):
        await rig.ingest.accept(event)
    [row] = await rig.rows("SELECT name, email FROM users")
    assert row == {"name": "Ada L.", "email": "ada@example.com"}


async def test_an_import_of_old_signups_mails_nobody(rig: Rig) -> None:
    await rig.accept(SIGNUP, "ada", ago(days=8))
    assert await rig.states("ada") == {"onboarding": "skipped", "followup": "skipped"}
    assert {row["reason"] for row in await rig.rows("SELECT reason FROM settlements")} == {"too_old"}


async def test_nobody_to_write_to_is_said_on_entry(rig: Rig) -> None:
    await rig.accept(SIGNUP, "ada", email=None)
    assert await rig.states("ada") == {"onboarding": "skipped", "followup": "scheduled"}
    await rig.accept("user.updated", "ada", email="late@example.com")
    assert (await rig.states("ada"))["onboarding"] == "skipped"


async def test_the_future_is_refused_and_burns_no_id(rig: Rig) -> None:
    with pytest.raises(Invalid) as refused:
        await rig.ingest.accept(an_event(SIGNUP, "ada", ago(minutes=-6), id_="e1"))
    assert refused.value.pointer == "/occurred_at"
    assert await rig.value("SELECT count(*) FROM users") == 0
    assert not (await rig.ingest.accept(an_event(SIGNUP, "ada", ago(minutes=-4), id_="e1"))).replayed


async def test_an_unknown_type_is_recorded_and_merges_the_profile(rig: Rig) -> None:
    answer = await rig.accept("cart.filled", "ada", name="Ada")
    assert answer["notifications"] == []
    assert await rig.value("SELECT name FROM users") == "Ada"
    assert await rig.value("SELECT count(*) FROM last_seen") == 0


async def test_maintenance_closes_the_door_for_repeats_as_well(rig: Rig) -> None:
    event = an_event(SIGNUP, "ada")
    await rig.ingest.accept(event)
    await rig.rows(
        "INSERT INTO switches VALUES ('maintenance', 'ops', 'move', notifier.now(), notifier.now() + interval '1 min')"
    )
    for one in (event, an_event(SIGNUP, "bob")):
        with pytest.raises(Busy):
            await rig.ingest.accept(one)
    assert await rig.states("bob") == {}


async def test_an_event_waits_for_a_lock_and_delays_nobody_else(rig: Rig) -> None:
    await rig.accept(SIGNUP, "held")
    async with rig.database.transaction() as conn:
        await conn.execute("SELECT FROM users WHERE user_id = 'held' FOR NO KEY UPDATE")
        waiting = asyncio.create_task(rig.accept(LOGIN, "held"))
        async with asyncio.timeout(0.5):
            await asyncio.gather(*(rig.accept(SIGNUP, f"free{n}") for n in range(20)))
        assert not waiting.done()
    assert [row["kind"] for row in (await waiting)["canceled"]] == ["followup"]


async def test_a_lock_that_never_ends_is_answered_in_time(rig: Rig) -> None:
    await rig.accept(SIGNUP, "held")
    async with rig.database.transaction() as conn:
        await conn.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
        await conn.execute("SELECT FROM users WHERE user_id = 'held' FOR NO KEY UPDATE")
        with pytest.raises(Busy):
            async with asyncio.timeout(5):
                await rig.accept(LOGIN, "held")


@pytest.mark.parametrize(
    ("field", "older", "newer"),
    [
        ("email", "old@example.com", "new@example.com"),
        ("name", "Old", "New"),
        ("timezone", "Europe/London", "Asia/Tokyo"),
        ("locale", "en", "ja"),
        ("attributes", {"plan": "old"}, {"plan": "new"}),
    ],
)
@pytest.mark.parametrize("order", [(1, 3, 2), (3, 2, 1), (2, 1, 3), (3, 1, 2)])
async def test_each_field_is_that_of_the_newest_event_that_names_it(
    rig: Rig, field: str, older: Any, newer: Any, order: tuple[int, ...]
) -> None:
    """Three events, the newest of which knows nothing of the field, in several orders of arrival."""
    events = {
        1: an_event("user.updated", "ada", ago(minutes=30), **{field: older}),
        2: an_event("user.updated", "ada", ago(minutes=20), **{field: newer}),
        3: an_event("user.seen", "ada", ago(minutes=10)),
    }
    for number in order:
        await rig.ingest.accept(events[number])
    found = await rig.value(f"SELECT {field} FROM users")
    assert (json.loads(found) if field == "attributes" else found) == newer


async def test_a_row_that_comes_back_between_the_cancels_is_stopped_after_all(rig: Rig) -> None:
    """A give-back commits after the second cancel read the row as claimed and before the answer is made."""
    before = observe.CANCEL_REPEATS._value.get()
    left_standing = observe.answers_left_standing()
    for attempt in range(5):
        first, second = sorted([f"a{attempt}", f"b{attempt}"])
        for user in (first, second):
            await rig.accept(SIGNUP, user, ago(days=4))
        claims = {c.user_id: c for c in await rig.claim() if c.kind == "followup"}
        # Both are given back but for one, whose row somebody holds; ids decide who is asked for first.
        held, late = sorted(claims.values(), key=lambda claim: claim.id)
        await rig.settle("w1", [held], NOT_BEGUN)
        async with rig.database.transaction() as conn:
            await conn.execute("SELECT FROM deliveries WHERE id = $1 FOR UPDATE", held.id)
            logins = asyncio.gather(rig.accept(LOGIN, held.user_id), rig.accept(LOGIN, late.user_id))
            await until(lambda: _waits(rig), "the second cancel waits for the held row")
            assert await rig.settle("w1", [late], NOT_BEGUN) == 1
        answers = await logins
        assert observe.answers_left_standing() == left_standing, "what /v1/invariants calls A1"
        for answer in answers:
            assert [row["kind"] for row in answer["canceled"]] == ["followup"], answer
            assert answer["too_late"] == []
        if observe.CANCEL_REPEATS._value.get() > before:
            return
    raise AssertionError("the give-back never fell between the cancel and the answer")


async def _waits(rig: Rig) -> bool:
    return bool(await rig.value("SELECT count(*) FROM pg_locks WHERE NOT granted"))


async def test_many_locked_users_delay_nobody_else(rig: Rig) -> None:
    """Forty users whose locks are held, and three hundred others in the same breath, on ten connections."""
    locked, free = [f"held{n}" for n in range(40)], [f"free{n}" for n in range(300)]
    await asyncio.gather(*(rig.accept("user.seen", user) for user in locked))
    async with rig.database.transaction() as conn:
        await conn.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
        await conn.execute("SELECT FROM users WHERE user_id LIKE 'held%' FOR NO KEY UPDATE")
        mixed = [user for pair in itertools.zip_longest(free, locked) for user in pair if user]
        waiting = {user: asyncio.create_task(rig.accept("user.seen", user)) for user in mixed}
        done, _ = await asyncio.wait([waiting[user] for user in free])
        assert [task.exception() for task in done if task.exception()] == []
        found = await asyncio.gather(*(waiting[user] for user in locked), return_exceptions=True)
        assert {type(one) for one in found} == {Busy}
        # A second wave right behind it is not held up either: who could not be had stays out of the groups.
        again = [asyncio.create_task(rig.accept("user.seen", user)) for user in locked]
        await asyncio.gather(*(rig.accept("user.seen", user) for user in free))
        await asyncio.gather(*again, return_exceptions=True)


async def test_the_users_lock_leaves_its_key_alone(rig: Rig) -> None:
    """FOR NO KEY UPDATE: whatever refers to a user's key need not wait for events of the user."""
    await rig.accept(SIGNUP, "ada")
    async with rig.database.transaction() as conn:
        await users.lock(conn, [("ada", None, Profile())])
        await rig.rows("SELECT FROM users WHERE user_id = 'ada' FOR KEY SHARE NOWAIT")
        with pytest.raises(asyncpg.LockNotAvailableError):
            await rig.rows("SELECT FROM users WHERE user_id = 'ada' FOR NO KEY UPDATE NOWAIT")


@pytest.mark.parametrize(
    ("number", "sizes"), [(1, [1]), (20, [20]), (200, [100, 100]), (500, [250, 250]), (700, [148, 148, 148, 256])]
)
async def test_who_waits_shares_a_transaction_many_share_two_at_a_time_and_lots_four(
    rig: Rig, number: int, sizes: list[int]
) -> None:
    await asyncio.gather(*(rig.accept("user.seen", f"user{n}") for n in range(number)))
    assert [row["n"] for row in await rig.rows("SELECT count(*) AS n FROM events GROUP BY xmin ORDER BY n")] == sizes


async def test_few_wait_for_a_group_and_as_many_as_it_holds_do_not(rig: Rig) -> None:
    failpoints.arm("ingest.after_lock=pause:3*1")
    first = [asyncio.create_task(rig.accept("user.seen", f"first{n}")) for n in range(4)]

    async def is_paused() -> bool:
        return failpoints._armed[failpoints.Point.INGEST_AFTER_LOCK].left == 0

    await until(is_paused, "the first group is under way")
    others = [asyncio.create_task(rig.accept("user.seen", f"other{n}")) for n in range(3)]
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(rig.ingest._groups) == 1
    others.append(asyncio.create_task(rig.accept("user.seen", "other3")))
    await asyncio.gather(*others)
    assert not any(task.done() for task in first)
    await asyncio.gather(*first)


@pytest.mark.parametrize(("pool_size", "groups_max"), [(6, 2), (7, 3), (9, 4)])
async def test_many_make_a_third_group_and_lots_a_fourth_where_the_pool_leaves_something_over(
    database_url: str, pool_size: int, groups_max: int
) -> None:
    async with open_rig(database_url, pool_size=pool_size) as rig:
        failpoints.arm(f"ingest.after_lock=pause:1.5*{groups_max}")
        tasks: list[asyncio.Task[Any]] = []

        async def after(number: int) -> int:
            """How many groups are under way once so many more are there."""
            users = [f"u{len(tasks) + n}" for n in range(number)]
            tasks.extend([asyncio.create_task(rig.accept("user.seen", user)) for user in users])
            for _ in range(10):
                await asyncio.sleep(0)
            return len(rig.ingest._groups)

        assert await after(20) == 1
        assert await after(20) == 2, "as many as are under way"
        assert await after(groups.GROUP_MANY - 1) == 2
        assert await after(1) == min(groups_max, 3), "many"
        assert await after(groups.GROUP_LOTS - 1) == min(groups_max, 3)
        assert await after(1) == groups_max, "lots"
        assert await after(200) == groups_max
        await asyncio.gather(*tasks)


async def test_a_mail_to_somebody_new_may_use_what_one_to_somebody_known_may(rig: Rig) -> None:
    said = {"name": "Ada ü", "timezone": "Europe/London", "locale": "de", "attributes": {"plan": "pro", "seats": 3}}
    await rig.accept("user.seen", "known")
    for user in ("known", "new"):
        await rig.accept(SIGNUP, user, email="ada@example.com", **said)
    rows = await rig.rows("SELECT DISTINCT data - 'id' AS data FROM outbox")
    [kept] = {row["data"] for row in rows}
    assert all(json.dumps(value, ensure_ascii=False) in kept for value in ("Ada ü", "Europe/London", "de", "pro"))


async def test_an_event_that_nobody_can_serve_is_answered_in_time_and_so_are_those_behind_it(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The group hangs, so only the clock can answer; what is held up is counted once and never twice."""
    monkeypatch.setattr(groups, "EVENT_BUDGET_S", 0.3)
    busy = observe.event_counter("user.signed_up", "busy")
    before = busy._value.get()
    failpoints.arm("ingest.after_lock=pause:5")
    asked = time.monotonic()
    tasks = [asyncio.create_task(rig.accept(SIGNUP, "ada", id_=f"e{n}")) for n in range(15)]
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert {type(outcome) for outcome in outcomes} == {Busy}
    assert time.monotonic() - asked < 3
    assert busy._value.get() == before + 15
