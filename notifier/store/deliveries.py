"""Open notifications: who may send, and under which generation.

Claim, take-over and begin are each one autocommit statement, and so is everything in results.py: a client that freezes
between two of them holds no lock.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID, uuid4

from notifier.store.database import Connection

CLAIM_MAX = 1_000  # rows that one claim takes at most
_JSON = json.JSONDecoder()


class Place(NamedTuple):
    """Where a row stands among those of its kind that are owed."""

    due_at: datetime  # business time
    id: UUID


BEFORE_ALL = Place(datetime.min.replace(tzinfo=UTC), UUID(int=0))


@dataclass(frozen=True, slots=True)
class Claimant:
    """Who claims and for what: fixed for the life of a worker process."""

    worker: str
    ttl: timedelta
    templates: Mapping[str, str]  # kind name → template hash of this build: the kinds it knows
    provider: str  # name, as switches say it
    account: str
    has_keys: bool
    batch_max: int = 1  # mails in one call of the provider; 1: none goes in a batch

    def __post_init__(self) -> None:
        """A batch in doubt can only be asked about by its key."""
        assert self.batch_max == 1 or self.has_keys


class Claim(NamedTuple):
    """One notification in our hands. Durations are seconds on the database's real clock, at the claim.

    Times are the database's, in seconds since 1970: the driver makes a float many times faster than a datetime, and
    microseconds survive it. The fields stand as the statements below give them.
    """

    id: UUID
    user_id: str
    kind: str
    generation: int
    attempts: int
    waits: int
    resend_number: int
    recipient: str | None
    template_hash: str
    provider: str
    entered_at: float
    due_again_at: float  # business time: when this attempt became due
    claimed_at: float
    doubt_since: float | None
    erased: bool
    batch_id: UUID | None  # the call it goes in: with all that carry the same, under this as the key
    due_late_s: float
    suppressed: str | None
    restored: bool
    called_off_by: str | None  # type of the event that stops it; looked for only where a restore put it in doubt
    taken_at: float  # real time of the decision
    data_text: str  # JSON, read where it is needed

    def data(self) -> dict[str, Any]:
        """Read what the decision kept for the template."""
        data: dict[str, Any]
        data, _ = _JSON.raw_decode(self.data_text)  # what PostgreSQL writes has no white space around it
        return data

    @property
    def in_doubt(self) -> bool:
        """Whether an earlier attempt may have been taken."""
        return self.doubt_since is not None

    @property
    def first_attempt(self) -> bool:
        """Whether nobody ever claimed it before."""
        return self.generation == 1

    @property
    def doubt_age_s(self) -> float:
        """For how long it was in doubt; 0 where it is not."""
        return self.claimed_at - self.doubt_since if self.doubt_since is not None else 0.0

    @property
    def open_for_s(self) -> float:
        """For how long it was owed."""
        return self.claimed_at - self.entered_at


# What a claim writes. Recipient, locale and template are frozen by the first one, never earlier: whoever read the
# address before this statement could have read an old one. `kind` is named so that PostgreSQL computes kind_name: where
# an update needs no generated column, it reads how to make one from the catalog's text again for each row.
_CLAIM_SET = """
           kind             = d.kind,
           generation       = d.generation + 1,
           attempts         = d.attempts + 1,
           claimed_by       = $1,
           claimed_at       = now(),
           claim_expires_at = now() + $2::interval,
           calling          = $3,
           provider         = CASE WHEN {doubt} IS NULL THEN $4 ELSE d.provider END,
           (recipient, locale) = (SELECT CASE WHEN d.template_hash IS NULL THEN u.email ELSE d.recipient END,
                                         CASE WHEN d.template_hash IS NULL THEN u.locale ELSE d.locale END
                                    FROM users u WHERE u.user_id = d.user_id),
           template_hash    = coalesce(d.template_hash, ($6::text[])[array_position($5::text[], d.kind_name)])
"""
# No more than what is read below: each column that is handed on costs.
_CLAIMED = """
        RETURNING d.id, d.user_id, d.kind, d.generation, d.attempts, d.waits, d.resend_number, d.recipient,
                  d.template_hash, d.provider, d.entered_at, d.next_attempt_at, d.claimed_at, d.doubt_since, d.erased,
                  d.batch_id, d.reason
