"""Reading the ledger: mails by words, calls by key, newest first, page by page."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from providers.mock.records import AttemptRecord, Caller, MessageRecord

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """A stretch of a list; `total` counts the whole list, `next` is where the following page starts."""

    items: list[T]
    total: int
    next: str | None


def message(connection: sqlite3.Connection, message_id: str) -> MessageRecord | None:
    """One mail."""
    row = connection.execute("SELECT * FROM messages WHERE id = ?", (message_id,)).fetchone()
    return None if row is None else _message(row)


def messages(connection: sqlite3.Connection, query: str, limit: int, after: int | None) -> Page[MessageRecord]:
    """The mails that match every term of `query`."""
    where, values = conditions(query)
    return _page(connection, "messages", where, values, limit, after, _message)


def attempts(
    connection: sqlite3.Connection, key: str | None, limit: int, after: int | None, *, refused: bool = False
) -> Page[AttemptRecord]:
    """The calls, of one key or of all; `refused`: only those that brought no mail into the inbox."""
    where: list[str] = []
    values: list[object] = []
    if key is not None:
        where.append("key = ?")
        values.append(key)
    if refused:
        where.append("verdict <> 'accepted'")
    return _page(connection, "attempts", where, values, limit, after, _attempt)


TERM = re.compile(r'(?:(to|user|kind|key|subject):)?("[^"]*"|\S+)')


def conditions(query: str) -> tuple[list[str], list[object]]:
    """Turn a search into SQL; every term must match, quotes hold words together.

    `user:`, `key:` and `kind:` match exactly (a kind also by its name alone), `to:` the start of an address
    or a whole @domain, `subject:` and words without a prefix anywhere.
    """
    where: list[str] = []
    values: list[object] = []
    for field, quoted in TERM.findall(query):
        word = quoted.strip('"')
        if not word:
            continue
        match field:
            case "user" | "key":
                where.append(f"{field} = ?")
                values.append(word)
            case "kind":
                where.append("(kind = ? OR substr(kind, 1, length(?) + 1) = ? || '@')")
                values += [word] * 3
            case "to":
                # Closed by a space on the side that must end there, see messages.folded_to.
                where.append("instr(folded_to, ?) > 0")
                values.append(f"{word} ".casefold() if word.startswith("@") else f" {word}".casefold())
            case "subject":
                where.append("instr(lower(subject), lower(?)) > 0")
                values.append(word)
            case _:
                where.append("instr(folded, ?) > 0")
                values.append(word.casefold())
    return where, values


def _page(
    connection: sqlite3.Connection,
    table: str,
    where: list[str],
    values: list[object],
    limit: int,
    after: int | None,
    read: Callable[[sqlite3.Row], T],
) -> Page[T]:
    condition = " AND ".join(where) or "true"
    beyond = "" if after is None else " AND seq < ?"
    # Only names and conditions of this module are put together here; every value is bound.
    [total] = connection.execute(f"SELECT count(*) FROM {table} WHERE {condition}", values).fetchone()  # noqa: S608
    rows = connection.execute(
        f"SELECT * FROM {table} WHERE {condition}{beyond} ORDER BY seq DESC LIMIT ?",  # noqa: S608
        [*values, *([] if after is None else [after]), limit + 1],
    ).fetchall()
    more = len(rows) > limit
    rows = rows[:limit]
    return Page([read(row) for row in rows], total, str(rows[-1]["seq"]) if more and rows else None)


def _message(row: sqlite3.Row) -> MessageRecord:
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
        seq=row["seq"],
    )


def _caller(row: sqlite3.Row) -> Caller:
    return Caller(row["worker"], row["generation"], row["user"], row["kind"])
