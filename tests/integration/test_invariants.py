"""The live invariants: each violation, planted in a database, is counted under its own rule and no other."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from datetime import timedelta
from uuid import UUID

import pytest

from notifier.http.documents import InvariantsOut
from notifier.http.invariants import JUDGE, RULES, Judge
from notifier.store import invariants, moves
from notifier.store.invariants import BREAKER_WAIT_S, Suspects
from notifier.worker.breaker import PROBE_MAX_S
from providers.base import Family
from tests.support.api import Api, running_api
from tests.support.stack import until

NOTHING = Counter[str]()


async def counted(api: Api) -> Counter[str]:
    """Rule → violations, those with none left out; every rule must be counted."""
    told = await api.get("/v1/invariants", key="k-read")
    assert told.status == 200, told
    InvariantsOut.model_validate_json(json.dumps(told.body))
    assert all(item["checked"] for item in told.body["invariants"].values())
    assert set(told.body["invariants"]) == set(RULES)
    found = Counter({rule: item["violations"] for rule, item in told.body["invariants"].items()})
    assert told.body["violations"] == found.total()
    return +found


@pytest.fixture
async def lived_in(api: Api) -> Api:
    """An installation in which a notification is in every state there is, and nothing is wrong."""
    states = ("pending", "sending", "sent", "failed", "uncertain", "doubtful", "skipped")
    for number, state in enumerate(states):
        await api.bring_to(state, f"u_{number}")
        await api.conn.execute("UPDATE deliveries SET next_attempt_at = now() + interval '1 hour'")
    await api.login("u_2")
    resolved = await api.bring_to("uncertain", "u_resolved")
    etag = (await api.read(resolved)).etag
    assert (await api.act("resolve", resolved, etag, {"outcome": "sent", "reason": "seen"})).status == 200
    api_judge(api).second_look_s = 0.0
    assert await counted(api) == NOTHING
    return api


def api_judge(api: Api) -> Judge:
    return api.app[JUDGE]


LOST = "DELETE FROM scheduled_sends WHERE id = (SELECT id FROM scheduled_sends LIMIT 1)"
LOST_WITH_ITS_DECISION = f"WITH s AS ({LOST} RETURNING id) DELETE FROM outbox WHERE id IN (SELECT id FROM s)"
DOUBLED = """
    INSERT INTO scheduled_sends (id, user_id, kind, due_at) SELECT id, user_id, kind, now() + interval '1 day'
      FROM settlements WHERE state = 'sent' LIMIT 1
"""
NO_REASON = """
    UPDATE settlements SET reason = '' WHERE id = (SELECT id FROM settlements WHERE state = 'canceled' LIMIT 1)
"""
ATTEMPT = """
    INSERT INTO attempts (notification_id, generation, worker, user_id, provider, resend_number, outcome,
                          provider_message_id, claimed_at, started_at, finished_at)
    SELECT t.id, 77, 'w', 'u', 'mock:1', t.resend_number + {above}, '{outcome}', 'other', now(), now(), now()
      FROM {place} t WHERE {which} LIMIT 1
"""
OF_NOBODY = "(SELECT gen_random_uuid() AS id, 0 AS resend_number)"
SENT_OF_NOBODY = """
    INSERT INTO settlements (id, user_id, kind, state, evidence, decided_by, generation)
    VALUES (gen_random_uuid(), 'u', 'onboarding', 'sent', 'accepted', 'worker:w', 1)
