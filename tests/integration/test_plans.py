"""Statements find their index on a filled database: with an empty one's statistics and fresh ones, and as any plan.

A service's plans are generic; a custom one, made for the values at hand, is what it would get without that setting.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
import pytest
import pytest_asyncio

from notifier import embedded
from notifier.settings import Settings
from notifier.store import (
    acceptance,
    attempts,
    audit,
    counts,
    deliveries,
    events,
    invariants,
    moves,
    notifications,
    operator_moves,
    outbox,
    results,
    retention,
    users,
)
from notifier.store.database import server_settings
from notifier.store.results import as_array
from tests.integration.test_statements import CONSTANTS
from tests.support.servers import database_like

ROWS = 300_000
BIG = (
    "deliveries",
    "scheduled_sends",
    "outbox",
    "settlements",
    "users",
    "last_seen",
    "events",
    "attempts",
    "audit_log",
)
KINDS = ["onboarding", "followup"]
HASHES = ["h1", "h2"]
SOME_IDS = [UUID(int=number * 997) for number in range(1, 51)]
BLOCKS_A_ROW = 5  # an index that is read from end to end shows here alone
LAST_ID = UUID(int=2**128 - 1)
NOW = datetime(2026, 1, 1, tzinfo=UTC)
SOME_EVENTS = [f"e{number * 997}" for number in range(1, 51)]
SOME_USERS = [f"u{number * 997}" for number in range(1, 51)]

FILL = f"""
    INSERT INTO users (user_id, email, email_at) SELECT 'u' || n, 'u' || n || '@example.com', now()
      FROM generate_series(1, {ROWS}) n;
    INSERT INTO outbox (id, user_id, kind, decided_at, decided_by, due_at, cancel_from, data)
    SELECT lpad(to_hex(n), 32, '0')::uuid, 'u' || n, 'onboarding', now(), 'event:api/e', now(), now(), '{{}}'
      FROM generate_series(1, {ROWS}) n;
    INSERT INTO deliveries (id, user_id, kind, next_attempt_at)
    SELECT id, user_id, 'onboarding', now() + (random() - 0.5) * interval '1 hour' FROM outbox WHERE random() < 0.5;
    INSERT INTO scheduled_sends (id, user_id, kind, due_at)
    SELECT id, user_id, 'onboarding', now() + (random() - 0.5) * interval '1 hour'
      FROM outbox o WHERE NOT EXISTS (SELECT FROM deliveries d WHERE d.id = o.id) AND random() < 0.7;
    INSERT INTO settlements (id, user_id, kind, state, evidence, decided_by, generation)
    SELECT id, user_id, kind, 'sent', 'accepted', 'worker:w', 1 FROM outbox o
     WHERE NOT EXISTS (SELECT FROM deliveries d WHERE d.id = o.id)
       AND NOT EXISTS (SELECT FROM scheduled_sends s WHERE s.id = o.id);
    INSERT INTO settlements (id, user_id, kind, state, reason, decided_by, generation)
    SELECT lpad(to_hex(n + {ROWS}), 32, '0')::uuid, 'v' || n, 'onboarding', 'canceled', 'login', 'event:api/e', 1
      FROM generate_series(1, {ROWS} / 3) n;
    INSERT INTO attempts (notification_id, generation, worker, user_id, provider, resend_number, outcome, claimed_at,
                          started_at, finished_at)
    SELECT id, 1, 'w', user_id, 'mock:1', 0, 'accepted', now(), now(), now() FROM outbox;
    INSERT INTO events (source, id, type, user_id, occurred_at, fingerprint, taken_at, answer)
    SELECT 'api', 'e' || n, 'user.signed_up', 'u' || n, now(), sha256('x'), now(),
           json_build_object('notifications', json_build_array(json_build_object('id', gen_random_uuid(), 'kind', 'k')))
      FROM generate_series(1, {ROWS}) n;
    INSERT INTO last_seen (user_id, event_type, seen_at, event_ref)
    SELECT 'u' || n, 'user.signed_up', now(), 'api/e' || n FROM generate_series(1, {ROWS}) n;
    INSERT INTO audit_log (actor, act, target, user_id)
    SELECT 'operator', 'cancel', n::text, 'u' || n FROM generate_series(1, {ROWS} / 3) n;
    INSERT INTO workers (id, role, host, pid, started_at, heartbeat_at)
    SELECT role, role, 'h', 1, now() - interval '1 hour', now() + interval '1 hour'
      FROM unnest(ARRAY['worker', 'scheduler']) AS role;