"""
# As a subquery business time is asked for once; as a plain call once for each row, which costs more than all the rest.
# LATERAL with a LIMIT is one look into the index for each row, whatever was known of the tables when it was planned; a
# join that was planned while there was nothing open reads the outbox again for every row.
_CLAIM_READ = """
    SELECT c.id, c.user_id, c.kind, c.generation, c.attempts, c.waits, c.resend_number, c.recipient,
           c.template_hash, c.provider, date_part('epoch', c.entered_at), date_part('epoch', c.next_attempt_at),
           date_part('epoch', c.claimed_at), date_part('epoch', c.doubt_since), c.erased, c.batch_id,
           date_part('epoch', (SELECT notifier.now()) - o.due_at) AS due_late_s,
           (SELECT s.reason FROM suppressions s WHERE s.address = lower(c.recipient)) AS suppressed,
           coalesce(c.reason = 'restored', false) AS restored,
           CASE WHEN c.reason = 'restored'
                THEN (SELECT l.event_type FROM last_seen l
                       WHERE l.user_id = c.user_id AND l.event_type = ANY (o.cancel_on) AND l.seen_at >= o.cancel_from
                       ORDER BY l.event_type LIMIT 1) END AS called_off_by,
           date_part('epoch', o.taken_at), o.data
      FROM c, LATERAL (SELECT o.taken_at, o.data, o.due_at, o.cancel_on, o.cancel_from
                         FROM outbox o WHERE o.id = c.id LIMIT 1) AS o
"""
_NOT_HELD = """
    NOT EXISTS (SELECT FROM switches w WHERE w.name IN ('pause', $7) AND w.expires_at > notifier.now())
"""
_KIND_NOT_HELD = """
    NOT EXISTS (SELECT FROM switches w WHERE w.name = 'pause:' || {kind} AND w.expires_at > notifier.now())
"""

# One LATERAL per kind on (kind, next attempt): a million rows of a paused or unknown kind cost nothing. Batches are
# made of neighbours by id, and named with the claim: who is in which is written here, once, and never changes. All in
# one are of one kind: it is repeated whole, and a kind that is paused, or unknown to a build, must not hold up others.
CLAIM = f"""
    WITH r AS MATERIALIZED (
        SELECT r.id, k.kind
          FROM unnest($5::text[], $11::timestamptz[], $12::uuid[]) AS k (kind, due_at, id),
               LATERAL (SELECT x.id FROM deliveries x
                         WHERE x.kind_name = k.kind AND x.claimed_by IS NULL
                           AND x.next_attempt_at <= notifier.now() AND (x.next_attempt_at, x.id) >= (k.due_at, k.id)
                           AND x.batch_id IS NULL
                         ORDER BY x.next_attempt_at, x.id
                         LIMIT {CLAIM_MAX}         -- literal: a parameter turns the plan into a full scan
                           FOR UPDATE SKIP LOCKED) AS r
         WHERE {_NOT_HELD} AND {_KIND_NOT_HELD.format(kind="k.kind")}
         LIMIT $8),
    n AS MATERIALIZED (
        SELECT r.kind, count(*) AS number,
               array_agg(r.id ORDER BY r.id) FILTER (WHERE r.place > 1 AND r.place % $10::int = 1) AS edges,
               (sum((count(*) + $10 - 1) / $10) OVER (ORDER BY r.kind) - (count(*) + $10 - 1) / $10)::int AS before
          FROM (SELECT r.id, r.kind, row_number() OVER (PARTITION BY r.kind ORDER BY r.id) AS place
                  FROM r WHERE $9::uuid[] IS NOT NULL) AS r
         GROUP BY r.kind),
    c AS (
        UPDATE deliveries AS d
           SET {_CLAIM_SET.format(doubt="d.doubt_since")},
               batch_id = CASE WHEN NOT d.alone AND d.doubt_since IS NULL
                               THEN (SELECT ($9::uuid[])[1 + n.before + coalesce(width_bucket(d.id, n.edges), 0)]
                                       FROM n WHERE n.kind = d.kind_name AND n.number > 1) END
         WHERE d.id = ANY (ARRAY (SELECT r.id FROM r))
        {_CLAIMED.strip()})
    {_CLAIM_READ}
