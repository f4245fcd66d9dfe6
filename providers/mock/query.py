"""The search language of the inbox: what a query may say, and the SQL it means; pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

QUERY_CHARS_MAX = 1_000
FIELDS = ("from", "to", "subject", "kind", "user", "key", "before", "after")
TERM = re.compile(rf'(?:({"|".join(FIELDS)}):)?("(?:[^"]|"")*"?|\S+)?\s*', re.IGNORECASE)

QUOTED = re.compile(r'"(?:[^"]|"")*"')


class QueryInvalid(ValueError):
    """A query that cannot be read; the text says what to write instead."""


@dataclass(frozen=True, slots=True)
class Condition:
    """One term as SQL, with its values."""

    sql: str
    values: tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Query:
    """All of it must hold: `lines` are asked of the table of that name, `words` each have to be in the words."""

    lines: tuple[Condition, ...] = ()
    words: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.lines or self.words)


def parse(text: str) -> Query:
    """Read a query; raises QueryInvalid.

    Terms are parted by white space and must all match; quotes hold words together, and in them "" is one quote. Case
    does not count, except in
    `user:` and `key:`, which match exactly, and `kind:`, which matches a kind exactly or by its name before the @.
    `from:` and `to:` match the beginning of an address, of its domain or of a word in the name, or a whole @domain;
    `subject:` matches anywhere in the subject, and a term without a field anywhere in addresses, subject, user, kind,
    key and body. `after:` takes in the moment it names, `before:` ends there; UTC unless the instant says otherwise.
    """
    if len(text) > QUERY_CHARS_MAX:
        raise QueryInvalid(f"A search has at most {QUERY_CHARS_MAX} characters.")
    lines: list[Condition] = []
    words: list[str] = []
    position, text = 0, text.strip()
    while position < len(text):
        found = TERM.match(text, position)
        assert found is not None  # every part of it may be empty
        position = found.end()
        field, value = (found[1] or "").lower(), _value(found[1], found[2])
        if field:
            lines.append(CONDITIONS[field](value))
        elif value:
            words.append(value.casefold())
    return Query(tuple(lines), tuple(words))


def quoted(value: str) -> str:
    """Put a value so that a query finds just that."""
    return '"' + value.replace('"', '""') + '"'


def _value(field: str | None, term: str | None) -> str:
    term = term or ""
    if term.startswith('"'):
        if not QUOTED.fullmatch(term):
            raise QueryInvalid(f"The quote that begins with {term[:40]} is not closed.")
        term = term[1:-1].replace('""', '"')
    if field and not term.strip():
        raise QueryInvalid(f"{field}: needs a value right behind the colon, for example {EXAMPLES[field.lower()]}.")
    return term


EXAMPLES = {
    "from": "from:hello@example.com",
    "to": "to:ada",
    "subject": 'subject:"welcome, ada"',
    "kind": "kind:onboarding",
    "user": "user:u_1",
    "key": "key:n_0123",
    "before": "before:2026-11-29",
    "after": "after:2026-11-29T10:00:00Z",
}


def _equals(column: str) -> Callable[[str], Condition]:
    return lambda value: Condition(f"{column} = ?", (value,))


def _kind(value: str) -> Condition:
    return Condition("(kind = ? OR substr(kind, 1, ?) = ?)", (value, len(value) + 1, f"{value}@"))


def _address(column: str) -> Callable[[str], Condition]:
    def condition(value: str) -> Condition:
        folded = value.casefold()
        # See catalog: each word of the column has a space on either side.
        return Condition(f"instr({column}, ?) > 0", (f"{folded} " if folded.startswith("@") else f" {folded}",))

    return condition


def _subject(value: str) -> Condition:
    return Condition("instr(folded_subject, ?) > 0", (value.casefold(),))


def _instant(field: str, comparison: str) -> Callable[[str], Condition]:
    def condition(value: str) -> Condition:
        return Condition(f"created_at {comparison} ?", (_moment(field, value),))

    return condition


def _moment(field: str, value: str) -> str:
    """The instant in the form records.timestamp() writes, so that the two compare as text."""
    try:
        moment = datetime.fromisoformat(value.upper())
        moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        raise QueryInvalid(
            f"{field}: takes a date such as {field}:2026-11-29 or an instant such as {field}:2026-11-29T10:00:00Z "
            f"(UTC); “{value[:40]}” is neither."
        ) from None
    return moment.isoformat(timespec="microseconds")


CONDITIONS: dict[str, Callable[[str], Condition]] = {
    "from": _address("folded_from"),
    "to": _address("folded_to"),
    "subject": _subject,
    "kind": _kind,
    "user": _equals("user"),
    "key": _equals("key"),
    "before": _instant("before", "<"),
    "after": _instant("after", ">="),
}
