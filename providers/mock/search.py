"""Reading the ledger: mails by query, calls by key, doubles; newest first, page by page."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from providers.mock.query import Condition, Query
from providers.mock.records import AttemptRecord, Caller, MessageLine, MessageRecord, pack

T = TypeVar("T")
Listed = TypeVar("Listed", MessageLine, AttemptRecord)


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """A stretch of a list; `total` counts the whole list, `next` is where the following page starts."""

    items: list[T]
    total: int
    next: str | None


def message(connection: sqlite3.Connection, message_id: str) -> MessageRecord | None:
    """One mail."""
    row = connection.execute("SELECT * FROM messages WHERE id = ?", (message_id,)).fetchone()
    return None if row is None else as_message(row)


NEWEST = "SELECT * FROM lines WHERE seq < ? ORDER BY seq DESC LIMIT ?"
NO_END = 2**62
# One row for everything: a row a mail would pass the interpreter's lock to and fro fifty thousand times.
COUNT_AND_PICK = """
    SELECT (SELECT count(*) FROM found),
           (SELECT json_group_array(seq) FROM (SELECT seq FROM found WHERE seq < ? ORDER BY seq DESC LIMIT ?))
"""


def messages(connection: sqlite3.Connection, query: Query, limit: int, after: int | None) -> Page[MessageLine]:
    """The mails that match `query`."""
    before = NO_END if after is None else after
    if not query:
        [total] = connection.execute("SELECT n FROM counts WHERE name = 'inbox'").fetchone()
        rows = connection.execute(NEWEST, (before, limit + 1)).fetchall()
        return _page([_line(row) for row in rows], total, limit)
    found, values = _found(query)
    total, seqs = connection.execute(found + COUNT_AND_PICK, (*values, before, limit + 1)).fetchone()
    return _page(lines(connection, json.loads(seqs)), total, limit)


def _found(query: Query) -> tuple[str, tuple[object, ...]]:
    """The table `found` of all that match, as the beginning of a statement, and its values.

    The narrow table first, and the words only of what is left; either is left out where nothing asks for it.
    """
    conditions = (*query.lines, *(Condition("instr(folded, ?) > 0", (word,)) for word in query.words))
    tables = (
        "lines CROSS JOIN words USING (seq)" if query.lines and query.words else "lines" if query.lines else "words"
    )
    # Only conditions of query.py are put together here; every value is bound.
    where = " AND ".join(condition.sql for condition in conditions)
    values = tuple(value for condition in conditions for value in condition.values)
    return f"WITH found (seq) AS (SELECT seq FROM {tables} WHERE {where})", values  # noqa: S608 - names and conditions of ours


def lines(connection: sqlite3.Connection, seqs: Sequence[int]) -> list[MessageLine]:
    """The mails with these numbers, newest first."""
    statement = "SELECT * FROM lines WHERE seq IN (SELECT value FROM json_each(?)) ORDER BY seq DESC"
    return [_line(row) for row in connection.execute(statement, (pack(seqs),))]


BESIDE = "SELECT (SELECT min(seq) FROM found WHERE seq > ?), (SELECT max(seq) FROM found WHERE seq < ?)"
BESIDE_IN_ALL = "SELECT (SELECT min(seq) FROM lines WHERE seq > ?), (SELECT max(seq) FROM lines WHERE seq < ?)"


def neighbours(connection: sqlite3.Connection, query: Query, seq: int) -> tuple[str | None, str | None]:
    """The ids of the mails before and behind this one in the list: the next newer and the next older."""
    if query:
        found, values = _found(query)
        newer, older = connection.execute(found + BESIDE, (*values, seq, seq)).fetchone()
    else:
        newer, older = connection.execute(BESIDE_IN_ALL, (seq, seq)).fetchone()
    ids = {line.seq: line.id for line in lines(connection, [other for other in (newer, older) if other is not None])}
    return ids.get(newer), ids.get(older)


def attempts(connection: sqlite3.Connection, key: str | None, limit: int, after: int | None) -> Page[AttemptRecord]:
    """The calls, of one key or of all."""
    where, values = ("true", []) if key is None else ("key = ?", [key])
    [total] = connection.execute(f"SELECT count(*) FROM attempts WHERE {where}", values).fetchone()  # noqa: S608 - ours
    statement = f"SELECT * FROM attempts WHERE {where} AND seq < ? ORDER BY seq DESC LIMIT ?"  # noqa: S608 - ours; every value is bound
    rows = connection.execute(statement, (*values, NO_END if after is None else after, limit + 1))
    return _page([_attempt(row) for row in rows], total, limit)


REFUSED = """
    SELECT * FROM attempts INDEXED BY attempts_refused
     WHERE verdict <> 'accepted' AND seq < ? ORDER BY seq DESC LIMIT ?
