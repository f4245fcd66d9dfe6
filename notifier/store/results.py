"""What became of claims: settle, give back, and what a lost claim still knows.

Each is one autocommit statement that names id, generation and owner; a row that does not come back was lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple
from uuid import UUID

from notifier.clock import boot_clock
from notifier.domain.notification import MOVES, Settlement, State
from notifier.store.database import Connection
from notifier.store.deliveries import Claim


class Call(NamedTuple):
    """A finished call of the provider, for the record. `began` is a second of this process's boot clock."""

    outcome: str
    reason: str | None
    began: float
    took_s: float


class Result(NamedTuple):
    """What is to be written for one claim: where it goes, and the call it came from, if one was made.

    `alone`: from now on it goes in no batch.
    """

    claim: Claim
    settlement: Settlement
    call: Call | None
    decided_by: str
    alone: bool = False


_RESULT_COLUMNS = """
    unnest($2::uuid[], $3::int[], $4::text[], $5::text[], $6::boolean[], $7::text[], $8::text[], $9::text[],
           $10::float8[], $11::text[], $12::int[], $13::text[], $14::text[], $15::float8[], $16::float8[],
           $17::interval[], $18::boolean[], $19::text[], $20::boolean[])
        AS t (id, g, state, reason, doubt, evidence, message_id, decided_by, claimed_at, provider, resend_number,
              outcome, user_id, began_ago_s, took_s, wait, counted, call_reason, alone)
"""
# The attempt is a fact and is recorded whoever owns the row now; a repeat of this statement records it once.
# Its times are reckoned from the statement's begin, so that no call seems to end after the end it led to.
_RECORD_CALLS = """
    INSERT INTO attempts (notification_id, generation, worker, user_id, provider, resend_number, outcome, reason,
                          provider_message_id, claimed_at, started_at, finished_at)
    SELECT t.id, t.g, $1, t.user_id, t.provider, t.resend_number, t.outcome, t.call_reason, t.message_id,
           to_timestamp(t.claimed_at),
           statement_timestamp() - make_interval(secs => t.began_ago_s),
           statement_timestamp() - make_interval(secs => t.began_ago_s - t.took_s)
      FROM t WHERE t.outcome IS NOT NULL
        ON CONFLICT DO NOTHING
"""
# LATERAL finds and locks each row by its primary key, in id order; what does not match id, generation and owner is
# left alone and not returned. A plain join would spare 54 bytes of log a mail, but if it was planned while nothing was
# open it reads the whole table. What was called and when is kept with the end itself: `sent` is final.
SETTLE_SENT = """
    WITH l AS MATERIALIZED (
        SELECT t.evidence, t.message_id, t.began_ago_s, t.took_s, d.*
          FROM unnest($2::text::uuid[], $3::text::int[], $4::text::text[], string_to_array($5, E'\\x1f', ''),
                      $6::text::float8[], $7::text::float8[]) AS t (id, g, evidence, message_id, began_ago_s, took_s),
               LATERAL (SELECT d.id, d.user_id, d.kind, d.generation, d.attempts, d.entered_at, d.claimed_by,
                               d.claimed_at, d.provider, d.template_hash, d.batch_id, d.resend_number
                          FROM deliveries d
                         WHERE d.id = t.id AND d.generation = t.g AND d.claimed_by IS NOT DISTINCT FROM $1
                           FOR UPDATE) AS d),
    x AS (DELETE FROM deliveries WHERE id = ANY (ARRAY (SELECT id FROM l))),
    s AS (
        INSERT INTO settlements (id, user_id, kind, state, decided_by, evidence, provider_message_id, generation,
                                 attempts, entered_at, claimed_by, claimed_at, provider, template_hash, batch_id,
                                 resend_number, call_started_at, call_ended_at)
        SELECT id, user_id, kind, 'sent', 'worker', evidence, message_id, generation, attempts, entered_at, claimed_by,
               claimed_at, provider, template_hash, batch_id, resend_number,
               statement_timestamp() - make_interval(secs => began_ago_s),
               statement_timestamp() - make_interval(secs => began_ago_s - took_s)
          FROM l
        RETURNING settled_at)
    SELECT count(*) AS number, date_part('epoch', max(settled_at)) AS at FROM s
"""
SETTLE = f"""
    WITH t AS MATERIALIZED (SELECT * FROM {_RESULT_COLUMNS}),
    l AS MATERIALIZED (
        SELECT t.id, t.state AS new_state, t.reason AS new_reason, t.evidence, t.message_id,
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
        RETURNING id)
    SELECT s.id FROM s
"""  # noqa: S608 - constants of ours

