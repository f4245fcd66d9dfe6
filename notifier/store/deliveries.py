"""Open notifications: who may send, under which generation, and what became of the attempt.

Claim, take-over, begin, settle and give-back are each one autocommit statement: a client that freezes between two
of them holds no lock. Every write after a claim names id, generation and owner; 0 rows mean the claim was lost.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from notifier.clock import boot_clock
from notifier.domain.notification import Settlement, State
from notifier.store.database import Connection, Row


@dataclass(frozen=True, slots=True)
class Claimant:
    """Who claims and for what: fixed for the life of a worker process."""

    worker: str
    ttl: timedelta
    templates: Mapping[str, str]  # kind name → template hash of this build: the kinds it knows
    provider: str  # name, as switches say it
    account: str
    has_keys: bool


@dataclass(frozen=True, slots=True)
class Claim:
    """One notification in our hands. Durations are seconds on the database's real clock, at the claim."""

    id: UUID
    user_id: str
    kind: str
    generation: int
    attempts: int
    waits: int
    resend_number: int
    recipient: str | None
    locale: str | None
    template_hash: str
    provider: str
    claimed_at: datetime
    doubt_since: datetime | None
    doubt_age_s: float | None
    open_for_s: float
    due_late_s: float
    suppressed: str | None
    erased: bool
    data: dict[str, Any]
    recovered: bool

    @property
    def in_doubt(self) -> bool:
        """Whether an earlier attempt may have been taken."""
        return self.doubt_since is not None

    @property
    def first_attempt(self) -> bool:
        """Whether nobody ever claimed it before."""
        return self.generation == 1


# What a claim writes. Recipient, locale and template are frozen by the first one, never earlier: whoever read the
# address before this statement could have read an old one.
_CLAIM_SET = """
           generation       = d.generation + 1,
           attempts         = d.attempts + 1,
           claimed_by       = $1,
           claimed_at       = now(),
           claim_expires_at = now() + $2::interval,
           calling          = $3,
           provider         = CASE WHEN {doubt} IS NULL THEN $4 ELSE d.provider END,
           recipient        = CASE WHEN d.template_hash IS NULL
                                   THEN (SELECT u.email FROM users u WHERE u.user_id = d.user_id) ELSE d.recipient END,
           locale           = CASE WHEN d.template_hash IS NULL
                                   THEN (SELECT u.locale FROM users u WHERE u.user_id = d.user_id) ELSE d.locale END,
           template_hash    = coalesce(d.template_hash, ($6::text[])[array_position($5::text[], d.kind_name)])
"""
_CLAIM_READ = """
    SELECT c.*, o.data,
           extract(epoch FROM now() - c.doubt_since)::float8 AS doubt_age_s,
           extract(epoch FROM now() - c.entered_at)::float8 AS open_for_s,
           extract(epoch FROM notifier.now() - o.due_at)::float8 AS due_late_s,
           (SELECT s.reason FROM suppressions s WHERE s.address = lower(c.recipient)) AS suppressed,
           (SELECT u.erased_at IS NOT NULL FROM users u WHERE u.user_id = c.user_id) AS erased
      FROM c, LATERAL (SELECT o.data, o.due_at FROM outbox o WHERE o.id = c.id LIMIT 1) AS o
"""
_NOT_HELD = """
    NOT EXISTS (SELECT FROM switches w WHERE w.name IN ('pause', $7) AND w.expires_at > notifier.now())
"""
_KIND_NOT_HELD = """
    NOT EXISTS (SELECT FROM switches w WHERE w.name = 'pause:' || {kind} AND w.expires_at > notifier.now())
"""

