"""The record of operator acts; append-only, written in the transaction of the act itself."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from notifier.store.database import Connection, Row

_NEWEST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Entry:
    """One act. `at` is real time; `actor` a fingerprint of the key."""

    id: int
    at: datetime
    actor: str
    act: str
    target: str
    user_id: str | None
    detail: dict[str, Any]


WRITE = "INSERT INTO audit_log (actor, act, target, user_id, detail) VALUES ($1, $2, $3, $4, $5::jsonb)"


async def write(
    conn: Connection, *, actor: str, act: str, target: str, user_id: str | None, detail: Mapping[str, Any]
) -> None:
    """Record an act; the caller's transaction makes it true together with the act."""
    await conn.execute(WRITE, actor, act, target, user_id, json.dumps(detail))


PAGE = """
    SELECT a.id, a.at, a.actor, a.act, a.target, a.user_id, a.detail
      FROM audit_log a WHERE a.id < $1 ORDER BY a.id DESC LIMIT $2
"""


async def page(conn: Connection, *, after: int | None, limit: int) -> tuple[list[Entry], int | None]:
    """Acts before the one called `after`, the newest first; and where to go on, None at the end."""
    rows = await conn.fetch(PAGE, _NEWEST if after is None else after, limit + 1)
    entries = [_entry(row) for row in rows[:limit]]
    return entries, entries[-1].id if len(rows) > limit else None


OF_USER = """
    SELECT a.id, a.at, a.actor, a.act, a.target, a.user_id, a.detail
      FROM audit_log a WHERE a.user_id = $1 ORDER BY a.id DESC LIMIT 1000
"""


async def of_user(conn: Connection, user_id: str) -> list[Entry]:
    """The last 1000 acts on a user's notifications, the newest first."""
    return [_entry(row) for row in await conn.fetch(OF_USER, user_id)]


def _entry(row: Row) -> Entry:
    return Entry(**{**dict(row), "detail": json.loads(row["detail"])})