# A batch is dissolved by what goes back without doubt: then its call surely took nothing, or was never made.
# `restored` stays, whatever a later attempt met: it says that a claim has to look for an event that stops the row.
PUT_BACK = f"""
    WITH t AS MATERIALIZED (SELECT * FROM {_RESULT_COLUMNS}),
    l AS MATERIALIZED (
        SELECT t.* FROM t, LATERAL (SELECT d.id FROM deliveries d
                                     WHERE d.id = t.id AND d.generation = t.g AND d.claimed_by IS NOT DISTINCT FROM $1
                                       FOR UPDATE) AS d),
    a AS ({_RECORD_CALLS})
    UPDATE deliveries AS d
       SET kind = d.kind,  -- so that its generated name is computed as in a claim, and not read from the catalog
           claimed_by = NULL, claimed_at = NULL, claim_expires_at = NULL, calling = false,
           attempts = CASE WHEN t.counted THEN d.attempts ELSE greatest(d.attempts - 1, 0) END,
           waits = CASE WHEN t.counted OR t.outcome IS NULL THEN d.waits ELSE d.waits + 1 END,
           doubt_since = CASE WHEN t.doubt THEN coalesce(d.doubt_since, d.claimed_at) ELSE d.doubt_since END,
           batch_id = CASE WHEN t.doubt OR d.doubt_since IS NOT NULL THEN d.batch_id END,
           alone = d.alone OR t.alone,
           next_attempt_at = CASE WHEN t.wait > interval '0' AND NOT d.erased
                                  THEN (SELECT notifier.now()) + t.wait ELSE d.next_attempt_at END,
           recipient = CASE WHEN d.erased THEN NULL ELSE d.recipient END,
           locale = CASE WHEN d.erased THEN NULL ELSE d.locale END,
           reason = CASE WHEN d.reason = 'restored' THEN d.reason ELSE coalesce(t.reason, d.reason) END
      FROM l AS t
     WHERE d.id = ANY (ARRAY (SELECT l.id FROM l)) AND d.id = t.id
    RETURNING d.id
"""  # noqa: S608 - constants of ours


class Settled(NamedTuple):
    """What settling came to: the ids that were ours, also by an earlier try, and when the last mail was ended as sent.

    `sent_at`: real time in seconds since 1970; None where this try ended none as sent.
    """

    ids: AbstractSet[UUID]
    sent_at: float | None


async def settle(conn: Connection, worker: str, results: Sequence[Result]) -> Settled:
    """Close claimed notifications; see `Settled`.

    The others were lost: the calls of those that were not sent are recorded, for the rest see `record`.
    """
    sent = [result for result in results if result.settlement.state is State.SENT]
    others = [result for result in results if result.settlement.state is not State.SENT]
    assert all(result.settlement.state in MOVES[State.SENDING] - {State.PENDING} for result in others)
    ours: set[UUID] = set()
    sent_at = None
    if sent:
        number, sent_at = await _settle_sent(conn, worker, sent)
        if number == len(sent):  # nearly always, and then nobody has to say which
            ours = {result.claim.id for result in sent}
    if others:
        ours |= await _write(conn, SETTLE, worker, others)
    unknown = [result for result in results if result.claim.id not in ours]
    if unknown:  # some were lost, or written by an earlier try whose answer was: what stands there by now tells
        ours |= await settled_by_us(conn, worker, unknown)
    return Settled(ours, sent_at)


async def _settle_sent(conn: Connection, worker: str, results: Sequence[Result]) -> tuple[int, float | None]:
    ordered = sorted(results, key=lambda result: result.claim.id)
    number, sent_at = await conn.fetchrow(
        SETTLE_SENT,
        worker,
        as_array([result.claim.id for result in ordered]),
        as_array([result.claim.generation for result in ordered]),
        as_array([str(result.settlement.evidence) for result in ordered]),
        _joined([result.settlement.message_id or "" for result in ordered]),
        *_call_times(ordered),
    )
    return number, sent_at


