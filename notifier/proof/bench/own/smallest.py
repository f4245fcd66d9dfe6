"""The floor of an ingest: the smallest SQL that writes the rows an event leaves behind, in batches."""

from __future__ import annotations

import platform
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg

from notifier.ids import new_id
from notifier.proof.bench.peers.talk import talk

ANSWER = (
    '{"event": {"id": "evt_0000000000", "type": "user.signed_up", "duplicate": false}, "notifications": '
    '[{"id": "00000000-0000-7000-8000-000000000000", "kind": "onboarding", "state": "pending", '
    '"due_at": "2026-01-01T00:00:00.000000Z"}, {"id": "00000000-0000-7000-8000-000000000000", "kind": "followup", '
    '"state": "scheduled", "due_at": "2026-01-04T00:00:00.000000Z"}], "canceled": [], "too_late": []}'
)
FOLLOWUP_AFTER = timedelta(days=3)

# A user, the event, its latest time, two decisions and their two places.
WRITE = """
    WITH n AS MATERIALIZED (SELECT * FROM unnest($1::text[], $2::uuid[], $3::uuid[]) AS t (user_id, now, later)),
    u AS (
        INSERT INTO users (user_id, email, email_at, name, name_at, locale, locale_at)
        SELECT user_id, user_id || '@example.com', $4, 'Ada', $4, 'en', $4 FROM n),
    e AS (
        INSERT INTO events (source, id, type, user_id, occurred_at, fingerprint, answer, taken_at)
        SELECT 'api', 'evt_' || user_id, 'user.signed_up', user_id, $4, $6, $7::json, $4 FROM n),
    l AS (
        INSERT INTO last_seen (user_id, event_type, seen_at, event_ref)
        SELECT user_id, 'user.signed_up', $4, 'api/evt_' || user_id FROM n),
    o AS (
        INSERT INTO outbox (id, user_id, kind, decided_at, decided_by, due_at, cancel_on, cancel_from, data)
        SELECT now, user_id, 'onboarding', $4, 'event:api/evt_' || user_id, $4, '{}'::text[], $4, '{}'::jsonb FROM n
         UNION ALL
        SELECT later, user_id, 'followup', $4, 'event:api/evt_' || user_id, $5, '{user.logged_in}'::text[], $4,
               '{}'::jsonb
          FROM n),
    s AS (INSERT INTO scheduled_sends (id, user_id, kind, due_at) SELECT later, user_id, 'followup', $5 FROM n)
    INSERT INTO deliveries (id, user_id, kind, next_attempt_at) SELECT now, user_id, 'onboarding', $4 FROM n
"""


class Smallest:
    """A driver of one statement."""

    async def hello(self) -> Mapping[str, Any]:
        """Say which versions run here."""
        return {"python": platform.python_version(), "version": "own"}

    async def enqueue(self, database: str, number: int, callers: int) -> Mapping[str, Any]:
        """Write the rows of as many events, `callers` events a commit, one commit after the other."""
        conn = await asyncpg.connect(
            database, server_settings={"plan_cache_mode": "force_generic_plan", "enable_seqscan": "off", "jit": "off"}
        )
        now = datetime.now(UTC)
        batches = [
            [f"u{index}" for index in range(start, min(start + callers, number))] for start in range(0, number, callers)
        ]
        statement = await conn.prepare(WRITE)
        started = time.perf_counter()
        for users in batches:
            ids = [new_id() for _ in range(2 * len(users))]
            arguments = users, ids[::2], ids[1::2], now, now + FOLLOWUP_AFTER, bytes(32), ANSWER
            await statement.fetch(*arguments)
        seconds = time.perf_counter() - started
        await conn.close()
        return {"seconds": seconds, "made": number}

    async def rest(self) -> Mapping[str, Any]:
        """Nothing is left open."""
        return {}


if __name__ == "__main__":
    talk(Smallest())