"""  # noqa: S608 - constants of ours


async def claim(
    conn: Connection, claimant: Claimant, kinds: Sequence[str], limit: int, since: Sequence[Place] | None = None
) -> list[Claim]:
    """Claim up to `limit` due rows of `kinds` (in this order of preference) that nobody holds and no switch pauses.

    Two or more of a kind that are not in doubt go in batches of up to `batch_max`. `since`: for each kind, what stands
    before is passed over.
    """
    size = claimant.batch_max
    # As many as there can be: the last one of each kind need not be full.
    names = [uuid4() for _ in range(min(limit, CLAIM_MAX) // size + len(kinds))] if size > 1 else None
    arguments = (*_claim_arguments(claimant, kinds), min(limit, CLAIM_MAX), names, size)
    due_at, ids = zip(*(since or [BEFORE_ALL] * len(kinds)), strict=True)
    rows = await conn.fetch(CLAIM, *arguments, due_at, ids)
    return [Claim._make(row) for row in rows]


EXPIRED_MAX, BATCHES_MAX = 500, 20  # as the statement has them

# One statement for all that an idle worker has to know. Of the rows that are due, the first of each kind is enough.
LOOK = f"""
    SELECT 'expired' AS found, e.*, NULL AS kind, NULL::timestamptz AS at
      FROM (SELECT d.id, d.batch_id, d.claimed_by, d.claim_expires_at <= now() - $2::interval AS overdue
              FROM deliveries d
             WHERE d.claimed_by IS NOT NULL AND d.claim_expires_at <= now() AND d.kind_name = ANY ($1::text[])
               AND d.id <> ALL ($4::uuid[]) AND {_NOT_HELD.replace("$7", "$3")}
               AND {_KIND_NOT_HELD.format(kind="d.kind_name")}
             ORDER BY d.claim_expires_at LIMIT 500) AS e
     UNION ALL
    SELECT 'batch', NULL, b.batch_id, NULL, false, NULL, NULL
      FROM (SELECT DISTINCT d.batch_id FROM deliveries d
             WHERE d.batch_id IS NOT NULL AND d.claimed_by IS NULL AND d.next_attempt_at <= notifier.now()
               AND d.kind_name = ANY ($1::text[]) AND {_NOT_HELD.replace("$7", "$3")}
               AND {_KIND_NOT_HELD.format(kind="d.kind_name")}
             LIMIT 20) AS b
     UNION ALL
    SELECT 'due', r.id, NULL, NULL, false, k.kind, r.next_attempt_at
      FROM unnest($1::text[]) AS k (kind),
           LATERAL (SELECT x.id, x.next_attempt_at FROM deliveries x
                     WHERE x.kind_name = k.kind AND x.claimed_by IS NULL
                       AND x.next_attempt_at <= notifier.now() AND x.batch_id IS NULL
                     ORDER BY x.next_attempt_at, x.id LIMIT 1) AS r
     WHERE {_NOT_HELD.replace("$7", "$3")} AND {_KIND_NOT_HELD.format(kind="k.kind")}
     UNION ALL
    SELECT 'now', NULL, NULL, NULL, false, NULL, notifier.now()
"""  # noqa: S608 - constants of ours


@dataclass(frozen=True, slots=True)
class Expired:
    """A row whose claim ran out. `overdue`: by more than one further claim time, so no lease saves it."""

    id: UUID
    batch_id: UUID | None
    claimed_by: str
    overdue: bool

    @property
    def lease(self) -> UUID:
        """What its owner keeps a lease on: the batch, where it is in one."""
        return self.batch_id or self.id


@dataclass(frozen=True, slots=True)
class Look:
    """What there is to do: claims that ran out, batches in doubt that are due again, and where what is due begins.

    `due`: of each kind that has any, the first. `at`: business time of the look.
    """

    expired: Sequence[Expired]
    batches: Sequence[UUID]
    due: Mapping[str, Place]
    at: datetime

    @property
    def is_full(self) -> bool:
        """Whether there may be more than it shows."""
        return len(self.expired) >= EXPIRED_MAX or len(self.batches) >= BATCHES_MAX


async def look(conn: Connection, claimant: Claimant, but: Sequence[UUID] = ()) -> Look:
    """Up to 500 rows whose claim ran out, the longest first, without `but`, and up to 20 batches. A look only."""
    pause = f"pause:provider:{claimant.provider}"
    rows = await conn.fetch(LOOK, list(claimant.templates), claimant.ttl, pause, list(but))
    return Look(
        [
            Expired(row["id"], row["batch_id"], row["claimed_by"], row["overdue"])
            for row in rows
            if row["found"] == "expired"
        ],
        [row["batch_id"] for row in rows if row["found"] == "batch"],
        {row["kind"]: Place(row["at"], row["id"]) for row in rows if row["found"] == "due"},
        next(row["at"] for row in rows if row["found"] == "now"),
    )


# A claim that ran out while the provider might have been called leaves doubt, dated from that claim.
_TAKEN_DOUBT = "CASE WHEN d.calling THEN coalesce(d.doubt_since, d.claimed_at) ELSE d.doubt_since END"
TAKE_OVER = f"""
    WITH c AS (
        UPDATE deliveries AS d
           SET doubt_since = {_TAKEN_DOUBT},
               {_CLAIM_SET.format(doubt=f"({_TAKEN_DOUBT})")}
         WHERE d.id = ANY (ARRAY (
                   SELECT x.id FROM deliveries x
                    WHERE x.id = ANY ($8::uuid[]) AND num_nulls(x.claimed_by) = 0 AND num_nulls(x.batch_id) = 1
                      AND x.claim_expires_at <= now() AND x.kind_name = ANY ($5::text[])
                      AND {_NOT_HELD} AND {_KIND_NOT_HELD.format(kind="x.kind_name")}
                    ORDER BY x.id
                      FOR UPDATE SKIP LOCKED))
        {_CLAIMED.strip()})
    {_CLAIM_READ}