"""

_CLAIM = ("w1", timedelta(seconds=30), True, "mock:1", KINDS, HASHES, "pause:provider:mock")
_RESULTS = (
    "w1",
    SOME_IDS,
    [1] * 50,
    ["sent"] * 50,
    [None] * 50,
    [False] * 50,
    ["accepted"] * 50,
    ["m"] * 50,
    ["worker:w1"] * 50,
    [None] * 50,
    ["mock:1"] * 50,
    [0] * 50,
    [None] * 50,
    SOME_USERS,
    [None] * 50,
    [None] * 50,
    [timedelta(0)] * 50,
    [True] * 50,
    [None] * 50,
    [0] * 50,
)
_NEW_IDS = [UUID(int=2**100 + number) for number in range(50)]
_NEW_USERS = [f"new{number}" for number in range(50)]
_DECISIONS = [
    {"event": number, "id": str(new), "kind": "onboarding", "cancel_on": [], "data": {}, "state": "pending"}
    for number, new in enumerate(_NEW_IDS)
]
_EVENTS = [
    {
        "number": number,
        "source": "api",
        "id": user,
        "type": "user.signed_up",
        "user_id": user,
        "occurred_at": NOW.isoformat(),
        "fingerprint": "\\x" + "00" * 32,
        "answer": {},
        "is_first": user in _NEW_USERS,
    }
    for number, user in enumerate((*_NEW_USERS, *SOME_USERS))
]
_ACCEPTED = (json.dumps(_EVENTS), json.dumps(_DECISIONS), NOW, NOW)
_SAID = [{"user_id": user, "at": NOW.isoformat(), "email": user} for user in SOME_USERS]
_MET = [
    {"number": number, "source": "api", "id": event, **said}
    for number, (event, said) in enumerate(zip(SOME_EVENTS, _SAID, strict=True))
]
_PAGE = (UUID(int=1_000), None, 101)
_RARE = (UUID(int=1_000), "rare", 101)
_PART = ("(1280,0)", "(1408,0)")
_ONE = (SOME_IDS[0], 0)
_CANCELS = (SOME_IDS, ["login"] * 50, ["event:api/e"] * 50)

# statement → arguments, and how many rows of a big table it may look at
HOT: dict[str, tuple[str, tuple[Any, ...], int]] = {
    "claim": (deliveries.CLAIM, (*_CLAIM, 50, None, 1, [NOW] * 2, [UUID(int=0)] * 2), 2_000),
    "claim_in_batches": (deliveries.CLAIM, (*_CLAIM, 50, SOME_IDS[:5], 10, [NOW] * 2, [UUID(int=0)] * 2), 2_000),
    "look": (deliveries.LOOK, (KINDS, timedelta(seconds=30), "pause:provider:mock", SOME_IDS), 1_000),
    "take_over_batches": (deliveries.TAKE_OVER_BATCHES, (*_CLAIM, SOME_IDS), 2_000),
    "take_over": (deliveries.TAKE_OVER, (*_CLAIM, SOME_IDS), 1_000),
    "settle": (results.SETTLE, _RESULTS, 1_000),
    "settle_sent": (
        results.SETTLE_SENT,
        (
            "w1",
            as_array(SOME_IDS),
            as_array([1] * 50),
            as_array(["accepted"] * 50),
            "\x1f".join(["m"] * 50),
            *[as_array(["0.1"] * 50)] * 2,
        ),
        1_000,
    ),
    "calls": (attempts.OF_NOTIFICATIONS, (SOME_IDS,), 1_000),
    "put_back": (results.PUT_BACK, _RESULTS, 1_000),
    "release": (moves.RELEASE, (NOW,), 5_000),
    "cancel_scheduled": (moves.CANCEL_SCHEDULED, _CANCELS, 1_000),
    "cancel_open": (moves.CANCEL_OPEN, _CANCELS, 1_000),
    "of_users": (outbox.OF_USERS, (SOME_USERS,), 1_000),
    "read": (notifications.READ, SOME_IDS[:1], 10),
    "of_user": (notifications.OF_USER, (*_PAGE, "u997", None), 20),
    "page": (notifications.OF_ALL, _PAGE, 1_000),
    "page_of_a_rare_kind": (notifications.OF_ALL, _RARE, 101_000),
    "page_scheduled": (notifications.OF_SCHEDULED, _PAGE, 1_000),
    "page_pending": (notifications.OF_PENDING, _PAGE, 1_000),
    "page_sending": (notifications.OF_SENDING, _PAGE, 1_000),
    "page_sent": (notifications.OF_SENT, _PAGE, 1_000),
    "page_failed": (notifications.OF_FAILED, _PAGE, 1_000),
    "operator_cancel_scheduled": (operator_moves.CANCEL_SCHEDULED, (*_ONE, "operator:k"), 10),
    "operator_cancel_pending": (operator_moves.CANCEL_PENDING, (*_ONE, "operator:k"), 10),
    "operator_retry": (operator_moves.RETRY_OWED, (*_ONE, "failed", 0), 10),
    "lock": (users.LOCK, (json.dumps(_SAID),), 1_000),
    "meet_known": (acceptance.MEET, (json.dumps(_MET),), 1_000),
    "meet": (acceptance.MEET, (json.dumps([{**row, "id": f"new{row['id']}"} for row in _MET]),), 1_000),
    "read_for_events": (acceptance.READ, (SOME_USERS,), 1_000),
    "accept": (acceptance.WRITE, _ACCEPTED, 1_000),
    "invariant_0": (invariants.DOUBLED_OR_LOST, (), 50_000),
    "invariant_1": (invariants.PROMISED_AND_MISSING, (LAST_ID,), 75_000),
    "invariant_2": (invariants.ACCEPTED_TWICE, (), 20_000),
    "invariant_3": (invariants.CANCELED_AND_CALLED, (LAST_ID,), 20_000),
    "invariant_4": (invariants.OVERDUE_SENDS, (None, timedelta(seconds=20)), 1_100),
    "invariant_5": (invariants.UNASKED, (), 80_000),
    "invariant_6": (invariants.SENT_AND_RECORD_DIFFER, (LAST_ID,), 80_000),
    "invariant_7": (
        invariants.OVERDUE_CLAIMS,
        (None, timedelta(seconds=31), timedelta(seconds=41), KINDS),
        2_500,
    ),
    "forget_events": (retention.EVENTS, (*_PART, timedelta(days=30)), 5_000),
    "forget_old_events": (retention.EVENTS, (*_PART, timedelta(days=-1)), 6_000),
    "trim": (retention.SETTLED, (*_PART, timedelta(days=90)), 15_000),
    "trim_old": (retention.SETTLED, (*_PART, timedelta(days=-1)), 17_000),
    "begin": (deliveries.BEGIN_CALL, (SOME_IDS[0], 1, "w1"), 10),
    "forget_open": (deliveries.FORGET, (SOME_IDS,), 1_000),
    "record": (results.RECORD, _RESULTS, 1_000),
    "recorded": (results.RECORDED, (SOME_IDS, [1] * 50, "w1"), 1_000),
    "settled_by_us": (results.SETTLED_BY_US, (SOME_IDS, [1] * 50, "w1"), 1_000),
    "late_evidence": (results.LATE_EVIDENCE, ("w1", SOME_IDS, [0] * 50, ["m"] * 50), 1_000),
    "reconcile": (results.RECONCILE, (), 1_000),
    "oldest_pending": (counts.OLDEST_PENDING, (), 100),
    "owed_kinds": (counts.OWED_KINDS, (), 100),
    "events_of_user": (events.OF_USER, ("u997",), 10),
    "audit_page": (audit.PAGE, (2**60, 100), 200),
    "audit_of_user": (audit.OF_USER, ("u997",), 10),
    "page_canceled": (notifications.OF_CANCELED, _PAGE, 60_000),
    "page_skipped": (notifications.OF_SKIPPED, _PAGE, 1_000),
    "page_uncertain": (notifications.OF_UNCERTAIN, _PAGE, 1_000),
    "operator_schedule_again": (operator_moves.RETRY_SCHEDULED, (SOME_IDS[0], 1, "canceled"), 10),
    "operator_resolve": (
        operator_moves.RESOLVE,
        (SOME_IDS[0], 1, "uncertain", "canceled", "r", "operator:k", None),
        10,
    ),
    "empty_data": (outbox.EMPTY, ("u997",), 10),
    "lock_user": (users.LOCK_KNOWN, ("u997",), 10),
    "erase_user": (users.ERASE, ("u997",), 10),
    "forget_user": (users.FORGET, ("u997",), 10),
    "read_users": (users.READ, (SOME_USERS,), 1_000),
    "last_seen": (users.LAST_SEEN, (SOME_USERS,), 1_000),
}


SMALL = ("switches", "installation", "workers", "restores", "suppressions", "templates")

# Not looked at above. A module whole: its tables stay small, or it asks the server about itself. `restores` is for the
# hour after a restore, and reads all that is open. The counts stop at a cap, or count what is open, for `status` alone.
COLD = (
    "installation",
    "migrate",
    "probe",
    "restores",
    "server",
    "switches",
    "templates",
    "workers",
    "audit.WRITE",
    "counts.OPEN_STATES",
    "counts.SETTLED",
    "operator_moves.SUPPRESSED",
    "retention.SIZES",
)


def test_every_statement_is_looked_at_or_known_to_be_cold() -> None:
    hot = {statement for statement, _, _ in HOT.values()}
    unknown = [
        name
        for full, statement in CONSTANTS.items()
        if statement not in hot
        and not (name := full.removeprefix("notifier.store.")).startswith(tuple(f"{module}." for module in COLD))
        and name not in COLD
    ]
    assert unknown == []


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def prepared(
    postgres: embedded.Server, template: str, request: pytest.FixtureRequest
) -> AsyncIterator[asyncpg.Connection]:
    """A service's connection with every hot statement prepared while the tables were empty; then they are filled.

    Of a table that was never vacuumed PostgreSQL supposes ten pages; of one that was, while nothing was owed, that it
    is empty for ever. To fill them takes longer than all that is asked of them: a test undoes what it does, and the one
    that ends with fresh statistics is the last on its database.
    """
    settings = {**server_settings(Settings()), "statement_timeout": "0"}
    async with database_like(postgres, template) as url:
        conn = await asyncpg.connect(url, server_settings=settings)
        for table in BIG:
            await conn.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = off)")
        if request.param == "vacuumed":
            await conn.execute("VACUUM ANALYZE deliveries")
        for name, (statement, arguments, _) in HOT.items():
            await conn.execute(f"PREPARE {name} AS {statement}")
            await _explain(conn, name, arguments)
        await conn.execute(FILL)
        yield conn
        await conn.close()


async def _explain(conn: asyncpg.Connection, name: str, arguments: tuple[Any, ...]) -> dict[str, Any]:
    """Run a prepared statement under EXPLAIN ANALYZE, and undo it."""
    literals = ", ".join(_literal(argument) for argument in arguments)
    call = f"EXECUTE {name} ({literals})" if arguments else f"EXECUTE {name}"
    await conn.execute("BEGIN")
    if name.startswith(("page", "invariant")):
        await conn.execute(notifications.WALK_IN_ORDER)
    try:
        found = await conn.fetchval(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON, TIMING OFF) {call}")
    finally:
        await conn.execute("ROLLBACK")
    plan: dict[str, Any] = json.loads(found)[0]
    return plan


def _literal(value: Any) -> str:
    """An untyped literal, which takes the type of its parameter."""
    if isinstance(value, list):
        return "'{" + ",".join("NULL" if item is None else f'"{_text(item)}"' for item in value) + "}'"
    return "NULL" if value is None else f"'{_text(value)}'"


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return rf"\\x{value.hex()}"
    return f"{value.total_seconds()} s" if isinstance(value, timedelta) else str(value)


def _nodes(plan: dict[str, Any]) -> list[dict[str, Any]]:
    return [plan, *(node for child in plan.get("Plans", ()) for node in _nodes(child))]


def _rows_looked_at(plan: dict[str, Any]) -> float:
    return sum(
        node["Actual Loops"] * (node["Actual Rows"] + node.get("Rows Removed by Filter", 0))
        for node in _nodes(plan)
        if "Relation Name" in node and "Scan" in node["Node Type"]
    )


AS_MADE = pytest.mark.parametrize("prepared", ["as made"], indirect=True)


@pytest.mark.timeout(240)
@pytest.mark.asyncio(loop_scope="module")
@AS_MADE
async def test_a_pause_on_many_rows_costs_nothing(prepared: asyncpg.Connection) -> None:
    await prepared.execute(
        "INSERT INTO switches VALUES ('pause:onboarding', 'o', 'r', notifier.now(), notifier.now() + interval '1 day')"
    )
    try:
        plan = (await _explain(prepared, "claim", (*_CLAIM, 50, None, 1, [NOW] * 2, [UUID(int=0)] * 2)))["Plan"]
    finally:
        await prepared.execute("DELETE FROM switches")
    assert _rows_looked_at(plan) <= 100, json.dumps(plan)[:3000]


@pytest.mark.timeout(400)
@pytest.mark.asyncio(loop_scope="module")
@AS_MADE
async def test_hot_statements_find_their_index(prepared: asyncpg.Connection) -> None:
    found = await _faults(prepared, "statistics of an empty database")
    await prepared.execute("ANALYZE")
    found += await _faults(prepared, "fresh statistics")
    await prepared.execute("SET plan_cache_mode = force_custom_plan")
    found += await _faults(prepared, "custom plans")
    assert found == [], "\n".join(found)


@pytest.mark.timeout(240)
@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("prepared", ["vacuumed"], indirect=True)
async def test_they_do_when_they_were_planned_for_tables_that_had_been_emptied(prepared: asyncpg.Connection) -> None:
    found = await _faults(prepared, "statistics of a vacuumed, empty database")
    assert found == [], "\n".join(found)


async def _faults(conn: asyncpg.Connection, when: str) -> list[str]:
    """What is wrong with the plans: one reads a table that grows from end to end, or looks at too many rows."""
    found = []
    for name, (_, arguments, limit) in HOT.items():
        plan = (await _explain(conn, name, arguments))["Plan"]
        read_whole = {n["Relation Name"] for n in _nodes(plan) if n["Node Type"] == "Seq Scan"} - set(SMALL)
        if read_whole:
            found.append(f"{name}, {when}: sequential scan of {', '.join(sorted(read_whole))}")
        if (blocks := plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]) > BLOCKS_A_ROW * limit:
            found.append(f"{name}, {when}: reads {blocks} blocks: an index from end to end?")
        if (looked_at := _rows_looked_at(plan)) > limit:
            found.append(f"{name}, {when}: looks at {looked_at:.0f} rows, at most {limit}: {json.dumps(plan)[:2000]}")
    return found
