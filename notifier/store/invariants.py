"""What must never be: counts of violations, cheap enough to ask of a running installation.

Each looks at the newest rows only (20 000 of a table), in one snapshot: every move between the places is one
statement, so a row on its way is never counted as lost or doubled.
"""

from __future__ import annotations

from datetime import timedelta

from notifier.store.database import Connection

DOUBLED_OR_LOST = """
    SELECT (SELECT count(*) FROM (SELECT s.id FROM scheduled_sends s ORDER BY s.id DESC LIMIT 20000) AS s
             WHERE EXISTS (SELECT FROM deliveries d WHERE d.id = s.id)
                OR EXISTS (SELECT FROM settlements t WHERE t.id = s.id))
         + (SELECT count(*) FROM (SELECT d.id FROM deliveries d ORDER BY d.id DESC LIMIT 20000) AS d
             WHERE EXISTS (SELECT FROM settlements t WHERE t.id = d.id))
         + (SELECT count(*) FROM (SELECT o.id FROM outbox o ORDER BY o.id DESC LIMIT 20000) AS o
             WHERE NOT EXISTS (SELECT FROM scheduled_sends s WHERE s.id = o.id)
               AND NOT EXISTS (SELECT FROM deliveries d WHERE d.id = o.id)
               AND NOT EXISTS (SELECT FROM settlements t WHERE t.id = o.id))
"""


async def doubled_or_lost(conn: Connection) -> int:
    """I0: notifications in two places, or decided and in none."""
    found: int = await conn.fetchval(DOUBLED_OR_LOST)
    return found


ACCEPTED_TWICE = """
    SELECT count(*)
      FROM (SELECT FROM (SELECT a.notification_id, a.resend_number, a.outcome, a.provider_message_id FROM attempts a
                          ORDER BY a.notification_id DESC LIMIT 20000) AS a
             WHERE a.outcome = 'accepted'
             GROUP BY a.notification_id, a.resend_number HAVING count(DISTINCT a.provider_message_id) > 1) AS twice
"""


async def accepted_twice(conn: Connection) -> int:
    """I2, as far as our own record goes: keys under which two calls were accepted as two different mails."""
    found: int = await conn.fetchval(ACCEPTED_TWICE)
    return found


CANCELED_AND_CALLED = """
    SELECT count(*)
      FROM (SELECT t.id, t.settled_at, t.resend_number FROM settlements t
             WHERE t.state = 'canceled' ORDER BY t.id DESC LIMIT 20000) AS t
     WHERE EXISTS (SELECT FROM attempts a
                    WHERE a.notification_id = t.id
                      AND (a.started_at > t.settled_at
                           OR (a.outcome IN ('accepted', 'duplicate') AND a.resend_number = t.resend_number)))
"""


async def canceled_and_called(conn: Connection) -> int:
    """I3: canceled, and yet accepted, or called for afterwards."""
    found: int = await conn.fetchval(CANCELED_AND_CALLED)
    return found


# A claim is somebody's duty only while a worker lives, and not while a switch holds its kind.
OVERDUE_CLAIMS = """
    SELECT count(*) FROM deliveries d
     WHERE d.claimed_by IS NOT NULL AND d.claim_expires_at < now() - $1::interval
       AND EXISTS (SELECT FROM workers w WHERE w.role = 'worker' AND w.heartbeat_at > now() - interval '15 seconds')
       AND NOT EXISTS (SELECT FROM switches w
                        WHERE (w.name IN ('pause', 'pause:' || d.kind_name) OR w.name LIKE 'pause:provider:%')
                          AND w.expires_at > notifier.now())
"""


async def overdue_claims(conn: Connection, patience: timedelta) -> int:
    """I7: claims that ran out more than `patience` ago and were not taken over although a worker lives."""
    found: int = await conn.fetchval(OVERDUE_CLAIMS, patience)
    return found
