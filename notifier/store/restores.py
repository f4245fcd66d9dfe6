"""Restores from a backup: what an operator said of them, and what follows for the rows that came back."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from notifier.domain.restore import LostTime, Restore
from notifier.store.database import Connection, Row

NOW_AND_LOST_TIME = """
    SELECT notifier.now() AS now, i.clock_offset, r.at, r.made_at, r.events_from, r.events_until, r.account
      FROM installation i LEFT JOIN restores r ON true ORDER BY r.at
"""


async def now_and_lost_time(conn: Connection) -> tuple[datetime, LostTime]:
    """Business time, and what this database has forgotten; one statement, since every event asks for both."""
    rows = await conn.fetch(NOW_AND_LOST_TIME)
    known = tuple(_restore(row) for row in rows if row["at"] is not None)
    return rows[0]["now"], LostTime(known, rows[0]["clock_offset"])


READ = "SELECT r.at, r.made_at, r.events_from, r.events_until, r.account FROM restores r ORDER BY r.at LIMIT 1000"


async def read(conn: Connection) -> list[Restore]:
    """All restores, the oldest backup first."""
    return [_restore(row) for row in await conn.fetch(READ)]


def _restore(row: Row) -> Restore:
    return Restore(row["at"], row["made_at"], row["events_from"], row["events_until"], row["account"])


# Whoever starts meanwhile waits here for its first decision, claim, release or heartbeat; so does a second `restored`.
# An api serves before its first heartbeat, and what it decides is judged by the restores it has read: nobody may read
# them now and decide later, so not even readers get by. That lock comes first and alone, as every event reads
# `restores` before it writes a notification: what is under way ends, and nothing is held that it needs for that.
# An operator's retry may take the two the other way round; one of both ends as a deadlock, and may be repeated.
HOLD_DECISIONS = "LOCK TABLE restores IN ACCESS EXCLUSIVE MODE"
HOLD_MOVES = "LOCK TABLE scheduled_sends, deliveries, workers IN SHARE ROW EXCLUSIVE MODE"


async def hold_still(conn: Connection) -> None:
    """Let nobody else decide or move a notification until this transaction ends."""
    await conn.execute(HOLD_DECISIONS)
    await conn.execute(HOLD_MOVES)


BATCHES_MADE = """
    SELECT EXISTS (SELECT FROM deliveries d WHERE d.batch_id IS NOT NULL)
        OR EXISTS (SELECT FROM (SELECT t.batch_id FROM settlements t ORDER BY t.id DESC LIMIT 10000) AS t
                    WHERE t.batch_id IS NOT NULL)
"""


async def batches_made(conn: Connection) -> bool:
    """Whether mails went in batches of late: something open is in one, or one of the newest 10 000 that ended was."""
    found: bool = await conn.fetchval(BATCHES_MADE)
    return found


RECORD = """
    INSERT INTO restores (at, events_from, events_until, account) VALUES ($1, $2, notifier.now(), $3)
        ON CONFLICT (at) DO NOTHING
    RETURNING at
"""


async def record(conn: Connection, at: datetime, events_from: datetime, account: str) -> bool:
    """Remember a restore; what is decided from now on is judged by it. False: this one is known already."""
    return await conn.fetchval(RECORD, at, events_from, account) is not None


# A row that names an account keeps it, although a later attempt may have gone elsewhere: then it is never repeated.
# Where its call may have gone under a key that is lost, only what was in doubt already is sure to have kept its own.
DOUBT_OPEN = """
    UPDATE deliveries AS d
       SET doubt_since = least(d.doubt_since, CASE WHEN d.calling THEN d.claimed_at END, $1::timestamptz),
           provider = CASE WHEN $2 = 'several' AND d.doubt_since IS NULL THEN $2 ELSE coalesce(d.provider, $2) END,
           reason = 'restored'