"""
PLANTED = {
    "I0 lost": (LOST, "I0"),
    "I0 doubled": (DOUBLED, "I0"),
    "I0 open and closed": (DOUBLED.replace("scheduled_sends", "deliveries").replace("due_at", "next_attempt_at"), "I0"),
    "I1 promised and missing": (LOST_WITH_ITS_DECISION, "I1"),
    "I1 no reason": (NO_REASON, "I1"),
    "I2 accepted twice": (
        ATTEMPT.format(above=0, outcome="accepted", place="settlements", which="t.evidence = 'accepted'"),
        "I2",
    ),
    "I3 accepted": (
        ATTEMPT.format(above=0, outcome="duplicate", place="settlements", which="state = 'canceled'"),
        "I3",
    ),
    "I3 called": (ATTEMPT.format(above=0, outcome="rejected", place="settlements", which="state = 'canceled'"), "I3"),
    "I5 accepted of nobody": (ATTEMPT.format(above=0, outcome="accepted", place=OF_NOBODY, which="true"), "I5"),
    "I5 sent of nobody": (SENT_OF_NOBODY, "I5"),
    "I5 no event": (
        "UPDATE outbox SET decided_by = 'event:api/no/such' WHERE id = (SELECT id FROM outbox LIMIT 1)",
        "I5",
    ),
    "I5 another's event": (
        """UPDATE outbox SET decided_by = 'event:api/' || (SELECT id FROM events WHERE user_id = 'u_1' LIMIT 1)
            WHERE user_id = 'u_2' AND kind = 'followup'""",
        "I5",
    ),
    "I6 sent without a call": (
        "UPDATE settlements SET call_started_at = NULL, call_ended_at = NULL WHERE evidence = 'accepted'",
        "I6",
    ),
    "I6 accepted and failed": (
        ATTEMPT.format(above=0, outcome="accepted", place="settlements", which="state = 'failed'"),
        "I6",
    ),
    "I6 accepted and skipped": (
        ATTEMPT.format(above=0, outcome="duplicate", place="settlements", which="state = 'skipped'"),
        "I6",
    ),
    "I6 a key nobody made": (
        ATTEMPT.format(above=1, outcome="accepted", place="deliveries", which="claimed_by IS NULL"),
        "I6",
    ),
    # What is allowed, and looks like a violation.
    "accepted while uncertain": (
        ATTEMPT.format(above=0, outcome="accepted", place="settlements", which="state = 'uncertain'"),
        None,
    ),
    "accepted while open": (
        ATTEMPT.format(above=0, outcome="accepted", place="deliveries", which="doubt_since IS NOT NULL"),
        None,
    ),
    "told twice of the same mail": (
        ATTEMPT.format(above=0, outcome="duplicate", place="settlements", which="t.evidence = 'accepted'"),
        None,
    ),
    "an event that retention took": (
        """WITH old AS (UPDATE outbox SET taken_at = now() - interval '9 days' WHERE user_id = 'u_2' RETURNING user_id)
           DELETE FROM events WHERE user_id IN (SELECT user_id FROM old)""",
        None,
    ),
}


@pytest.mark.parametrize("planted", PLANTED)
async def test_what_is_planted_is_counted_under_its_rule_and_no_other(lived_in: Api, planted: str) -> None:
    statement, rule = PLANTED[planted]
    await lived_in.conn.execute("ALTER TABLE settlements DROP CONSTRAINT IF EXISTS settlements_check")
    done = await lived_in.conn.execute(statement)
    assert not done.endswith(" 0"), done
    assert await counted(lived_in) == (NOTHING if rule is None else Counter({rule: 1}))


# More than the last 1 000 pages, and more than 10 000 events in those: what is newest must be among what is looked at.
QUIET_EVENTS = """
    INSERT INTO events (source, id, type, user_id, occurred_at, fingerprint, taken_at, answer)
    SELECT 'api', 'quiet_' || n, 'user.signed_up', 'quiet', now(), sha256(''), now(), '{"notifications": []}'
      FROM generate_series(1, 40000) n
"""
PROMISED_TO_NOBODY = """
    INSERT INTO events (source, id, type, user_id, occurred_at, fingerprint, taken_at, answer)
    SELECT 'api', 'loud_' || n, 'user.signed_up', 'loud', now(), sha256(''), now(),
           json_build_object('notifications', json_build_array(json_build_object('id', gen_random_uuid(), 'kind', 'k')))
      FROM generate_series(1, 50) n
