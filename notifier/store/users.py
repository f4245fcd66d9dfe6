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

# Creates and locks in id order; the WHERE does not prevent the lock. It is FOR NO KEY UPDATE because the SET names no
# key column. Writes nothing to a known user.
LOCK = """
    INSERT INTO users AS u (user_id)
    SELECT t.user_id FROM unnest($1::text[]) AS t (user_id) ORDER BY t.user_id
        ON CONFLICT (user_id) DO UPDATE SET created_at = u.created_at WHERE false
"""


async def lock(conn: Connection, user_ids: Sequence[str]) -> None:
    """Create the users that are new and lock all of them until the transaction ends."""
    await conn.execute(LOCK, sorted(user_ids))


LOCK_KNOWN = "SELECT user_id FROM users WHERE user_id = $1 FOR NO KEY UPDATE"


async def lock_known(conn: Connection, user_id: str) -> bool:
    """Lock one user; False when there is none."""
    return await conn.fetchval(LOCK_KNOWN, user_id) is not None


# The newest occurred_at wins for each field by itself, so a login that arrives before its signup hides nothing.
MERGE = """
    UPDATE users AS u
       SET email = CASE WHEN t.email IS NOT NULL AND t.at >= coalesce(u.email_at, t.at)
                      THEN t.email ELSE u.email END,
           email_at = CASE WHEN t.email IS NOT NULL THEN greatest(u.email_at, t.at) ELSE u.email_at END,
           name = CASE WHEN t.name IS NOT NULL AND t.at >= coalesce(u.name_at, t.at)
                     THEN t.name ELSE u.name END,
           name_at = CASE WHEN t.name IS NOT NULL THEN greatest(u.name_at, t.at) ELSE u.name_at END,
           timezone = CASE WHEN t.timezone IS NOT NULL AND t.at >= coalesce(u.timezone_at, t.at)
                         THEN t.timezone ELSE u.timezone END,
           timezone_at = CASE WHEN t.timezone IS NOT NULL THEN greatest(u.timezone_at, t.at) ELSE u.timezone_at END,
           locale = CASE WHEN t.locale IS NOT NULL AND t.at >= coalesce(u.locale_at, t.at)
                       THEN t.locale ELSE u.locale END,
           locale_at = CASE WHEN t.locale IS NOT NULL THEN greatest(u.locale_at, t.at) ELSE u.locale_at END,
           attributes = CASE WHEN t.attributes IS NOT NULL AND t.at >= coalesce(u.attributes_at, t.at)
                           THEN t.attributes::jsonb ELSE u.attributes END,
           attributes_at = CASE WHEN t.attributes IS NOT NULL
                           THEN greatest(u.attributes_at, t.at) ELSE u.attributes_at END
      FROM unnest($1::text[], $2::timestamptz[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[])
           AS t (user_id, at, email, name, timezone, locale, attributes)
     WHERE u.user_id = t.user_id AND u.erased_at IS NULL
"""


async def merge(conn: Connection, profiles: Sequence[tuple[str, datetime, Profile]]) -> None:
    """Merge what events say of their users, at most one profile a user; the caller holds the users' locks."""
    ordered = sorted(profiles, key=lambda item: item[0])
    await conn.execute(
        MERGE,
        [user_id for user_id, _, _ in ordered],
        [at for _, at, _ in ordered],
        [profile.email for _, _, profile in ordered],
        [profile.name for _, _, profile in ordered],
        [profile.timezone for _, _, profile in ordered],
        [profile.locale for _, _, profile in ordered],
        [None if p.attributes is None else json.dumps(p.attributes) for _, _, p in ordered],
    )


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


REMEMBER = """
    INSERT INTO last_seen AS l (user_id, event_type, seen_at, event_ref)
    SELECT * FROM unnest($1::text[], $2::text[], $3::timestamptz[], $4::text[]) AS t (user_id, event_type, seen_at, ref)
     ORDER BY user_id, event_type
        ON CONFLICT (user_id, event_type) DO UPDATE SET seen_at = excluded.seen_at, event_ref = excluded.event_ref
     WHERE excluded.seen_at > l.seen_at
"""


async def remember(conn: Connection, seen: Sequence[tuple[str, str, Seen]]) -> None:
    """Keep the latest time of each (user, type); the caller holds the users' locks."""
    await conn.execute(
        REMEMBER,
        [user_id for user_id, _, _ in seen],
        [event_type for _, event_type, _ in seen],
        [item.at for _, _, item in seen],
        [item.ref for _, _, item in seen],
    )


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