# One LATERAL per kind on (kind, next attempt): a million rows of a paused or unknown kind cost nothing.
CLAIM = f"""
    WITH c AS (
        UPDATE deliveries AS d
           SET {_CLAIM_SET.format(doubt="d.doubt_since")}
         WHERE d.id = ANY (ARRAY (
                   SELECT r.id
                     FROM unnest($5::text[]) AS k (kind),
                          LATERAL (SELECT x.id FROM deliveries x
                                    WHERE x.kind_name = k.kind AND x.claimed_by IS NULL
                                      AND x.next_attempt_at <= notifier.now() AND x.batch_id IS NULL
                                    ORDER BY x.next_attempt_at, x.id
                                    LIMIT 500                 -- literal: a parameter turns the plan into a full scan
                                      FOR UPDATE SKIP LOCKED) AS r
                    WHERE {_NOT_HELD} AND {_KIND_NOT_HELD.format(kind="k.kind")}
                    LIMIT $8))
        RETURNING d.*)
    {_CLAIM_READ}
"""  # noqa: S608 - constants of ours


async def claim(conn: Connection, claimant: Claimant, kinds: Sequence[str], limit: int) -> list[Claim]:
    """Claim up to `limit` due rows of `kinds` (in this order of preference) that nobody holds and no switch pauses."""
    rows = await conn.fetch(CLAIM, *_claim_arguments(claimant, kinds), limit)
    return [_claim(row, recovered=False) for row in rows]


EXPIRED = f"""
    SELECT d.id, d.claimed_by, d.claim_expires_at <= now() - $2::interval AS overdue
      FROM deliveries d
     WHERE d.claimed_by IS NOT NULL AND d.claim_expires_at <= now() AND d.kind_name = ANY ($1::text[])
       AND d.batch_id IS NULL
       AND NOT EXISTS (SELECT FROM switches w WHERE w.name IN ('pause', $3) AND w.expires_at > notifier.now())
       AND {_KIND_NOT_HELD.format(kind="d.kind_name")}
     ORDER BY d.claim_expires_at LIMIT 100
"""  # noqa: S608 - constants of ours


@dataclass(frozen=True, slots=True)
class Expired:
    """A row whose claim ran out. `overdue`: by more than one further claim time, so no lease saves it."""

    id: UUID
    claimed_by: str
    overdue: bool


async def expired(conn: Connection, claimant: Claimant) -> list[Expired]:
    """Up to 100 rows whose claim ran out, the longest first. A look only: take_over decides."""
    rows = await conn.fetch(EXPIRED, list(claimant.templates), claimant.ttl, f"pause:provider:{claimant.provider}")
    return [Expired(row["id"], row["claimed_by"], row["overdue"]) for row in rows]


# A claim that ran out while the provider might have been called leaves doubt, dated from that claim.
_TAKEN_DOUBT = "CASE WHEN d.calling THEN coalesce(d.doubt_since, d.claimed_at) ELSE d.doubt_since END"
TAKE_OVER = f"""
    WITH c AS (
        UPDATE deliveries AS d
           SET doubt_since = {_TAKEN_DOUBT},
               {_CLAIM_SET.format(doubt=f"({_TAKEN_DOUBT})")}
         WHERE d.id = ANY (ARRAY (
                   SELECT x.id FROM deliveries x
                    WHERE x.id = ANY ($8::uuid[]) AND num_nulls(x.claimed_by) = 0
                      AND x.claim_expires_at <= now() AND x.kind_name = ANY ($5::text[])
                      AND {_NOT_HELD} AND {_KIND_NOT_HELD.format(kind="x.kind_name")}
                    ORDER BY x.id
                      FOR UPDATE SKIP LOCKED))
        RETURNING d.*)
    {_CLAIM_READ}
"""  # noqa: S608 - constants of ours


async def take_over(conn: Connection, claimant: Claimant, kinds: Sequence[str], ids: Sequence[UUID]) -> list[Claim]:
    """Claim those of `ids` whose claim is still expired; each comes in doubt if its owner may have been calling."""
    rows = await conn.fetch(TAKE_OVER, *_claim_arguments(claimant, kinds), sorted(ids))
    return [_claim(row, recovered=True) for row in rows]


