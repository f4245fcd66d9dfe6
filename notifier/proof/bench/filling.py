"""Rows as the service would have left them, written in bulk."""

from __future__ import annotations

from typing import Any

# What the templates may ask for, as a decision keeps it.
DATA = """jsonb_build_object('user', jsonb_build_object('id', user_id, 'name', 'Ada', 'locale', 'en', 'timezone', NULL,
                              'attributes', '{}'::jsonb), 'data', '{}'::jsonb)"""

# An owed mail for each of n new users.
OWED = f"""
    WITH n AS MATERIALIZED (
        SELECT uuidv7() AS id, 'u' || n AS user_id FROM generate_series($1::bigint, $2::bigint) AS n),
    u AS (
        INSERT INTO users (user_id, email, email_at, name, name_at)
        SELECT user_id, user_id || '@example.com', now(), 'Ada', now() FROM n),
    o AS (
        INSERT INTO outbox (id, user_id, kind, decided_at, decided_by, due_at, cancel_from, data)
        SELECT id, user_id, 'onboarding', now(), 'event:api/evt_' || user_id, now(), now(), {DATA} FROM n)
    INSERT INTO deliveries (id, user_id, kind, next_attempt_at) SELECT id, user_id, 'onboarding', now() FROM n
"""


async def fill_owed(conn: Any, number: int, first: int = 1) -> None:
    """Make that many users, each owed one mail now."""
    await conn.execute(OWED, first, first + number - 1, timeout=600)


# A follow-up for each of n new users, all due at one instant.
WAITING = f"""
    WITH n AS MATERIALIZED (
        SELECT uuidv7() AS id, 'w' || n AS user_id FROM generate_series($1::bigint, $2::bigint) AS n),
    u AS (
        INSERT INTO users (user_id, email, email_at, name, name_at)
        SELECT user_id, user_id || '@example.com', now(), 'Ada', now() FROM n),
    o AS (
        INSERT INTO outbox (id, user_id, kind, decided_at, decided_by, due_at, cancel_on, cancel_from, data)
        SELECT id, user_id, 'followup', now() - interval '3 days', 'event:api/evt_' || user_id, $3,
               '{{user.logged_in}}', now(), {DATA} FROM n)
    INSERT INTO scheduled_sends (id, user_id, kind, due_at) SELECT id, user_id, 'followup', $3 FROM n
"""


async def fill_waiting(conn: Any, number: int, due_at: Any, first: int = 1) -> None:
    """Make that many users, each with a follow-up that is due at `due_at`."""
    await conn.execute(WAITING, first, first + number - 1, due_at, timeout=600)
