"""What lists, searches and the banner read of the mails: a narrow row and the words of each, doubles and counts."""

from __future__ import annotations

import sqlite3

from providers.mock.plain import blocks_of_html, one_line
from providers.mock.records import MessageRecord, pack
from providers.mock.wire import address_of

WORDS_CHARS_MAX = 16_384
SNIPPET_CHARS_MAX = 140
BLOCKS_COMPARED_MAX = 1_000
HTML_CHARS_MAX = 16 * WORDS_CHARS_MAX  # beyond that nothing is looked at, whatever share of it is markup

SCHEMA = """
    -- Apart from `messages`, so that a look at all of them reads a tenth of what is stored.
    CREATE TABLE IF NOT EXISTS lines (
        seq INTEGER PRIMARY KEY, id TEXT NOT NULL, key TEXT, sender TEXT NOT NULL, recipients TEXT NOT NULL,
        subject TEXT NOT NULL, worker TEXT, generation INTEGER, user TEXT, kind TEXT,
        created_at TEXT NOT NULL, transport TEXT NOT NULL, snippet TEXT NOT NULL,
        folded_from TEXT NOT NULL,    -- ' address domain name ' without case: what `from:` searches
        folded_to TEXT NOT NULL,      -- the same of every recipient
        folded_subject TEXT NOT NULL
    );
    CREATE INDEX IF NOT EXISTS lines_key ON lines (key);
    CREATE INDEX IF NOT EXISTS lines_user_kind ON lines (user, kind);

    CREATE TABLE IF NOT EXISTS words (
        seq INTEGER PRIMARY KEY,
        folded TEXT NOT NULL  -- addresses, subject, user, kind, key and body without case: what a bare word searches
    );

    CREATE TABLE IF NOT EXISTS doubles (
        seq INTEGER PRIMARY KEY AUTOINCREMENT, user TEXT NOT NULL, kind TEXT NOT NULL,
        same_key INTEGER NOT NULL,  -- 1 when two of the mails came under one key
        UNIQUE (user, kind)
    );

    CREATE TABLE IF NOT EXISTS counts (name TEXT PRIMARY KEY, n INTEGER NOT NULL) WITHOUT ROWID;
    INSERT OR IGNORE INTO counts (name, n) VALUES ('inbox', 0), ('accepted', 0), ('refused', 0);
"""

INSERT_LINE = """
    INSERT INTO lines (seq, id, key, sender, recipients, subject, worker, generation, user, kind,
                       created_at, transport, snippet, folded_from, folded_to, folded_subject)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
INSERT_WORDS = "INSERT INTO words (seq, folded) VALUES (?, ?)"
COUNT_MAIL = "UPDATE counts SET n = n + 1 WHERE name IN ('inbox', 'accepted')"


def add(connection: sqlite3.Connection, m: MessageRecord, seq: int) -> None:
    """Make a mail known under its number, in the transaction that accepts it."""
    caller = m.caller
    text = _text(m)
    who = (caller.worker, caller.generation, caller.user, caller.kind)
    folded = (_folded_addresses((m.sender,)), _folded_addresses(m.to), m.subject.casefold())
    _mark_double(connection, m)
    connection.execute(
        INSERT_LINE,
        (
            *(seq, m.id, m.key, m.sender, pack(m.to), m.subject, *who),
            *(m.created_at, m.transport, text[:SNIPPET_CHARS_MAX], *folded),
        ),
    )
    words = " ".join((m.sender, *m.to, m.subject, caller.user or "", caller.kind or "", m.key or "", text))
    connection.execute(INSERT_WORDS, (seq, words.casefold()))
    connection.execute(COUNT_MAIL)


COUNT_REFUSED = "UPDATE counts SET n = n + 1 WHERE name = 'refused'"


def add_refused(connection: sqlite3.Connection) -> None:
    """Count a call that brought no mail."""
    connection.execute(COUNT_REFUSED)


def clear(connection: sqlite3.Connection) -> None:
    """Forget the mails; what was accepted and refused in all stays counted."""
    for table in ("lines", "words", "doubles"):
        connection.execute(f"DELETE FROM {table}")  # noqa: S608 - names of this module
    connection.execute("UPDATE counts SET n = 0 WHERE name = 'inbox'")


FIND_SAME = "SELECT 1 FROM lines WHERE user = ? AND kind = ? LIMIT 1"
FIND_SAME_KEY = "SELECT 1 FROM lines INDEXED BY lines_key WHERE key = ? AND user = ? AND kind = ? LIMIT 1"
MARK_DOUBLE = """
    INSERT INTO doubles (user, kind, same_key) VALUES (?, ?, ?)
        ON CONFLICT (user, kind) DO UPDATE SET same_key = max(same_key, excluded.same_key)
"""


def _mark_double(connection: sqlite3.Connection, m: MessageRecord) -> None:
    user, kind = m.caller.user, m.caller.kind
    if user is None or kind is None or connection.execute(FIND_SAME, (user, kind)).fetchone() is None:
        return
    same_key = connection.execute(FIND_SAME_KEY, (m.key, user, kind)).fetchone() is not None
    connection.execute(MARK_DOUBLE, (user, kind, same_key))


def _text(m: MessageRecord) -> str:
    """What a person can read in the mail: the text part, and those blocks of the HTML part that say something else."""
    text = one_line((m.text or "")[: 2 * WORDS_CHARS_MAX])
    blocks = blocks_of_html((m.html or "")[:HTML_CHARS_MAX])
    others = [block for block in blocks[:BLOCKS_COMPARED_MAX] if block not in text] + blocks[BLOCKS_COMPARED_MAX:]
    return " ".join((text, *others)).strip()[:WORDS_CHARS_MAX]


def _folded_addresses(mailboxes: tuple[str, ...]) -> str:
    """' address domain name ' of each: whatever begins a word in here can be searched for."""
    parts = []
    for mailbox in mailboxes:
        address = address_of(mailbox)
        name = mailbox.rpartition("<")[0].replace('"', " ")
        parts += [address, address.rpartition("@")[2], *name.split()]
    return f" {' '.join(parts)} ".casefold()