def _claim_arguments(claimant: Claimant, kinds: Sequence[str]) -> tuple[Any, ...]:
    return (
        claimant.worker,
        claimant.ttl,
        claimant.has_keys,
        claimant.account,
        list(kinds),
        [claimant.templates[kind] for kind in kinds],
        f"pause:provider:{claimant.provider}",
    )


def _claim(row: Row, *, recovered: bool) -> Claim:
    return Claim(
        id=row["id"],
        user_id=row["user_id"],
        kind=row["kind"],
        generation=row["generation"],
        attempts=row["attempts"],
        waits=row["waits"],
        resend_number=row["resend_number"],
        recipient=row["recipient"],
        locale=row["locale"],
        template_hash=row["template_hash"],
        provider=row["provider"],
        claimed_at=row["claimed_at"],
        doubt_since=row["doubt_since"],
        doubt_age_s=row["doubt_age_s"],
        open_for_s=row["open_for_s"],
        due_late_s=row["due_late_s"],
        suppressed=row["suppressed"],
        erased=row["erased"],
        data=json.loads(row["data"]),
        recovered=recovered,
    )


BEGIN_CALL = """
    UPDATE deliveries AS d
       SET calling = true
     WHERE d.id = $1 AND d.generation = $2 AND d.claimed_by IS NOT DISTINCT FROM $3
    RETURNING d.id
"""


async def begin(conn: Connection, claim: Claim, worker: str) -> bool:
    """Mark that the provider is about to be called, for one without keys. False: the claim was lost, call nobody."""
    return await conn.fetchval(BEGIN_CALL, claim.id, claim.generation, worker) is not None


@dataclass(frozen=True, slots=True)
class Call:
    """A finished call of the provider, for the record. `began` is a second of this process's boot clock."""

    outcome: str
    reason: str | None
    message_id: str | None
    began: float
    took_s: float


@dataclass(frozen=True, slots=True)
class Result:
    """What is to be written for one claim: where it goes, and the call it came from, if one was made."""

    claim: Claim
    settlement: Settlement
    call: Call | None
    decided_by: str


_RESULT_COLUMNS = """
    unnest($2::uuid[], $3::int[], $4::text[], $5::text[], $6::boolean[], $7::text[], $8::text[], $9::text[],
           $10::timestamptz[], $11::text[], $12::int[], $13::text[], $14::text[], $15::float8[], $16::float8[],
           $17::interval[], $18::boolean[], $19::text[])
        AS t (id, g, state, reason, doubt, evidence, message_id, decided_by,
              claimed_at, provider, resend_number, outcome, user_id, began_ago_s, took_s, wait, counted, call_reason)
"""
# The attempt is a fact and is recorded whoever owns the row now; a repeat of this statement records it once.
# Its times are reckoned from the statement's begin, so that no call seems to end after the end it led to.
_RECORD_CALLS = """
    INSERT INTO attempts (notification_id, generation, worker, user_id, provider, resend_number, outcome, reason,
                          provider_message_id, claimed_at, started_at, finished_at)
    SELECT t.id, t.g, $1, t.user_id, t.provider, t.resend_number, t.outcome, t.call_reason, t.message_id, t.claimed_at,
           statement_timestamp() - make_interval(secs => t.began_ago_s),
           statement_timestamp() - make_interval(secs => t.began_ago_s - t.took_s)
      FROM t WHERE t.outcome IS NOT NULL
        ON CONFLICT DO NOTHING
"""
# LATERAL finds and locks each row by its primary key, in id order; what does not match id, generation and owner is
# left alone and not returned.
SETTLE = f"""
    WITH t AS MATERIALIZED (SELECT * FROM {_RESULT_COLUMNS}),
    l AS MATERIALIZED (
        SELECT t.id, t.state AS new_state, t.reason AS new_reason, t.doubt AS new_doubt, t.evidence, t.message_id,
               t.decided_by, d.user_id, d.kind, d.generation,
               CASE WHEN t.counted THEN d.attempts ELSE greatest(d.attempts - 1, 0) END AS attempts,
               d.entered_at, d.claimed_by, d.claimed_at, d.doubt_since, d.provider,
               d.template_hash, d.batch_id, d.resend_number
          FROM t, LATERAL (SELECT * FROM deliveries d
                            WHERE d.id = t.id AND d.generation = t.g AND d.claimed_by IS NOT DISTINCT FROM $1
                              FOR UPDATE) AS d),
    x AS (DELETE FROM deliveries WHERE id = ANY (ARRAY (SELECT id FROM l))),
    a AS ({_RECORD_CALLS}),
    s AS (
        INSERT INTO settlements (id, user_id, kind, state, reason, decided_by, evidence, provider_message_id,
                                 generation, attempts, entered_at, claimed_by, claimed_at, doubt_since, provider,
                                 template_hash, batch_id, resend_number)
        SELECT id, user_id, kind, new_state, new_reason, decided_by, evidence, message_id, generation, attempts,
               entered_at, claimed_by, claimed_at,
               CASE WHEN new_state = 'uncertain' THEN coalesce(doubt_since, claimed_at) END,
               provider, template_hash, batch_id, resend_number
          FROM l
        RETURNING id, settled_at)
    SELECT s.id, extract(epoch FROM s.settled_at - o.taken_at)::float8 AS open_s
      FROM s, LATERAL (SELECT o.taken_at FROM outbox o WHERE o.id = s.id LIMIT 1) AS o
"""  # noqa: S608 - constants of ours

