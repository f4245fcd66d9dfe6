"""How many notifications stand where: exact for the open states, from indexes only."""

from __future__ import annotations

from notifier.store.database import Connection

OPEN_STATES = """
    SELECT (SELECT count(*) FROM scheduled_sends)                             AS scheduled,
           (SELECT count(*) FROM deliveries WHERE claimed_by IS NULL)         AS pending,
           (SELECT count(*) FROM deliveries WHERE claimed_by IS NOT NULL)     AS sending,
           (SELECT count(*) FROM settlements WHERE state = 'uncertain')       AS uncertain
"""


async def open_states(conn: Connection) -> dict[str, int]:
    """State → how many, in one snapshot."""
    return dict(await conn.fetchrow(OPEN_STATES))


# A skip scan: the first row of each kind, one index look-up a kind.
_KINDS = """
    WITH RECURSIVE kinds AS (
        (SELECT d.kind_name, d.next_attempt_at FROM deliveries d WHERE d.claimed_by IS NULL
          ORDER BY d.kind_name, d.next_attempt_at LIMIT 1)
        UNION ALL
        SELECT n.kind_name, n.next_attempt_at
          FROM kinds k, LATERAL (SELECT d.kind_name, d.next_attempt_at FROM deliveries d
                                  WHERE d.claimed_by IS NULL AND d.kind_name > k.kind_name
                                  ORDER BY d.kind_name, d.next_attempt_at LIMIT 1) AS n)
"""
OLDEST_PENDING = f"""
    {_KINDS}
    SELECT coalesce(greatest(0, extract(epoch FROM notifier.now() - min(next_attempt_at))), 0)::float8 FROM kinds
"""  # noqa: S608 - constants of ours


async def oldest_pending_s(conn: Connection) -> float:
    """How long the oldest owed notification has been due, in business seconds; 0 when none is."""
    found: float = await conn.fetchval(OLDEST_PENDING)
    return found


OWED_KINDS = f"""
    {_KINDS}
    SELECT kind_name FROM kinds
"""  # noqa: S608 - constants of ours


async def owed_kinds(conn: Connection) -> list[str]:
    """The names of all kinds of which something waits for a worker."""
    return [row["kind_name"] for row in await conn.fetch(OWED_KINDS)]


SETTLED_CAP = 100_000

SETTLED = """
    SELECT (SELECT count(*) FROM (SELECT FROM settlements WHERE state = 'sent' LIMIT 100000) AS s)     AS sent,
           (SELECT count(*) FROM (SELECT FROM settlements WHERE state = 'canceled' LIMIT 100000) AS s) AS canceled,
           (SELECT count(*) FROM (SELECT FROM settlements WHERE state = 'skipped' LIMIT 100000) AS s)  AS skipped,
           (SELECT count(*) FROM (SELECT FROM settlements WHERE state = 'failed' LIMIT 100000) AS s)   AS failed
"""


async def settled(conn: Connection) -> dict[str, int]:
    """State → how many ended in it; counting stops at SETTLED_CAP."""
    return dict(await conn.fetchrow(SETTLED))