"""


def refused(connection: sqlite3.Connection, limit: int, after: int | None) -> Page[AttemptRecord]:
    """The calls that brought no mail into the inbox."""
    [total] = connection.execute("SELECT n FROM counts WHERE name = 'refused'").fetchone()
    rows = connection.execute(REFUSED, (NO_END if after is None else after, limit + 1))
    return _page([_attempt(row) for row in rows], total, limit)


REPEATS = """
    SELECT attempts.key, CASE WHEN verdict IN ('dropped', 'in_flight') THEN NULL ELSE named.value END AS message_id,
           count(DISTINCT seq) AS n
      FROM attempts LEFT JOIN json_each(message_ids) AS named
     WHERE attempts.key IN (SELECT value FROM json_each(?))
       AND verdict IN ('duplicate', 'replayed', 'dropped', 'body_mismatch', 'in_flight')
     GROUP BY 1, 2
"""


def repeats(connection: sqlite3.Connection, mails: Sequence[MessageLine]) -> dict[str, int]:
    """By the mail's id, how many further calls under its key brought no second mail; only those that had some.

    What names no earlier mail (the first call was still running, or the answer was made up) counts for the key.
    """
    keys = [mail.key for mail in mails if mail.key is not None]
    counted = {(row["key"], row["message_id"]): row["n"] for row in connection.execute(REPEATS, (pack(keys),))}
    by_mail = {mail.id: counted.get((mail.key, mail.id), 0) + counted.get((mail.key, None), 0) for mail in mails}
    return {message_id: n for message_id, n in by_mail.items() if n}


@dataclass(frozen=True, slots=True)
class Double:
    """A user and a kind that share several mails; `same_key`: two of them came under one key."""

    user: str
    kind: str
    same_key: bool
    mails: list[MessageLine]


DOUBLES = "SELECT * FROM doubles WHERE seq < ? ORDER BY seq DESC LIMIT ?"
OF_PAIR = "SELECT * FROM lines WHERE user = ? AND kind = ? ORDER BY seq LIMIT ?"


def doubles(
    connection: sqlite3.Connection, limit: int, after: int | None = None, mails_max: int = 0
) -> tuple[Page[Double], bool]:
    """The users and kinds with more than one mail, the latest first; and whether one key was behind any of them."""
    total, same_key = connection.execute("SELECT count(*), ifnull(max(same_key), 0) FROM doubles").fetchone()
    rows = connection.execute(DOUBLES, (NO_END if after is None else after, limit + 1)).fetchall() if total else []
    items = []
    for row in rows[:limit]:
        mails = connection.execute(OF_PAIR, (row["user"], row["kind"], mails_max)) if mails_max else ()
        items.append(Double(row["user"], row["kind"], bool(row["same_key"]), [_line(mail) for mail in mails]))
    following = str(rows[limit - 1]["seq"]) if len(rows) > limit else None
    return Page(items, total, following), bool(same_key)


def counts(connection: sqlite3.Connection) -> dict[str, int]:
    """`inbox` mails there are, `accepted` mails and `refused` calls since the data directory was made."""
    return {row["name"]: row["n"] for row in connection.execute("SELECT name, n FROM counts")}


def as_message(row: sqlite3.Row) -> MessageRecord:
    """A row of `messages`."""
    return MessageRecord(
        id=row["id"],
        key=row["key"],
        sender=row["sender"],
        to=tuple(json.loads(row["recipients"])),
        subject=row["subject"],
        html=row["html"],
        text=row["text"],
        headers=json.loads(row["headers"]),
        body=json.loads(row["body"]),
        caller=_caller(row),
        created_at=row["created_at"],
        transport=row["transport"],
        seq=row["seq"],
    )


def _page(items: list[Listed], total: int, limit: int) -> Page[Listed]:
    """`items` are one more than the page holds where another page follows."""
    following = str(items[limit - 1].seq) if len(items) > limit else None
    return Page(items[:limit], total, following)


def _line(row: sqlite3.Row) -> MessageLine:
    return MessageLine(
        id=row["id"],
        key=row["key"],
        sender=row["sender"],
        to=tuple(json.loads(row["recipients"])),
        subject=row["subject"],
        caller=_caller(row),
        created_at=row["created_at"],
        transport=row["transport"],
        snippet=row["snippet"],
        seq=row["seq"],
    )


def _attempt(row: sqlite3.Row) -> AttemptRecord:
    return AttemptRecord(
        key=row["key"],
        caller=_caller(row),
        to=tuple(json.loads(row["recipients"])),
        time=row["time"],
        verdict=row["verdict"],
        status=row["status"],
        message_ids=tuple(json.loads(row["message_ids"])),
        answered=bool(row["answered"]),
        members=tuple(
            Caller(row["worker"], generation, user, kind) for user, kind, generation in json.loads(row["members"])
        ),
        seq=row["seq"],
    )


def _caller(row: sqlite3.Row) -> Caller:
    return Caller(row["worker"], row["generation"], row["user"], row["kind"])