def _call_times(results: Sequence[Result]) -> tuple[str, str]:
    """How long ago the call of each began and how long it took, in seconds; those of one call are written once."""
    now, last = boot_clock(), None
    began, took = "", ""
    all_began, all_took = [], []
    for result in results:
        call = result.call
        assert call is not None
        assert result.settlement.counted
        assert result.settlement.evidence is not None
        if call is not last:
            last, began, took = call, f"{now - call.began:.6f}", f"{call.took_s:.6f}"
        all_began.append(began)
        all_took.append(took)
    return as_array(all_began), as_array(all_took)


def as_array(values: Sequence[UUID | int | str]) -> str:
    """Write an array as PostgreSQL reads it, of what needs no quoting.

    The driver asks of each element of a list whether it is a list itself. That costs more than all else that is done
    with a result here.
    """
    return "{" + ",".join([str(value) for value in values]) + "}"


_SEPARATOR = "\x1f"  # is not printable, and whatever names a message is


def _joined(values: Sequence[str]) -> str:
    """Write texts as `string_to_array` takes them apart; an empty one is none.

    Raises ValueError where they would come apart elsewhere: that result is unwritable, as one with a NUL is.
    """
    text = _SEPARATOR.join(values)
    if text.count(_SEPARATOR) != len(values) - 1:
        raise ValueError("a message's name holds a control character")
    return text


RECORD = f"""
    WITH t AS MATERIALIZED (SELECT * FROM {_RESULT_COLUMNS})
    {_RECORD_CALLS}
"""  # noqa: S608 - constants of ours


async def record(conn: Connection, worker: str, results: Sequence[Result]) -> None:
    """Record calls that sent a mail for claims that were lost: the call is a fact all the same."""
    await _write(conn, RECORD, worker, results)


async def put_back(conn: Connection, worker: str, results: Sequence[Result]) -> set[UUID]:
    """Give claims back, to be tried again after their wait. Returns the ids that were ours.

    A give-back without a call (`call` None) keeps generation and doubt and un-counts the attempt.
    """
    assert all(result.settlement.state is State.PENDING for result in results)
    return await _write(conn, PUT_BACK, worker, results)


async def _write(conn: Connection, statement: str, worker: str, results: Sequence[Result]) -> set[UUID]:
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
        [result.alone for result in ordered],
    )
    return {row["id"] for row in rows}


# Certain knowledge outlives a lost claim: whatever is uncertain under the key that was accepted, was sent.
LATE_EVIDENCE = """
    UPDATE settlements AS s
       SET state = 'sent', reason = NULL, evidence = 'late_settle', doubt_since = NULL,
           settled_at = clock_timestamp(), decided_by = 'worker:' || $1,
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
       SET state = 'sent', reason = NULL, evidence = 'late_settle', doubt_since = NULL,
           settled_at = clock_timestamp(), decided_by = 'rule:attempts',
           provider_message_id = coalesce(found.provider_message_id, s.provider_message_id)
      FROM found WHERE s.id = found.id AND s.state = 'uncertain'
    RETURNING s.id
"""


async def reconcile(conn: Connection) -> int:
    """Close as sent what is uncertain although its own record shows it accepted. Returns how many."""
    return len(await conn.fetch(RECONCILE))


RECORDED = """
    SELECT a.notification_id AS id FROM unnest($1::uuid[], $2::int[]) AS t (id, g),
           LATERAL (SELECT a.notification_id FROM attempts a
                     WHERE a.notification_id = t.id AND a.generation = t.g AND a.worker = $3 LIMIT 1) AS a
"""


async def recorded(conn: Connection, worker: str, results: Sequence[Result]) -> set[UUID]:
    """Those whose call is on record already: an earlier try was written, give-back and all."""
    rows = await conn.fetch(RECORDED, [r.claim.id for r in results], [r.claim.generation for r in results], worker)
    return {row["id"] for row in rows}
