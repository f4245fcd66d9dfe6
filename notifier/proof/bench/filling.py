"""Rows as the service would have left them, written in bulk."""

from __future__ import annotations

import hashlib
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
"""  # noqa: S608 - constants of ours

# The same with ids in no order, and as long as those of history: with shorter ones each row would go into what is left
# of another page of users, and neighbours here would be neighbours nowhere.
OWED_AMONG_HISTORY = OWED.replace("'u' || n AS user_id", "'h' || md5((-n)::text) AS user_id")


async def fill_owed(conn: Any, number: int, first: int = 1, *, among_history: bool = False) -> None:
    """Make that many users, each owed one mail now."""
    await conn.execute(OWED_AMONG_HISTORY if among_history else OWED, first, first + number - 1, timeout=600)


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
"""  # noqa: S608 - constants of ours


async def fill_waiting(conn: Any, number: int, due_at: Any, first: int = 1) -> None:
    """Make that many users, each with a follow-up that is due at `due_at`."""
    await conn.execute(WAITING, first, first + number - 1, due_at, timeout=600)


# Users whose first mail was sent long ago; `waiting` of them still have a follow-up to come. The ids are in no order.
HISTORY = f"""
    WITH n AS MATERIALIZED (
        SELECT n, 'h' || md5(n::text) AS user_id, uuidv7() AS id, uuidv7() AS later,
               now() - interval '1 day' AS at
          FROM generate_series($1::bigint, $2::bigint) AS n),
    u AS (
        INSERT INTO users (user_id, email, email_at, name, name_at)
        SELECT user_id, user_id || '@example.com', at, 'Ada', at FROM n),
    l AS (
        INSERT INTO last_seen (user_id, event_type, seen_at, event_ref)
        SELECT user_id, 'user.signed_up', at, 'api/evt_' || user_id FROM n),
    e AS (
        INSERT INTO events (source, id, type, user_id, occurred_at, fingerprint, answer, taken_at)
        SELECT 'api', 'evt_' || user_id, 'user.signed_up', user_id, at, decode(repeat('00', 32), 'hex'),
               json_build_object('event', json_build_object('id', 'evt_' || user_id), 'notifications', '[]'::json), at
          FROM n),
    o AS (
        INSERT INTO outbox (id, user_id, kind, decided_at, decided_by, due_at, cancel_on, cancel_from, data)
        SELECT id, user_id, 'onboarding', at, 'event:api/evt_' || user_id, at, '{{}}'::text[], at, {DATA} FROM n
         UNION ALL
        SELECT later, user_id, 'followup', at, 'event:api/evt_' || user_id, at + interval '3 days',
               '{{user.logged_in}}'::text[], at, {DATA} FROM n WHERE n.n <= $3),
    s AS (
        INSERT INTO scheduled_sends (id, user_id, kind, due_at)
        SELECT later, user_id, 'followup', at + interval '3 days' FROM n WHERE n.n <= $3),
    a AS (
        INSERT INTO attempts (notification_id, generation, worker, user_id, provider, resend_number, outcome,
                              claimed_at, started_at, finished_at)
        SELECT id, 1, 'w', user_id, 'mock:bench', 0, 'accepted', at, at, at FROM n)
    INSERT INTO settlements (id, user_id, kind, state, decided_by, evidence, generation, attempts, entered_at)
    SELECT id, user_id, 'onboarding', 'sent', 'worker:w', 'accepted', 1, 1, at FROM n
"""  # noqa: S608 - constants of ours


async def fill_history(conn: Any, first: int, last: int, waiting: int) -> None:
    """Make users `first` to `last`, each with a mail that was sent; those up to `waiting` with one still to come."""
    await conn.execute(HISTORY, first, last, waiting, timeout=3_600)


def user_of(number: int) -> str:
    """The id of the n-th of them."""
    return "h" + hashlib.md5(str(number).encode(), usedforsecurity=False).hexdigest()