PUT_BACK = f"""
    WITH t AS MATERIALIZED (SELECT * FROM {_RESULT_COLUMNS}),
    a AS ({_RECORD_CALLS})
    UPDATE deliveries AS d
       SET claimed_by = NULL, claimed_at = NULL, claim_expires_at = NULL, calling = false,
           attempts = CASE WHEN t.counted THEN d.attempts ELSE greatest(d.attempts - 1, 0) END,
           waits = CASE WHEN t.counted OR t.outcome IS NULL THEN d.waits ELSE d.waits + 1 END,
           doubt_since = CASE WHEN t.doubt THEN coalesce(d.doubt_since, d.claimed_at) ELSE d.doubt_since END,
           next_attempt_at = CASE WHEN t.wait > interval '0' THEN notifier.now() + t.wait ELSE d.next_attempt_at END,
           reason = coalesce(t.reason, d.reason)
      FROM t
     WHERE d.id = t.id AND d.generation = t.g AND d.claimed_by IS NOT DISTINCT FROM $1
    RETURNING d.id, NULL::float8 AS open_s
"""  # noqa: S608 - constants of ours


async def settle(conn: Connection, worker: str, results: Sequence[Result]) -> dict[UUID, float]:
    """Close claimed notifications. Returns id → seconds since the decision for those that were ours.

    The others were lost, and only their calls were recorded.
    """
    assert all(result.settlement.state is not State.PENDING for result in results)
    return await _write(conn, SETTLE, worker, results)


async def put_back(conn: Connection, worker: str, results: Sequence[Result]) -> set[UUID]:
    """Give claims back, to be tried again after their wait. Returns the ids that were ours.

    A give-back without a call (`call` None) keeps generation and doubt and un-counts the attempt.
    """
    assert all(result.settlement.state is State.PENDING for result in results)
    return set(await _write(conn, PUT_BACK, worker, results))


async def _write(conn: Connection, statement: str, worker: str, results: Sequence[Result]) -> dict[UUID, float]:
    ordered = sorted(results, key=lambda result: result.claim.id)
    claims = [result.claim for result in ordered]
    settlements = [result.settlement for result in ordered]
    calls = [result.call for result in ordered]
    rows = await conn.fetch(
        statement,
        worker,
        [claim.id for claim in claims],
        [claim.generation for claim in claims],
        [settlement.state.value for settlement in settlements],
        [settlement.reason for settlement in settlements],
        [settlement.doubt for settlement in settlements],
        [settlement.evidence for settlement in settlements],
        [settlement.message_id for settlement in settlements],
        [result.decided_by for result in ordered],
        [claim.claimed_at for claim in claims],
        [claim.provider for claim in claims],
        [claim.resend_number for claim in claims],
        [call.outcome if call else None for call in calls],
        [claim.user_id for claim in claims],
        [boot_clock() - call.began if call else None for call in calls],
        [call.took_s if call else None for call in calls],
        [settlement.wait for settlement in settlements],
        [settlement.counted for settlement in settlements],
        [call.reason if call else None for call in calls],
    )
    return {row["id"]: row["open_s"] for row in rows}