"""


async def test_the_newest_answers_are_looked_at_however_many_came_before(lived_in: Api) -> None:
    await lived_in.conn.execute(QUIET_EVENTS)
    assert await lived_in.conn.fetchval("SELECT pg_relation_size('events') / 8192") > 1_000
    assert await counted(lived_in) == NOTHING
    await lived_in.conn.execute(PROMISED_TO_NOBODY)
    assert await counted(lived_in) == Counter({"I1": 50})


async def test_an_answer_that_went_where_retention_made_room_is_looked_at(lived_in: Api) -> None:
    await lived_in.conn.execute(QUIET_EVENTS)
    await lived_in.conn.execute("DELETE FROM events WHERE id LIKE 'quiet____'")
    await lived_in.conn.execute("VACUUM events")
    await lived_in.signup("u_new")
    pages = await lived_in.conn.fetchval(
        """SELECT pg_relation_size('events') / 8192 - split_part(trim(leading '(' from ctid::text), ',', 1)::int
             FROM events WHERE user_id = 'u_new'"""
    )
    assert pages > 1_000, "it was put among the last pages, which shows nothing"
    assert await counted(lived_in) == NOTHING
    await lived_in.conn.execute(LOST_WITH_ITS_DECISION.replace("LIMIT 1", "WHERE user_id = 'u_new' LIMIT 1"))
    assert await counted(lived_in) == Counter({"I1": 1})


# ------------------------------------------------------------------------------------------ what is late

ALIVE = """
    INSERT INTO workers (id, role, host, pid, started_at, heartbeat_at)
    VALUES ('w', $1, 'h', 1, now() - $2::interval, now() + $3::interval)
