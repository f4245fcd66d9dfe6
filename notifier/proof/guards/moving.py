"""Guards of the moves: what waits, is owed or is claimed goes to one place, and who came second is told so."""

from __future__ import annotations

from notifier.proof.guards.guard import Change, Chaos, Guard

_RACES = "tests/integration/test_guards.py"
_DELIVERY = "tests/integration/test_delivery.py"
_RETENTION = "tests/integration/test_retention.py"
_MOVES = "notifier/store/moves.py"

_SCHEDULED_FIRST = """\
            canceled |= await moves.cancel_scheduled(conn, cancels)
        await reach(Point.LOGIN_BETWEEN_CANCELS)
        if cancels:
            canceled |= await moves.cancel_open(conn, cancels)
"""
_OPEN_FIRST = """\
            canceled |= await moves.cancel_open(conn, cancels)
        await reach(Point.LOGIN_BETWEEN_CANCELS)
        if cancels:
            canceled |= await moves.cancel_scheduled(conn, cancels)
"""
_OPERATOR_SCHEDULED_FIRST = """\
    if await conn.fetchval(CANCEL_SCHEDULED, notification, generation, decided_by) is not None:
        return True
    return await conn.fetchval(CANCEL_PENDING, notification, generation, decided_by) is not None
"""
_OPERATOR_OPEN_FIRST = """\
    if await conn.fetchval(CANCEL_PENDING, notification, generation, decided_by) is not None:
        return True
    return await conn.fetchval(CANCEL_SCHEDULED, notification, generation, decided_by) is not None
"""
# Both cancels as one statement: one snapshot, which does not see what the first half waited for.
_SECOND_CANCEL = "            canceled |= await moves.cancel_open(conn, cancels)\n"
_TWO_STATEMENTS = "return await _cancel(conn, CANCEL_SCHEDULED, cancels)"
_ONE_STATEMENT = '''return await _cancel(
        conn,
        """
    WITH n AS MATERIALIZED (SELECT * FROM unnest($1::uuid[], $2::text[], $3::text[]) AS t (id, reason, decided_by)),
    s AS (DELETE FROM scheduled_sends
           WHERE id = ANY (ARRAY (SELECT s.id FROM scheduled_sends s
                                   WHERE s.id = ANY ($1::uuid[]) ORDER BY s.id FOR UPDATE))
          RETURNING id, user_id, kind, generation, resend_number),
    d AS (DELETE FROM deliveries
           WHERE id = ANY (ARRAY (SELECT d.id FROM deliveries d
                                   WHERE d.id = ANY ($1::uuid[]) AND num_nulls(d.claimed_by, d.doubt_since) = 2
                                   ORDER BY d.id FOR UPDATE))
          RETURNING id, user_id, kind, generation, resend_number),
    m AS (SELECT * FROM s UNION ALL SELECT * FROM d)
    INSERT INTO settlements (id, user_id, kind, state, reason, decided_by, generation, resend_number)
    SELECT m.id, m.user_id, m.kind, 'canceled', n.reason, n.decided_by, m.generation, m.resend_number
      FROM m JOIN n USING (id)
    RETURNING id
""",
        cancels,
    )'''

_RELEASE = """\
    WITH due AS (
        DELETE FROM scheduled_sends
         WHERE id = ANY (ARRAY (SELECT s.id FROM scheduled_sends s
                                 WHERE s.due_at <= notifier.now()
                                   AND (s.due_at, s.id) >= ($1, '00000000-0000-0000-0000-000000000000'::uuid)
                                 ORDER BY s.due_at, s.id
                                 LIMIT 500                    -- literal: a parameter turns the plan into a full scan
                                   FOR UPDATE SKIP LOCKED))
        RETURNING id, user_id, kind, due_at, generation, resend_number),
"""
_RELEASE_BY_A_LOOK = """\
    WITH due AS (
        SELECT s.id, s.user_id, s.kind, s.due_at, s.generation, s.resend_number FROM scheduled_sends s
         WHERE s.due_at <= notifier.now() AND s.due_at >= $1 ORDER BY s.due_at, s.id LIMIT 500),
    gone AS (DELETE FROM scheduled_sends WHERE id = ANY (ARRAY (SELECT id FROM due))),
"""

