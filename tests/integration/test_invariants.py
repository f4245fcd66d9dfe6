"""The live invariants: each violation, planted in a database, is counted under its own rule and no other."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from notifier import observe
from notifier.http.documents import InvariantsOut
from notifier.http.invariants import JUDGE, RULES, Judge
from notifier.store import invariants, moves
from notifier.store.invariants import BREAKER_WAIT_S, Suspects
from notifier.worker.breaker import PROBE_MAX_S
from providers.base import Family
from tests.support.api import AGAIN, SENT, Api, running_api
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
    app = api.client.app
    assert app is not None
    return app[JUDGE]


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
        """DELETE FROM attempts WHERE notification_id = (SELECT id FROM settlements WHERE evidence = 'accepted')""",
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