# Certain knowledge outlives a lost claim: whatever is uncertain under the key that was accepted, was sent.
LATE_EVIDENCE = """
    UPDATE settlements AS s
       SET state = 'sent', reason = NULL, evidence = 'late_settle', doubt_since = NULL, decided_by = 'worker:' || $1,
           provider_message_id = coalesce(t.message_id, s.provider_message_id)
      FROM unnest($2::uuid[], $3::int[], $4::text[]) AS t (id, resend_number, message_id)
     WHERE s.id = t.id AND s.state = 'uncertain' AND s.resend_number = t.resend_number
    RETURNING s.id
"""


async def late_evidence(conn: Connection, worker: str, results: Sequence[Result]) -> set[UUID]:
    """Close as sent what ended uncertain although one of these lost results knows better."""
    ordered = sorted(results, key=lambda result: result.claim.id)
    rows = await conn.fetch(
        LATE_EVIDENCE,
        worker,
        [result.claim.id for result in ordered],
        [result.claim.resend_number for result in ordered],
        [result.settlement.message_id for result in ordered],
    )
    return {row["id"] for row in rows}


SETTLED_BY_US = """
    SELECT s.id FROM unnest($1::uuid[], $2::int[]) AS t (id, g),
           LATERAL (SELECT s.id FROM settlements s
                     WHERE s.id = t.id AND s.generation = t.g AND s.claimed_by = $3 LIMIT 1) AS s
"""


async def settled_by_us(conn: Connection, worker: str, results: Sequence[Result]) -> set[UUID]:
    """Those whose settlement is in fact ours: an earlier try was written and only its answer was lost."""
    rows = await conn.fetch(SETTLED_BY_US, [r.claim.id for r in results], [r.claim.generation for r in results], worker)
    return {row["id"] for row in rows}


# The same evidence, for the case that a row turned uncertain just as the late settle looked: found from the record.
RECONCILE = """
    WITH found AS (
        SELECT s.id, a.provider_message_id
          FROM settlements s, LATERAL (SELECT a.provider_message_id FROM attempts a
                                        WHERE a.notification_id = s.id AND a.resend_number = s.resend_number
                                          AND a.outcome IN ('accepted', 'duplicate') LIMIT 1) AS a
         WHERE s.state = 'uncertain' ORDER BY s.id LIMIT 500)
    UPDATE settlements AS s
       SET state = 'sent', reason = NULL, evidence = 'late_settle', doubt_since = NULL, decided_by = 'rule:attempts',
           provider_message_id = coalesce(found.provider_message_id, s.provider_message_id)
      FROM found WHERE s.id = found.id AND s.state = 'uncertain'
    RETURNING s.id
"""


async def reconcile(conn: Connection) -> int:
    """Close as sent what is uncertain although its own record shows it accepted. Returns how many."""
    return len(await conn.fetch(RECONCILE))


FORGET = """
    UPDATE deliveries SET recipient = NULL, locale = NULL, next_attempt_at = notifier.now()
     WHERE id = ANY (ARRAY (SELECT d.id FROM deliveries d
                             WHERE d.id = ANY ($1::uuid[]) AND num_nulls(d.claimed_by) = 1
                             ORDER BY d.id FOR UPDATE))
"""


async def forget(conn: Connection, ids: Sequence[UUID]) -> None:
    """Drop the addresses of unclaimed rows of an erased user, and let the next claim end them at once."""
    await conn.execute(FORGET, sorted(ids))