MOVING = (
    Guard(
        "conditional cancel: claimed",
        "a mail canceled while a worker is sending it",
        (Change(_MOVES, "num_nulls(d.claimed_by, d.doubt_since) = 2", "num_nulls(d.doubt_since) = 1"),),
        (f"{_RACES}::test_a_claim_in_between_is_never_canceled",),
        Chaos(seed=1, faults="provider"),
    ),
    Guard(
        "conditional cancel: in doubt",
        "a mail canceled that may have been taken before",
        (Change(_MOVES, "num_nulls(d.claimed_by, d.doubt_since) = 2", "num_nulls(d.claimed_by) = 1"),),
        (f"{_DELIVERY}::test_a_row_in_doubt_is_never_canceled",),
        Chaos(seed=449, faults="provider", minutes=1.0, users=600),
    ),
    Guard(
        "order of the cancels",
        "a follow-up missed at the first look because it is being released",
        (Change("notifier/ingest/transaction.py", _SCHEDULED_FIRST, _OPEN_FIRST),),
        (f"{_RACES}::test_a_login_finds_what_a_release_in_flight_moves_at_the_first_look",),
        unseen="the rounds stand behind it (`order and rounds` takes both)",
    ),
    Guard(
        "two cancel statements",
        "the same: a statement that had to wait still looks at the rows as they were before",
        (
            Change(_MOVES, _TWO_STATEMENTS, _ONE_STATEMENT),
            Change("notifier/ingest/transaction.py", _SECOND_CANCEL, "            pass\n"),
        ),
        (f"{_RACES}::test_a_login_finds_what_a_release_in_flight_moves_at_the_first_look",),
        unseen="the rounds stand behind it",
    ),
    Guard(
        "cancel rounds",
        "a mail that is neither canceled nor too late, because it was given back in between",
        (Change("notifier/ingest/transaction.py", "        if not pending:\n", "        if True:\n"),),
        (f"{_RACES}::test_what_comes_back_behind_a_cancel_is_stopped_in_the_next_round",),
        unseen="the order stands before it (`order and rounds` takes both)",
    ),
    Guard(
        "order and rounds",
        "a follow-up missed by both looks, and sent to somebody who has logged in",
        (
            Change("notifier/ingest/transaction.py", _SCHEDULED_FIRST, _OPEN_FIRST),
            Change("notifier/ingest/transaction.py", "        if not pending:\n", "        if True:\n"),
        ),
        (f"{_RACES}::test_a_login_finds_what_a_release_in_flight_moves_at_the_first_look",),
        Chaos(seed=11, faults="pause,provider", users=500),
    ),
    Guard(
        "order of an operator's cancels",
        "a row missed at the first look by the operator who stops it",
        (Change("notifier/store/operator_moves.py", _OPERATOR_SCHEDULED_FIRST, _OPERATOR_OPEN_FIRST),),
        (f"{_RACES}::test_an_operator_finds_what_a_release_in_flight_moves_at_the_first_look",),
        unseen="the operator is told that it did not work, which is true",
    ),
    Guard(
        "release: skip locked",
        "everybody's follow-ups late because of one user's locked row",
        (Change(_MOVES, "                                   FOR UPDATE SKIP LOCKED))", "FOR UPDATE))"),),
        (f"{_RACES}::test_a_release_passes_over_what_somebody_holds",),
        unseen="it costs time only",
    ),
    Guard(
        "release: row lock",
        "the same: what it did not lock when it looked, it waits for when it deletes",
        (Change(_MOVES, "                                   FOR UPDATE SKIP LOCKED))", "))"),),
        (f"{_RACES}::test_a_release_passes_over_what_somebody_holds",),
        unseen="the delete locks and looks again: it costs time only (`release: delete feeds insert` takes both)",
    ),
    Guard(
        "release: delete feeds insert",
        "a follow-up that is canceled and owed at once",
        (Change(_MOVES, _RELEASE, _RELEASE_BY_A_LOOK),),
        (f"{_RACES}::test_a_release_moves_nothing_that_a_cancel_in_flight_has_taken",),
        Chaos(seed=11, faults="pause", users=400),
    ),
    Guard(
        "claim: skip locked",
        "one mail in two workers' hands, or workers that wait for each other",
        (
            Change(
                "notifier/store/deliveries.py",
                "                           FOR UPDATE SKIP LOCKED) AS r",
                "                           ) AS r",
            ),
        ),
        (f"{_RACES}::test_a_claim_passes_over_what_another_claim_holds",),
        unseen="the second claim is the newer generation: without keys `begin` stops the first, else the key does",
    ),
    Guard(
        "take-over: expired only",
        "a claim taken from a worker whose time is not over",
        (
            Change(
                "notifier/store/deliveries.py",
                "                      AND x.claim_expires_at <= now() AND x.kind_name",
                "                      AND x.kind_name",
            ),
        ),
        (f"{_DELIVERY}::test_a_live_claim_is_not_taken_over",),
        unseen="the look before it finds expired claims only; and the key, or doubt, stands behind it",
    ),
    Guard(
        "trimmed mark",
        "a mail owed again while what it is made of is being removed",
        tuple(
            Change(
                "notifier/store/operator_moves.py",
                f"state = $3 AND trimmed_at IS NULL\n        RETURNING {columns})",
                f"state = $3\n        RETURNING {columns})",
            )
            for columns in (
                "id, user_id, kind, generation, resend_number",
                "id, user_id, kind, generation, resend_number, settled_at, provider",
            )
        ),
        (f"{_RETENTION}::test_a_retry_that_waited_for_the_trimming_finds_the_mark",),
        unseen="no load lasts for weeks",
    ),
    Guard(
        "retention: ends only",
        "a mail in doubt without the record that could end the doubt",
        (Change("notifier/store/retention.py", " AND s.state <> 'uncertain'", ""),),
        (f"{_RETENTION}::test_what_is_open_or_uncertain_keeps_everything",),
        unseen="no load lasts for weeks",
    ),
)