"""  # noqa: S608 - constants of ours


async def take_over(conn: Connection, claimant: Claimant, kinds: Sequence[str], ids: Sequence[UUID]) -> list[Claim]:
    """Claim those of `ids` whose claim is still expired; each comes in doubt if its owner may have been calling."""
    rows = await conn.fetch(TAKE_OVER, *_claim_arguments(claimant, kinds), sorted(ids))
    return [Claim._make(row) for row in rows]


# A batch is claimed whole or not at all: its members were claimed in one statement, and wherever they go they go
# together. No SKIP LOCKED: a member that somebody just holds would be left behind, and the others be another call.
TAKE_OVER_BATCHES = f"""
    WITH m AS MATERIALIZED (
        SELECT x.id, x.batch_id,
               coalesce(x.claim_expires_at <= now(), x.next_attempt_at <= notifier.now())
               AND x.kind_name = ANY ($5::text[])
               AND {_NOT_HELD} AND {_KIND_NOT_HELD.format(kind="x.kind_name")} AS ready
          FROM deliveries x
         WHERE x.id = ANY (ARRAY (
                   SELECT y.id FROM deliveries y WHERE y.batch_id = ANY ($8::uuid[]) AND y.claimed_by IS NULL
                    UNION ALL
                   SELECT y.id FROM deliveries y WHERE y.claimed_by IS NOT NULL AND y.batch_id = ANY ($8::uuid[])))
         ORDER BY x.id
           FOR UPDATE),
    c AS (
        UPDATE deliveries AS d
           SET doubt_since = {_TAKEN_DOUBT},
               {_CLAIM_SET.format(doubt=f"({_TAKEN_DOUBT})")}
         WHERE d.id = ANY (ARRAY (
                   SELECT m.id FROM m
                    WHERE m.batch_id IN (SELECT w.batch_id FROM m AS w GROUP BY w.batch_id HAVING bool_and(w.ready))))
        {_CLAIMED.strip()})
    {_CLAIM_READ}
"""  # noqa: S608 - constants of ours


async def take_over_batches(
    conn: Connection, claimant: Claimant, kinds: Sequence[str], batches: Sequence[UUID]
) -> list[Claim]:
    """Claim those of `batches` that are expired or due as a whole, all their members; others are left alone."""
    rows = await conn.fetch(TAKE_OVER_BATCHES, *_claim_arguments(claimant, kinds), sorted(batches))
    return [Claim._make(row) for row in rows]


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


BEGIN_CALL = """
    UPDATE deliveries AS d
       SET calling = true
     WHERE d.id = $1 AND d.generation = $2 AND d.claimed_by IS NOT DISTINCT FROM $3
    RETURNING d.id
"""


async def begin(conn: Connection, claim: Claim, worker: str) -> bool:
    """Mark that the provider is about to be called, for one without keys. False: the claim was lost, call nobody."""
    return await conn.fetchval(BEGIN_CALL, claim.id, claim.generation, worker) is not None


# The mark is on the row itself, so that a claim that ends at this moment finds it however it reads. It leaves its
# batch, which may have to wait for long: nothing is ever called for it again.
FORGET = """
    UPDATE deliveries
       SET erased = true,
           batch_id = CASE WHEN claimed_by IS NULL THEN NULL ELSE batch_id END,
           recipient = CASE WHEN claimed_by IS NULL THEN NULL ELSE recipient END,
           locale = CASE WHEN claimed_by IS NULL THEN NULL ELSE locale END,
           next_attempt_at = least(next_attempt_at, (SELECT notifier.now()))
     WHERE id = ANY (ARRAY (SELECT d.id FROM deliveries d WHERE d.id = ANY ($1::uuid[]) ORDER BY d.id FOR UPDATE))
"""


async def forget(conn: Connection, ids: Sequence[UUID]) -> None:
    """Mark open rows of an erased user: the next claim ends them at once, and no address outlives its claim."""
    await conn.execute(FORGET, sorted(ids))
