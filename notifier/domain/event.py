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


# The encoder below JSONEncoder, made once: for a document as small as an event, making it takes as long as its work.
_written = json.encoder.c_make_encoder(  # type: ignore[attr-defined]  # there, and not in the stubs
    None, None, json.encoder.encode_basestring_ascii, None, ":", ",", True, False, False
)


def canonical(content: Mapping[str, Any]) -> str:
    """One text for one content, in ASCII, keys in order.

    Raises ValueError for an endless number, RecursionError when nested too deep.
    """
    return "".join(_written(content, 0))
