"""An event as the rest of the house knows it, and the fingerprint that tells a repeat from a conflict."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

API = "api"
LOGIN_WEBHOOK = "login_webhook"


@dataclass(frozen=True, slots=True)
class Profile:
    """What an event says of its user; None where it says nothing."""

    email: str | None = None
    name: str | None = None
    timezone: str | None = None
    locale: str | None = None
    attributes: Mapping[str, Any] | None = None

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to store."""
        return (self.email, self.name, self.timezone, self.locale, self.attributes) == (None,) * 5


@dataclass(frozen=True, slots=True)
class Event:
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
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(canonical.encode()).digest()
