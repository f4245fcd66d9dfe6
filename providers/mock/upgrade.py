"""Bringing a ledger's file to the tables of today, whichever version of this program made it."""

from __future__ import annotations

import sqlite3

from providers.mock import catalog, search, tables

VERSION = 2
COLUMNS = (
    "seq, id, key, sender, recipients, subject, html, text, headers, body, worker, generation, user, kind, created_at"
)


def prepare(connection: sqlite3.Connection) -> None:
    """Make the tables, or carry older ones over; all or nothing. Raises sqlite3.Error, also for a newer file."""
    [version] = connection.execute("PRAGMA user_version").fetchone()
    if version > VERSION:
        raise sqlite3.DatabaseError("it was written by a newer version of the mock provider")
    if version == VERSION:
        return
    old = connection.execute("SELECT 1 FROM pragma_table_info('messages') WHERE name = 'folded'").fetchone()
    without_members = connection.execute(HAS_ATTEMPTS).fetchone() and not connection.execute(HAS_MEMBERS).fetchone()
    from_1 = ADD_MEMBERS if without_members else ""
    connection.executescript(f"BEGIN IMMEDIATE; {FROM_0 if old else ''} {from_1} {tables.SCHEMA} {catalog.SCHEMA}")
    if old:
        _carry_over(connection)
    connection.execute(f"PRAGMA user_version = {VERSION}")
    connection.execute("COMMIT")


HAS_ATTEMPTS = "SELECT 1 FROM sqlite_schema WHERE name = 'attempts'"
HAS_MEMBERS = "SELECT 1 FROM pragma_table_info('attempts') WHERE name = 'members'"
ADD_MEMBERS = "ALTER TABLE attempts ADD COLUMN members TEXT NOT NULL DEFAULT '[]';"
FROM_0 = """
    ALTER TABLE messages RENAME TO messages_0;
    DROP INDEX messages_key;
    DROP INDEX messages_user;
"""
COPY_MESSAGES = f"INSERT INTO messages ({COLUMNS}, transport) SELECT {COLUMNS}, transport FROM messages_0"  # noqa: S608 - ours
KEEP_NUMBERING = """
    INSERT OR REPLACE INTO sqlite_sequence (rowid, name, seq)
    SELECT (SELECT rowid FROM sqlite_sequence WHERE name = 'messages'), 'messages', seq
      FROM sqlite_sequence WHERE name = 'messages_0'
"""
COUNT_CALLS = """
    UPDATE counts SET n = CASE name
        WHEN 'accepted' THEN (SELECT ifnull(sum(json_array_length(message_ids)), 0)
                                FROM attempts WHERE verdict = 'accepted')
        WHEN 'refused' THEN (SELECT count(*) FROM attempts WHERE verdict <> 'accepted')
        ELSE n END
"""


def _carry_over(connection: sqlite3.Connection) -> None:
    connection.execute(COPY_MESSAGES)
    connection.execute(KEEP_NUMBERING)
    connection.execute("DROP TABLE messages_0")
    for row in connection.execute("SELECT * FROM messages ORDER BY seq"):
        message = search.as_message(row)
        catalog.add(connection, message, message.seq)
    connection.execute(COUNT_CALLS)
