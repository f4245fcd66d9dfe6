"""An event as the rest of the house knows it, and the fingerprint that tells a repeat from a conflict."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

API = "api"
LOGIN_WEBHOOK = "login_webhook"


class Profile(NamedTuple):
    """What an event says of its user; None where it says nothing."""

    email: str | None = None
    name: str | None = None
    timezone: str | None = None
    locale: str | None = None
    attributes: Mapping[str, Any] | None = None

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to store."""
        return self == (None,) * 5


class Event(NamedTuple):
    """One thing that happened. `occurred_at` is None where the sender leaves it to the database's clock."""

    source: str
    id: str
    type: str
    user_id: str
    occurred_at: datetime | None
    fingerprint: bytes
    profile: Profile
    data: Mapping[str, Any]

    @property
    def ref(self) -> str:
        """How other rows name this event."""
        return f"{self.source}/{self.id}"


def fingerprint(content: Mapping[str, Any]) -> bytes:
    """SHA-256 of the parsed content; the order of keys and white space do not count."""
    return digest(canonical(content))


def digest(text: str) -> bytes:
    """Give the fingerprint of content in its canonical form."""
    return hashlib.sha256(text.encode()).digest()


# One text for one content, in ASCII. Raises ValueError for an endless number, RecursionError when nested too deep.
canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode
