"""What must never be: counts of violations, cheap enough to ask of a running installation.

Each looks at the newest rows only (10 000 of a table; of the events, those in its last pages), in one snapshot: every
move between the places is one statement, so a row on its way is never counted as lost or doubled. A look-up is a
sub-select with its own LIMIT and never an EXISTS, which the planner may turn into a join over the whole of a large
table. Where that matters the caller says WALK_IN_ORDER in a transaction first: a plan made while the tables were small
would collect and sort.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from notifier.settings import Settings
from notifier.store.database import Connection, Row

_LAST_ID = UUID(int=2**128 - 1)

DOUBLED_OR_LOST = """
    SELECT (SELECT count(*) FROM (SELECT s.id FROM scheduled_sends s ORDER BY s.id DESC LIMIT 10000) AS s
             WHERE num_nonnulls((SELECT d.id FROM deliveries d WHERE d.id = s.id LIMIT 1),
                                (SELECT t.id FROM settlements t WHERE t.id = s.id LIMIT 1)) > 0)
         + (SELECT count(*) FROM (SELECT d.id FROM deliveries d ORDER BY d.id DESC LIMIT 10000) AS d
             WHERE (SELECT t.id FROM settlements t WHERE t.id = d.id LIMIT 1) IS NOT NULL)
         + (SELECT count(*) FROM (SELECT o.id FROM outbox o ORDER BY o.id DESC LIMIT 10000) AS o
             WHERE coalesce((SELECT t.id FROM settlements t WHERE t.id = o.id LIMIT 1),
                            (SELECT d.id FROM deliveries d WHERE d.id = o.id LIMIT 1),
                            (SELECT s.id FROM scheduled_sends s WHERE s.id = o.id LIMIT 1)) IS NULL)
"""


async def doubled_or_lost(conn: Connection) -> int:
    """I0: notifications in two places, or decided and in none."""
    found: int = await conn.fetchval(DOUBLED_OR_LOST)
    return found


# Of each state the newest, found by (state, id): with `state = …` the planner may walk all ids to find a rare state.
# Nothing orders events by time, and an index for that alone would cost every event: the last pages of the table hold
# the newest, as long as nothing is deleted from it, and some of the newest after that. They are read to their end,
# some 10 000 events: a LIMIT would count from the oldest of them. What retention deleted leaves room further to the
# front; what was put there is found by its user, as long as any of the newest decisions is about that one.
# An answer keeps its notifications as lists; earlier versions kept them as objects.
PROMISED_AND_MISSING = """
    WITH newest AS (
        SELECT e.source, e.id, e.user_id, e.answer FROM events e
         WHERE e.ctid >= (SELECT format('(%s,0)', greatest(0, pg_relation_size('events') / 8192 - 1000))::tid)
        UNION ALL
        SELECT e.source, e.id, e.user_id, e.answer
          FROM (SELECT DISTINCT o.user_id
                  FROM (SELECT o.user_id FROM outbox o ORDER BY o.id DESC LIMIT 10000) AS o) AS u,
               LATERAL (SELECT e.source, e.id, e.user_id, e.answer FROM events e
                         WHERE e.user_id = u.user_id ORDER BY e.user_id, e.received_at DESC LIMIT 5) AS e)
    SELECT (SELECT count(DISTINCT (e.source, e.id, n.id, n.kind))
              FROM (SELECT e.source, e.id, e.user_id, e.answer FROM newest e WHERE e.answer IS NOT NULL) AS e,
                   LATERAL (SELECT coalesce(i ->> 0, i ->> 'id')::uuid AS id, coalesce(i ->> 1, i ->> 'kind') AS kind
                              FROM json_array_elements(e.answer -> 'notifications') AS i) AS n
             WHERE (SELECT o.id FROM outbox o
                     WHERE o.id = n.id AND o.user_id = e.user_id AND o.kind = n.kind LIMIT 1) IS NULL)
         + (SELECT count(*)
              FROM unnest(ARRAY['canceled', 'skipped', 'failed', 'uncertain']) AS x (state),
                   LATERAL (SELECT t.state, t.reason FROM settlements t
                             WHERE t.state <> 'sent' AND (t.state, t.id) <= (x.state, $1::uuid)
                             ORDER BY t.state DESC, t.id DESC LIMIT 2500) AS t
             WHERE t.state = x.state AND coalesce(t.reason, '') = '')
"""


async def promised_and_missing(conn: Connection) -> int:
    """I1: notifications that an answer names and nobody decided, and ends other than `sent` without a reason."""
    found: int = await conn.fetchval(PROMISED_AND_MISSING, _LAST_ID)
    return found


# The view `calls` is for look-ups: nothing can walk it in order.
_NEWEST_CALLS = """
    (SELECT a.notification_id AS id, a.resend_number, a.outcome, a.provider_message_id FROM attempts a
      ORDER BY a.notification_id DESC LIMIT 10000)
     UNION ALL
    SELECT t.id, t.resend_number, t.evidence, t.provider_message_id
      FROM (SELECT * FROM settlements t ORDER BY t.id DESC LIMIT 10000) AS t WHERE t.call_started_at IS NOT NULL
"""
ACCEPTED_TWICE = f"""
    SELECT count(*)
      FROM (SELECT FROM ({_NEWEST_CALLS}) AS a
             WHERE a.outcome = 'accepted'
             GROUP BY a.id, a.resend_number HAVING count(DISTINCT a.provider_message_id) > 1) AS twice
"""  # noqa: S608 - constants of ours


async def accepted_twice(conn: Connection) -> int:
    """I2, as far as our own record goes: keys under which two calls were accepted as two different mails."""
    found: int = await conn.fetchval(ACCEPTED_TWICE)
    return found


CANCELED_AND_CALLED = """
    SELECT count(*)
      FROM (SELECT t.id, t.state, t.settled_at, t.resend_number FROM settlements t
             WHERE t.state <> 'sent' AND (t.state, t.id) <= ('canceled', $1::uuid)
             ORDER BY t.state DESC, t.id DESC LIMIT 10000) AS t
     WHERE t.state = 'canceled'
       AND (SELECT a.notification_id FROM calls a
             WHERE a.notification_id = t.id
               AND (a.started_at > t.settled_at
                    OR (a.outcome IN ('accepted', 'duplicate') AND a.resend_number = t.resend_number))
             LIMIT 1) IS NOT NULL
"""


async def canceled_and_called(conn: Connection) -> int:
    """I3: canceled, and yet accepted, or called for afterwards."""
    found: int = await conn.fetchval(CANCELED_AND_CALLED, _LAST_ID)
    return found


# Events are remembered for at least eight days; what was decided before the last seven may have outlived its event.
UNASKED = f"""
    SELECT (SELECT count(DISTINCT a.id)
              FROM ({_NEWEST_CALLS}) AS a
             WHERE a.outcome IN ('accepted', 'duplicate')
               AND (SELECT o.id FROM outbox o WHERE o.id = a.id LIMIT 1) IS NULL)
         + (SELECT count(*)
              FROM (SELECT t.id, t.state FROM settlements t ORDER BY t.id DESC LIMIT 10000) AS t
             WHERE t.state = 'sent'
               AND (SELECT o.id FROM outbox o WHERE o.id = t.id LIMIT 1) IS NULL
               AND (SELECT a.notification_id FROM calls a
                     WHERE a.notification_id = t.id AND a.outcome IN ('accepted', 'duplicate') LIMIT 1) IS NULL)
         + (SELECT count(*)
              FROM (SELECT o.user_id, o.taken_at, substr(o.decided_by, 7) AS ref, o.decided_by FROM outbox o
                     ORDER BY o.id DESC LIMIT 10000) AS o
             WHERE o.decided_by LIKE 'event:%' AND o.taken_at > now() - interval '7 days'
               AND (SELECT e.id FROM events e
                     WHERE e.source = split_part(o.ref, '/', 1) AND e.id = substr(o.ref, strpos(o.ref, '/') + 1)
                       AND e.user_id = o.user_id LIMIT 1) IS NULL)
"""  # noqa: S608 - constants of ours


async def unasked(conn: Connection) -> int:
    """I5: mails taken that nobody decided, and decisions without the event they name."""
    found: int = await conn.fetchval(UNASKED)
    return found


# Only evidence that is a call needs one: a person's word does not, and what was trimmed has none left. Canceled and
# accepted is I3; uncertain it may be.
SENT_AND_RECORD_DIFFER = f"""
    SELECT (SELECT count(*)
              FROM (SELECT t.id, t.state, t.evidence, t.resend_number, t.trimmed_at FROM settlements t
                     ORDER BY t.id DESC LIMIT 10000) AS t
             WHERE t.state = 'sent' AND t.evidence IN ('accepted', 'duplicate', 'late_settle') AND t.trimmed_at IS NULL
               AND (SELECT o.id FROM outbox o WHERE o.id = t.id LIMIT 1) IS NOT NULL
               AND (SELECT a.notification_id FROM calls a
                     WHERE a.notification_id = t.id AND a.resend_number = t.resend_number
                       AND a.outcome IN ('accepted', 'duplicate') LIMIT 1) IS NULL)
         + (SELECT count(*)
              FROM unnest(ARRAY['skipped', 'failed']) AS x (state),
                   LATERAL (SELECT t.id, t.state, t.resend_number FROM settlements t
                             WHERE t.state <> 'sent' AND (t.state, t.id) <= (x.state, $1::uuid)
                             ORDER BY t.state DESC, t.id DESC LIMIT 5000) AS t
             WHERE t.state = x.state
               AND (SELECT a.notification_id FROM calls a
                     WHERE a.notification_id = t.id AND a.resend_number = t.resend_number
                       AND a.outcome IN ('accepted', 'duplicate') LIMIT 1) IS NOT NULL)
         + (SELECT count(DISTINCT a.id)
              FROM ({_NEWEST_CALLS}) AS a
             WHERE a.outcome IN ('accepted', 'duplicate')
               AND a.resend_number > coalesce(
                       (SELECT t.resend_number FROM settlements t WHERE t.id = a.id LIMIT 1),
                       (SELECT d.resend_number FROM deliveries d WHERE d.id = a.id LIMIT 1),
                       (SELECT s.resend_number FROM scheduled_sends s WHERE s.id = a.id LIMIT 1)))
"""  # noqa: S608 - constants of ours


async def sent_and_record_differ(conn: Connection) -> int:
    """I6: sent without an accepted call, accepted but closed as not sent, or accepted under a key not yet made."""
    found: int = await conn.fetchval(SENT_AND_RECORD_DIFFER, _LAST_ID)
    return found


BREAKER_WAIT_S = 30.0  # how long an open breaker waits at most before it takes the next


@dataclass(frozen=True, slots=True)
class Patience:
    """How long something may be late before it is a suspect.

    `turn`: how long a worker needs at most, whatever keeps it, to come from one expired claim to the next.
    """

    send: timedelta
    claim: timedelta
    turn: timedelta


def patience(settings: Settings) -> Patience:
    """What these settings allow."""
    poll = timedelta(seconds=settings.poll_s)
    return Patience(
        send=timedelta(seconds=20) + poll,  # a scheduler that died counts as alive for 15 s
        claim=timedelta(seconds=settings.claim_ttl_s) + poll,
        turn=timedelta(seconds=BREAKER_WAIT_S + settings.provider_timeout_s) + poll,
    )


@dataclass(frozen=True, slots=True)
class Suspects:
    """Rows that somebody should have moved on, id → generation, as seen `at` (real time)."""

    at: datetime | None
    rows: dict[UUID, int]

    def among(self, before: Suspects) -> int:
        """How many were so before, and were not touched in between."""
        return sum(before.rows.get(row) == generation for row, generation in self.rows.items())


# Alive: it beats, and did so late enough after `$1` to have had time for what it is suspected of.
OVERDUE_SENDS = """
    SELECT now() AS at, s.id, s.generation
      FROM (SELECT WHERE EXISTS (SELECT FROM workers w
                                  WHERE w.role = 'scheduler' AND w.started_at < now() - $2::interval
                                    AND w.heartbeat_at > greatest(now() - interval '15 seconds', $1::timestamptz))
           ) AS alive
     CROSS JOIN LATERAL (SELECT s.id, s.generation FROM scheduled_sends s
                          WHERE s.due_at <= notifier.now() - $2::interval ORDER BY s.due_at, s.id LIMIT 1000) AS s
"""


async def overdue_sends(conn: Connection, patience: Patience, alive_since: datetime | None = None) -> Suspects:
    """I4: the first 1000 that wait although they were due long ago and a scheduler lives."""
    return _suspects(await conn.fetch(OVERDUE_SENDS, alive_since, patience.send))


# A claim is somebody's duty only while a worker lives that knows its kind, and not while a switch holds it. A worker
# whose breaker is open, or whose slots are full, takes them one at a time, the longest expired first, and at least one
# in each `$3`: what waits behind others must have waited that much longer before it proves anything.
OVERDUE_CLAIMS = """
    SELECT now() AS at, d.id, d.generation
      FROM (SELECT d.id, d.generation, d.claim_expires_at, row_number() OVER (ORDER BY d.claim_expires_at) AS place
              FROM (SELECT d.id, d.generation, d.claim_expires_at, d.kind_name FROM deliveries d
                     WHERE d.claimed_by IS NOT NULL AND d.claim_expires_at < now() - $2::interval
                       AND ($4::text[] IS NULL OR d.kind_name = ANY ($4))
                     ORDER BY d.claim_expires_at LIMIT 1000) AS d
             WHERE NOT EXISTS (SELECT FROM switches w
                                WHERE (w.name IN ('pause', 'pause:' || d.kind_name) OR w.name LIKE 'pause:provider:%')
                                  AND w.expires_at > notifier.now())) AS d
     WHERE d.claim_expires_at < now() - $2::interval - d.place * $3::interval
       AND EXISTS (SELECT FROM workers w
                    WHERE w.role = 'worker' AND w.started_at < now() - $2::interval - d.place * $3::interval
                      AND w.heartbeat_at > greatest(now() - interval '15 seconds', $1::timestamptz))
"""


async def overdue_claims(
    conn: Connection, patience: Patience, kinds: Collection[str] | None, alive_since: datetime | None = None
) -> Suspects:
    """I7: claims of `kinds` (None: of all) that ran out long ago and nobody took over, although a worker lives."""
    return _suspects(
        await conn.fetch(
            OVERDUE_CLAIMS, alive_since, patience.claim, patience.turn, None if kinds is None else list(kinds)
        )
    )


def _suspects(rows: Sequence[Row]) -> Suspects:
    return Suspects(rows[0]["at"] if rows else None, {row["id"]: row["generation"] for row in rows})
