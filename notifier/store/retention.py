"""What need not be kept for ever: old events, and the detail of notifications that ended long ago.

Nothing orders these rows by the time that counts here, and an index for that alone would cost every event. So a table
is walked in the order of its pages, PART_PAGES at a time. Each statement commits by itself, reads one part whatever the
size of the table, writes a bounded number of rows and waits for no lock.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from notifier.store.database import Connection

PART_PAGES = 128  # 1 MiB: some 1 500 events

SIZES = """
    SELECT t.name, pg_relation_size(t.name::regclass) / current_setting('block_size')::int AS pages,
           pg_relation_filenode(t.name::regclass) AS file
      FROM unnest(ARRAY['events', 'settlements']) AS t (name)
"""


@dataclass(frozen=True, slots=True)
class Size:
    """How many parts a table has; `file` is another one once its rows were put elsewhere (VACUUM FULL)."""

    parts: int
    file: int


async def sizes(conn: Connection) -> dict[str, Size]:
    """Table → its size."""
    return {row["name"]: Size(-(-row["pages"] // PART_PAGES), row["file"]) for row in await conn.fetch(SIZES)}


@dataclass(frozen=True, slots=True)
class Step:
    """What one statement did to one part of a table.

    `removed`: name → rows. `left`: whether old rows are still there (the batch was full, or somebody held them).
    `next_s`: in how many seconds the first of the others is old; None when there are no others.
    """

    removed: dict[str, int]
    left: bool
    next_s: float | None


# An event that is repeated meanwhile is either looked up before this commits, and gets its stored answer, or after it,
# and is a new event that meets the decision of the first: both are right. Its insert waits for this statement, and goes
# in when the old row is gone; two rows under one id there never are.
# The rows are found by one look at the part, and held by their ctid: one that was changed since is passed over.
EVENTS = """
    WITH here AS MATERIALIZED (
        SELECT e.ctid AS at, e.received_at, e.received_at < now() - $3::interval AS is_old
          FROM events e WHERE e.ctid >= $1::tid AND e.ctid < $2::tid),
    gone AS (
        DELETE FROM events
         WHERE ctid = ANY (ARRAY (SELECT e.ctid FROM events e
                                   WHERE e.ctid = ANY (ARRAY (SELECT at FROM here WHERE is_old
                                                               LIMIT 500))   -- literal, as everywhere
                                     FOR UPDATE SKIP LOCKED))
        RETURNING 1)
    SELECT (SELECT count(*) FROM gone) AS events,
           (SELECT count(*) FROM here WHERE is_old) > (SELECT count(*) FROM gone) AS is_left,
           (SELECT extract(epoch FROM min(received_at) + $3 - now())::float8 FROM here WHERE NOT is_old) AS next_s
"""


async def forget_events(conn: Connection, part: int, keep_days: int) -> Step:
    """Delete up to 500 events of this part that were received more than `keep_days` ago."""
    return await _step(conn, EVENTS, part, keep_days)


# The row of the end is marked under its lock, so that a retry, which has to take it away, comes before all this or
# finds the mark. Uncertain ones are no end: a person, or late evidence, still needs to know.
SETTLED = """
    WITH here AS MATERIALIZED (
        SELECT s.ctid AS at, s.settled_at, s.settled_at < now() - $3::interval AS is_old
          FROM settlements s
         WHERE s.ctid >= $1::tid AND s.ctid < $2::tid AND s.state <> 'uncertain' AND s.trimmed_at IS NULL),
    t AS MATERIALIZED (
        SELECT s.id FROM settlements s
         WHERE s.ctid = ANY (ARRAY (SELECT at FROM here WHERE is_old LIMIT 200))
           FOR UPDATE SKIP LOCKED),
    o AS MATERIALIZED (
        SELECT o.id FROM t, LATERAL (SELECT x.id FROM outbox x WHERE x.id = t.id LIMIT 1 FOR UPDATE SKIP LOCKED) AS o),
    a AS (DELETE FROM attempts WHERE notification_id = ANY (ARRAY (SELECT id FROM o)) RETURNING 1),
    d AS (UPDATE outbox SET data = '{}' WHERE id = ANY (ARRAY (SELECT id FROM o)) AND data <> '{}'),
    x AS (
        UPDATE settlements
           SET trimmed_at = now(), entered_at = NULL, claimed_by = NULL, claimed_at = NULL, provider = NULL,
               provider_message_id = NULL, template_hash = NULL, batch_id = NULL, call_started_at = NULL,
               call_ended_at = NULL,
               decided_by = CASE WHEN decided_by = 'worker' THEN 'worker:' || claimed_by ELSE decided_by END
         WHERE id = ANY (ARRAY (SELECT id FROM o))
        RETURNING 1)
    SELECT (SELECT count(*) FROM x) AS notifications, (SELECT count(*) FROM a) AS attempts,
           (SELECT count(*) FROM here WHERE is_old) > (SELECT count(*) FROM x) AS is_left,
           (SELECT extract(epoch FROM min(settled_at) + $3 - now())::float8 FROM here WHERE NOT is_old) AS next_s
"""


async def trim_settled(conn: Connection, part: int, keep_days: int) -> Step:
    """Take attempts, data and detail of up to 200 notifications of this part that ended more than `keep_days` ago.

    What stays for ever: the decision with its guard, state, reason, who decided it, evidence, when, and generation.
    """
    return await _step(conn, SETTLED, part, keep_days)


async def _step(conn: Connection, statement: str, part: int, keep_days: int) -> Step:
    first = part * PART_PAGES
    row = dict(await conn.fetchrow(statement, (first, 0), (first + PART_PAGES, 0), timedelta(days=keep_days)))
    left, next_s = row.pop("is_left"), row.pop("next_s")
    return Step(row, left, next_s)
