"""What happened to a user, in order: the database's real clock first, and causes before effects where it ties."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

What = Literal["event", "operator", "decision", "cancel", "claim", "doubt", "attempt", "settled"]

# What leads to what, for entries of one instant.
CAUSAL_ORDER: tuple[What, ...] = ("event", "operator", "decision", "cancel", "claim", "doubt", "attempt", "settled")


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing that happened, at real time `at`; `fields` depend on what it was."""

    at: datetime
    what: What
    fields: Mapping[str, Any]


def in_order(entries: Iterable[Entry]) -> list[Entry]:
    """The oldest first. The sort is stable, so equal entries stay as they were found."""
    return sorted(entries, key=lambda entry: (entry.at, CAUSAL_ORDER.index(entry.what)))
