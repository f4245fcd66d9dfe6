"""The ledger's tables and the statements that fill them; each runs inside the caller's transaction."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from providers.mock import catalog
from providers.mock.records import AttemptRecord, MessageRecord, pack

SCHEMA = """
    CREATE TABLE IF NOT EXISTS keys (
        key TEXT PRIMARY KEY, fingerprint TEXT NOT NULL, message_ids TEXT NOT NULL, accepted_at REAL NOT NULL
    ) WITHOUT ROWID;

    CREATE TABLE IF NOT EXISTS messages (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,  -- never reused: a cursor outlives an emptied inbox
        id TEXT NOT NULL UNIQUE, key TEXT, sender TEXT NOT NULL, recipients TEXT NOT NULL,
        subject TEXT NOT NULL, html TEXT, text TEXT, headers TEXT NOT NULL, body TEXT NOT NULL,
        worker TEXT, generation INTEGER, user TEXT, kind TEXT,
        created_at TEXT NOT NULL, transport TEXT NOT NULL
    );

    -- a table of its own: lists of mails do not read megabytes
    CREATE TABLE IF NOT EXISTS sources (message_id TEXT PRIMARY KEY, source BLOB NOT NULL);

    CREATE TABLE IF NOT EXISTS attempts (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        key TEXT, worker TEXT, generation INTEGER, user TEXT, kind TEXT, recipients TEXT NOT NULL,
        time TEXT NOT NULL, verdict TEXT NOT NULL, status INTEGER, message_ids TEXT NOT NULL,
        answered INTEGER NOT NULL, members TEXT NOT NULL DEFAULT '[]'
    );
    CREATE INDEX IF NOT EXISTS attempts_key ON attempts (key);
    CREATE INDEX IF NOT EXISTS attempts_refused ON attempts (seq) WHERE verdict <> 'accepted';
"""


@dataclass(frozen=True, slots=True)
class KeyRecord:
    """A key accepted earlier and still remembered."""

    fingerprint: str
    message_ids: tuple[str, ...]


FIND_KEY = "SELECT fingerprint, message_ids FROM keys WHERE key = ? AND accepted_at > ?"


def find_key(connection: sqlite3.Connection, key: str, accepted_after: float) -> KeyRecord | None:
    """The key's acceptance unless it is older than `accepted_after` (seconds since the epoch)."""
    row = connection.execute(FIND_KEY, (key, accepted_after)).fetchone()
    return None if row is None else KeyRecord(row["fingerprint"], tuple(json.loads(row["message_ids"])))


REMEMBER_KEY = "INSERT OR REPLACE INTO keys (key, fingerprint, message_ids, accepted_at) VALUES (?, ?, ?, ?)"


def remember_key(
    connection: sqlite3.Connection, key: str, fingerprint: str, messages: Sequence[MessageRecord], now: float
) -> None:
    """Note the acceptance; an older one that has run out gives way."""
    ids = pack([message.id for message in messages])
    connection.execute(REMEMBER_KEY, (key, fingerprint, ids, now))


INSERT_MESSAGE = """
    INSERT INTO messages (id, key, sender, recipients, subject, html, text, headers, body,
                          worker, generation, user, kind, created_at, transport)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""


INSERT_SOURCE = "INSERT INTO sources (message_id, source) VALUES (?, ?)"


def insert_message(connection: sqlite3.Connection, message: MessageRecord) -> None:
    """Put one mail into the inbox."""
    m, caller = message, message.caller
    content = (
        m.id,
        m.key,
        m.sender,
        pack(m.to),
        m.subject,
        m.html,
        m.text,
        pack(dict(m.headers)),
        pack(dict(m.body)),
    )
    who = (caller.worker, caller.generation, caller.user, caller.kind)
    seq = connection.execute(INSERT_MESSAGE, (*content, *who, m.created_at, m.transport)).lastrowid
    catalog.add(connection, m, seq or 0)
    if m.source is not None:
        connection.execute(INSERT_SOURCE, (m.id, m.source))


FIND_SOURCE = "SELECT source FROM sources WHERE message_id = ?"


def find_source(connection: sqlite3.Connection, message_id: str) -> bytes | None:
    """The mail as received, if it came as bytes."""
    row = connection.execute(FIND_SOURCE, (message_id,)).fetchone()
    return None if row is None else bytes(row["source"])


def delete_messages(connection: sqlite3.Connection) -> int:
    """Throw all mails away; returns how many."""
    connection.execute("DELETE FROM sources")
    catalog.clear(connection)
    return connection.execute("DELETE FROM messages").rowcount


INSERT_ATTEMPT = """
    INSERT INTO attempts (key, worker, generation, user, kind,
                          recipients, time, verdict, status, message_ids, answered, members)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""


def insert_attempt(connection: sqlite3.Connection, attempt: AttemptRecord) -> int:
    """Write down one call; returns its number."""
    a, caller = attempt, attempt.caller
    if a.verdict != "accepted":
        catalog.add_refused(connection)
    who = (caller.worker, caller.generation, caller.user, caller.kind)
    members = pack([(member.user, member.kind, member.generation) for member in a.members])
    what = (pack(a.to), a.time, a.verdict, a.status, pack(a.message_ids), a.answered, members)
    return connection.execute(INSERT_ATTEMPT, (a.key, *who, *what)).lastrowid or 0