"""


async def doubt_open(conn: Connection, at: datetime, account: str) -> int:
    """Bring every open row in doubt: since `at`, or since it was before. Returns how many there are."""
    return int((await conn.execute(DOUBT_OPEN, at, account)).rpartition(" ")[2])


# Nothing is sent before it is due, so that the doubt begins there where that is later than the backup.
DOUBT_DUE = """
    WITH due AS (
        DELETE FROM scheduled_sends WHERE due_at <= notifier.now()
        RETURNING id, user_id, kind, due_at, generation, resend_number)
    INSERT INTO deliveries (id, user_id, kind, next_attempt_at, generation, resend_number, doubt_since, provider,
                            reason)
    SELECT due.id, due.user_id, due.kind, notifier.now(), due.generation, due.resend_number,
           greatest($1::timestamptz, due.due_at - i.clock_offset), $2, 'restored'
      FROM due, installation i
"""


async def doubt_due(conn: Connection, at: datetime, account: str) -> int:
    """Owe what fell due in the lost time, in doubt: it may have been sent then. Returns how many there are."""
    return int((await conn.execute(DOUBT_DUE, at, account)).rpartition(" ")[2])


_MAY_BE_CANCELED = """
    (SELECT s.id, true AS is_scheduled FROM scheduled_sends s
      UNION ALL SELECT d.id, false FROM deliveries d WHERE d.reason = 'restored') AS p
      JOIN outbox o ON o.id = p.id AND o.cancel_on <> '{}'
"""
CANCELABLE = f"""
    SELECT o.id, o.user_id, o.kind, o.due_at, o.cancel_on, p.is_scheduled FROM {_MAY_BE_CANCELED}
     ORDER BY o.due_at, o.id LIMIT $1
"""  # noqa: S608 - constants of ours


@dataclass(frozen=True, slots=True)
class Cancelable:
    """A notification that an event of the lost time may have stopped. `is_scheduled`: such an event still can."""

    id: UUID
    user_id: str
    kind: str
    due_at: datetime
    cancel_on: tuple[str, ...]
    is_scheduled: bool


async def cancelable(conn: Connection, limit: int | None) -> list[Cancelable]:
    """What may have been canceled after the backup, the next due first; `limit` None: all of it."""
    found = await conn.fetch(CANCELABLE, limit)
    return [Cancelable(**{**dict(row), "cancel_on": tuple(row["cancel_on"])}) for row in found]


CANCELABLE_COUNT = f"""
    WITH c AS MATERIALIZED (SELECT p.is_scheduled, o.cancel_on FROM {_MAY_BE_CANCELED})
    SELECT (SELECT count(*) FROM c WHERE is_scheduled) AS scheduled,
           (SELECT count(*) FROM c WHERE NOT is_scheduled) AS in_doubt,
           ARRAY (SELECT DISTINCT t.event_type FROM c, unnest(c.cancel_on) AS t (event_type) ORDER BY 1) AS event_types
"""  # noqa: S608 - constants of ours


@dataclass(frozen=True, slots=True)
class CancelableCount:
    """How many may have been canceled after the backup, and by which types of event."""

    scheduled: int
    in_doubt: int
    event_types: tuple[str, ...]


async def cancelable_count(conn: Connection) -> CancelableCount:
    """Count what `cancelable` would list in full."""
    row = await conn.fetchrow(CANCELABLE_COUNT)
    return CancelableCount(row["scheduled"], row["in_doubt"], tuple(row["event_types"]))


STANDING = """
    SELECT (SELECT count(*) FROM scheduled_sends) AS scheduled,
           (SELECT count(*) FROM deliveries d WHERE d.doubt_since <= clock_timestamp() - $1::interval
                                                 OR d.provider <> $2 OR $1 IS NULL) AS not_again,
           greatest((SELECT max(w.heartbeat_at) FROM workers w),
                    (SELECT o.taken_at FROM outbox o ORDER BY o.id DESC LIMIT 1)) AS newest,
           (SELECT i.created_at FROM installation i) AS created_at
"""


@dataclass(frozen=True, slots=True)
class Standing:
    """What the database holds. `not_again`: open rows that nobody may repeat. `newest`: its last sign of life."""

    scheduled: int
    not_again: int
    newest: datetime | None
    created_at: datetime


async def standing(conn: Connection, repeatable_for: timedelta | None, account: str) -> Standing:
    """Count what came back; `repeatable_for`: how long a doubt may be repeated at `account`, None: never."""
    return Standing(**dict(await conn.fetchrow(STANDING, repeatable_for, account)))
