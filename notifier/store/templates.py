"""Template texts by content: what a notification was frozen to can be rendered for ever."""

from __future__ import annotations

from collections.abc import Sequence

from notifier.domain.message import Template
from notifier.store.database import Connection

KEEP = """
    INSERT INTO templates (hash, name, sender, subject, html, body)
    SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[])
                  AS t (hash, name, sender, subject, html, body)
     ORDER BY hash
        ON CONFLICT (hash) DO NOTHING
"""


async def keep(conn: Connection, templates: Sequence[Template]) -> None:
    """Store what is new."""
    await conn.execute(
        KEEP,
        [t.hash for t in templates],
        [t.name for t in templates],
        [t.sender for t in templates],
        [t.subject for t in templates],
        [t.html for t in templates],
        [t.text for t in templates],
    )


KNOWN = "SELECT t.hash FROM templates t WHERE t.hash = ANY($1::text[])"


async def known(conn: Connection, hashes: Sequence[str]) -> set[str]:
    """Which of these some process has started with."""
    return {row["hash"] for row in await conn.fetch(KNOWN, list(hashes))}


FIND = "SELECT name, sender, subject, html, body FROM templates WHERE hash = $1"


async def find(conn: Connection, template_hash: str) -> Template | None:
    """The template of this content, if it was ever kept."""
    row = await conn.fetchrow(FIND, template_hash)
    return None if row is None else Template(row["name"], row["sender"], row["subject"], row["html"], row["body"])
