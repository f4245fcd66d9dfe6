"""What is true of a user. Every path that takes an event or an operator act locks this row before it decides."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from notifier.domain.event import Profile
from notifier.domain.journey import Seen
from notifier.store.database import Connection
from notifier.store.rows import to_json

# Creates, locks and merges in one statement and in id order; the WHERE does not prevent the lock. It is FOR NO KEY
# UPDATE because the SET names no key column. The newest occurred_at wins for each field by itself, so that a login
# which arrives before its signup hides nothing; a known user about whom nothing is new is locked and not written.
# A row that was there carries the lock as its xmax into its next version; one that this statement made has none.
SAID = "user_id text, at timestamptz, email text, name text, timezone text, locale text, attributes json"
LOCKED = """locked AS (
    INSERT INTO users AS u (user_id, email, email_at, name, name_at, timezone, timezone_at, locale, locale_at,
                            attributes, attributes_at)
    SELECT t.user_id, t.email, CASE WHEN t.email IS NOT NULL THEN t.at END,
           t.name, CASE WHEN t.name IS NOT NULL THEN t.at END,
           t.timezone, CASE WHEN t.timezone IS NOT NULL THEN t.at END,
           t.locale, CASE WHEN t.locale IS NOT NULL THEN t.at END,
           t.attributes::jsonb, CASE WHEN t.attributes IS NOT NULL THEN t.at END
      FROM said AS t
     ORDER BY t.user_id
        ON CONFLICT (user_id) DO UPDATE SET
           email = CASE WHEN excluded.email_at >= coalesce(u.email_at, excluded.email_at)
                        THEN excluded.email ELSE u.email END,
           email_at = greatest(u.email_at, excluded.email_at),
           name = CASE WHEN excluded.name_at >= coalesce(u.name_at, excluded.name_at)
                        THEN excluded.name ELSE u.name END,
           name_at = greatest(u.name_at, excluded.name_at),
           timezone = CASE WHEN excluded.timezone_at >= coalesce(u.timezone_at, excluded.timezone_at)
                        THEN excluded.timezone ELSE u.timezone END,
           timezone_at = greatest(u.timezone_at, excluded.timezone_at),
           locale = CASE WHEN excluded.locale_at >= coalesce(u.locale_at, excluded.locale_at)
                        THEN excluded.locale ELSE u.locale END,
           locale_at = greatest(u.locale_at, excluded.locale_at),
           attributes = CASE WHEN excluded.attributes_at >= coalesce(u.attributes_at, excluded.attributes_at)
                        THEN excluded.attributes ELSE u.attributes END,
           attributes_at = greatest(u.attributes_at, excluded.attributes_at)
     WHERE u.erased_at IS NULL
       AND (excluded.email_at >= coalesce(u.email_at, excluded.email_at)
            OR excluded.name_at >= coalesce(u.name_at, excluded.name_at)
            OR excluded.timezone_at >= coalesce(u.timezone_at, excluded.timezone_at)
            OR excluded.locale_at >= coalesce(u.locale_at, excluded.locale_at)
            OR excluded.attributes_at >= coalesce(u.attributes_at, excluded.attributes_at))
    RETURNING u.user_id, u.xmax = 0 AS is_new)
"""
LOCK = f"WITH said AS (SELECT * FROM json_to_recordset($1::json) AS t ({SAID})), {LOCKED} SELECT"  # noqa: S608 - ours


async def lock(conn: Connection, said: Sequence[tuple[str, datetime | None, Profile]]) -> None:
    """Create the users that are new and lock all of them until the transaction ends, one tuple a user.

    What is said of a user at a time is merged; what is said without one is left for a second call, when there is one.
    """
    await conn.execute(LOCK, to_json([what_is_said(*item) for item in said]))


def what_is_said(user_id: str, at: datetime | None, profile: Profile) -> dict[str, Any]:
    """Give one row of `said`: what an event says of its user, without what it does not say."""
    if at is None:
        return {"user_id": user_id}
    row: dict[str, Any] = {"user_id": user_id, "at": at}
    if profile.email is not None:
        row["email"] = profile.email
    if profile.name is not None:
        row["name"] = profile.name
    if profile.timezone is not None:
        row["timezone"] = profile.timezone
    if profile.locale is not None:
        row["locale"] = profile.locale
    if profile.attributes is not None:
        row["attributes"] = profile.attributes
    return row


LOCK_KNOWN = "SELECT user_id FROM users WHERE user_id = $1 FOR NO KEY UPDATE"


async def lock_known(conn: Connection, user_id: str) -> bool:
    """Lock one user; False when there is none."""
    return await conn.fetchval(LOCK_KNOWN, user_id) is not None


@dataclass(frozen=True, slots=True)
class UserRow:
    """A user's profile."""

    user_id: str
    email: str | None
    name: str | None
    timezone: str | None
    locale: str | None
    attributes: Mapping[str, Any]
    created_at: datetime
    erased_at: datetime | None


READ = """
    SELECT u.user_id, u.email, u.name, u.timezone, u.locale, u.attributes, u.created_at, u.erased_at
      FROM unnest($1::text[]) AS t (user_id), LATERAL (SELECT * FROM users u WHERE u.user_id = t.user_id LIMIT 1) AS u
"""


async def read(conn: Connection, user_ids: Sequence[str]) -> dict[str, UserRow]:
    """Profiles of the users that exist."""
    rows = await conn.fetch(READ, list(user_ids))
    return {
        row["user_id"]: UserRow(
            user_id=row["user_id"],
            email=row["email"],
            name=row["name"],
            timezone=row["timezone"],
            locale=row["locale"],
            attributes={} if row["attributes"] is None else json.loads(row["attributes"]),
            created_at=row["created_at"],
            erased_at=row["erased_at"],
        )
        for row in rows
    }


LAST_SEEN = """
    SELECT l.user_id, l.event_type, l.seen_at, l.event_ref
      FROM unnest($1::text[]) AS t (user_id),
           LATERAL (SELECT * FROM last_seen l
                     WHERE l.user_id = t.user_id ORDER BY l.user_id, l.event_type LIMIT 1000) AS l
"""


async def last_seen(conn: Connection, user_ids: Sequence[str]) -> dict[str, dict[str, Seen]]:
    """For each user, type → the latest event of that type."""
    found: dict[str, dict[str, Seen]] = {user_id: {} for user_id in user_ids}
    for row in await conn.fetch(LAST_SEEN, list(user_ids)):
        found[row["user_id"]][row["event_type"]] = Seen(row["seen_at"], row["event_ref"])
    return found


ERASE = """
    UPDATE users
       SET email = NULL, email_at = NULL, name = NULL, name_at = NULL, timezone = NULL, timezone_at = NULL,
           locale = NULL, locale_at = NULL, attributes = NULL, attributes_at = NULL,
           erased_at = coalesce(erased_at, clock_timestamp())
     WHERE user_id = $1
    RETURNING user_id
"""
FORGET = "DELETE FROM last_seen WHERE user_id = $1"


async def erase(conn: Connection, user_id: str) -> None:
    """Make the row a tombstone; the caller holds its lock."""
    assert await conn.fetchval(ERASE, user_id) is not None, "a locked user is gone"
    await conn.execute(FORGET, user_id)