"""
LONG = timedelta(hours=1)
STILL = timedelta(seconds=10)  # in time to come: it will have beaten after the first look
SILENT = timedelta(seconds=-10)


async def overdue_claims(api: Api, *expired_s: float) -> None:
    for number, ago_s in enumerate(expired_s):
        await api.bring_to("sending", f"late_{number}")
        await api.conn.execute(
            "UPDATE deliveries SET claim_expires_at = now() - make_interval(secs => $1) WHERE user_id = $2",
            ago_s,
            f"late_{number}",
        )


async def overdue_sends(api: Api) -> None:
    await api.signup("u_due")
    await api.conn.execute("UPDATE scheduled_sends SET due_at = now() - interval '22 seconds' WHERE user_id = 'u_due'")


@pytest.mark.parametrize(
    ("started", "beats", "late"),
    [(LONG, STILL, 1), (LONG, SILENT, 0), (LONG, -LONG, 0), (timedelta(seconds=5), STILL, 0)],
    ids=["alive", "silent-since", "gone", "just-started"],
)
@pytest.mark.parametrize(("role", "rule"), [("scheduler", "I4"), ("worker", "I7")])
async def test_what_is_late_counts_while_somebody_lives_who_could_have_moved_it(
    lived_in: Api, role: str, rule: str, started: timedelta, beats: timedelta, late: int
) -> None:
    await (overdue_sends(lived_in) if role == "scheduler" else overdue_claims(lived_in, 80))
    assert await counted(lived_in) == NOTHING
    await lived_in.conn.execute(ALIVE, role, started, beats)
    assert await counted(lived_in) == Counter({rule: 1} if late else {})
    await lived_in.conn.execute("UPDATE workers SET role = 'api' WHERE id = 'w'")
    assert await counted(lived_in) == NOTHING


@pytest.mark.parametrize(("expired_s", "late"), [((65,), 0), ((80,), 1), ((80, 100), 1), ((120, 130), 2)])
async def test_claims_behind_others_may_wait_for_their_turn(
    lived_in: Api, expired_s: tuple[float, ...], late: int
) -> None:
    """A claim time and a poll (31 s), and 41 s for each place in the line: an open breaker takes one at a time."""
    await overdue_claims(lived_in, *expired_s)
    await lived_in.conn.execute(ALIVE, "worker", LONG, STILL)
    assert (await counted(lived_in))["I7"] == late


@pytest.mark.parametrize("switch", ["pause", "pause:onboarding", "pause:provider:mock"])
async def test_what_a_switch_holds_is_nobodys_duty(lived_in: Api, switch: str) -> None:
    await overdue_claims(lived_in, 80)
    await lived_in.conn.execute(ALIVE, "worker", LONG, STILL)
    await lived_in.conn.execute(
        "INSERT INTO switches VALUES ($1, 'o', 'r', notifier.now(), notifier.now() + interval '1 hour')", switch
    )
    assert await counted(lived_in) == NOTHING


async def test_a_kind_this_build_does_not_know_is_nobodys_duty(lived_in: Api) -> None:
    await overdue_claims(lived_in, 80)
    await lived_in.conn.execute(ALIVE, "worker", LONG, STILL)
    await lived_in.conn.execute("UPDATE deliveries SET kind = 'newer@1' WHERE user_id = 'late_0'")
    assert await counted(lived_in) == NOTHING


async def test_what_is_moved_between_two_looks_was_never_late(lived_in: Api) -> None:
    """Business time is moved by three days, and what is due then is released a moment later."""
    judge = api_judge(lived_in)
    judge.second_look_s = 0.5
    await lived_in.conn.execute(ALIVE, "scheduler", LONG, STILL)
    await lived_in.conn.execute("UPDATE installation SET clock_offset = interval '4 days'")
    looking = asyncio.create_task(judge.count())

    async def suspicious() -> bool:
        return bool(
            (await invariants.overdue_sends(lived_in.conn, invariants.patience(lived_in.runtime.settings))).rows
        )

    assert await suspicious()
    while (await moves.release(lived_in.conn)).moved:
        pass
    assert not await suspicious()
    assert (await looking)["I4"] == 0


async def test_who_asks_while_a_count_is_under_way_gets_that_one(lived_in: Api) -> None:
    judge = api_judge(lived_in)
    judge.second_look_s = 0.5
    await lived_in.conn.execute(ALIVE, "scheduler", LONG, STILL)
    await overdue_sends(lived_in)
    first, gone, last = (asyncio.create_task(judge.count()) for _ in range(3))
    await asyncio.sleep(0)
    gone.cancel()
    assert (await first)["I4"] == 1
    await asyncio.sleep(0)
    assert last.done(), "it waited for a count of its own"
    assert last.result() == first.result()
    assert gone.cancelled()
    await lived_in.conn.execute("UPDATE workers SET role = 'api'")
    assert (await judge.count())["I4"] == 0, "who asks after it gets a new one"


def test_a_row_that_was_touched_between_two_looks_is_another_suspect() -> None:
    one, other = UUID(int=1), UUID(int=2)
    assert Suspects(None, {one: 2, other: 1}).among(Suspects(None, {one: 1, other: 1})) == 1


def test_the_breaker_waits_no_longer_than_the_rule_allows_for() -> None:
    assert BREAKER_WAIT_S == PROBE_MAX_S


# ------------------------------------------------------------------------------------------ how they are served


async def test_the_gauge_is_refreshed_by_a_scrape_and_tells_every_rule(lived_in: Api) -> None:
    await lived_in.conn.execute(LOST)

    async def told() -> dict[str, float]:
        text = (await lived_in.get("/metrics")).body.decode()
        lines = [line for line in text.splitlines() if line.startswith("notifier_invariant_violations{")]
        return {line.split('"')[1]: float(line.split()[-1]) for line in lines}

    async def all_told() -> bool:
        return (await told()).get("I0") == 1.0

    await until(all_told, "the scrape began a count, and it ended")
    assert await told() == {**dict.fromkeys(RULES, 0.0), "I0": 1.0}


async def test_a_scrape_does_not_wait_for_a_second_look(lived_in: Api) -> None:
    await lived_in.conn.execute(ALIVE, "scheduler", LONG, STILL)
    await overdue_sends(lived_in)
    api_judge(lived_in).second_look_s = 600.0
    assert (await lived_in.get("/metrics")).status == 200
    assert (await lived_in.get("/metrics")).status == 200


async def test_what_the_record_cannot_tell_is_said_to_be_unchecked(database_url: str) -> None:
    async with running_api(database_url, mock_family=Family.DROP) as api:
        told = await api.get("/v1/invariants")
    assert {rule for rule, item in told.body["invariants"].items() if not item["checked"]} == {"I2"}
    assert told.body["invariants"]["I2"]["violations"] is None
