"""What the mock keeps: one record per mail taken, one per call made; and their shape in JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

Json = dict[str, object]


def timestamp() -> str:
    """The mock's clock, as it is written down: UTC, ISO 8601 with microseconds."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


@dataclass(frozen=True, slots=True)
class Caller:
    """Who called, as the notifier's own headers tell; any other client leaves all of it empty."""

    worker: str | None = None
    generation: int | None = None
    user: str | None = None
    kind: str | None = None


@dataclass(frozen=True, slots=True)
class MessageRecord:
    """One mail taken; `body` is the request's JSON, whole (empty over SMTP).

    `source` is a mail that came as bytes, exactly; only for the way in: afterwards tables.find_source() has it.
    """

    id: str
    key: str | None
    sender: str
    to: tuple[str, ...]
    subject: str
    html: str | None
    text: str | None
    headers: Mapping[str, str]
    body: Mapping[str, object]
    caller: Caller
    created_at: str
    transport: str = "http"
    source: bytes | None = None
    seq: int = 0

    def summary(self) -> Json:
        """The line in a list."""
        return _summary(self)

    def detail(self) -> Json:
        """Everything."""
        return self.summary() | {"html": self.html, "text": self.text, "headers": dict(self.headers)}

    def as_resend(self) -> Json:
        """The answer of GET /emails/{id}."""
        body = self.body
        return {
            "object": "email",
            "id": self.id,
            "from": self.sender,
            "to": list(self.to),
            "cc": as_list(body.get("cc")),
            "bcc": as_list(body.get("bcc")),
            "reply_to": as_list(body.get("reply_to")),
            "subject": self.subject,
            "html": self.html,
            "text": self.text,
            "headers": dict(self.headers),
            "tags": body.get("tags") or [],
            "created_at": self.created_at,
            "scheduled_at": body.get("scheduled_at"),
            "last_event": "delivered",
        }


@dataclass(frozen=True, slots=True)
class MessageLine:
    """What a list shows of a mail; `snippet` is how its text begins."""

    id: str
    key: str | None
    sender: str
    to: tuple[str, ...]
    subject: str
    caller: Caller
    created_at: str
    transport: str
    snippet: str
    seq: int

    def summary(self) -> Json:
        """The line in a list."""
        return _summary(self) | {"snippet": self.snippet}


@dataclass(frozen=True, slots=True)
class AttemptRecord:
    """One call, whatever came of it. `status` is None and `answered` False where the connection was cut.

    `members`: for a batch, whose each of its mails is.
    """

    key: str | None
    caller: Caller
    to: tuple[str, ...]
    time: str
    verdict: str
    status: int | None
    message_ids: tuple[str, ...] = ()
    answered: bool = True
    members: tuple[Caller, ...] = ()
    seq: int = 0

    def as_json(self) -> Json:
        """The line in a list."""
        return {
            "id": self.seq,
            "key": self.key,
            "worker": self.caller.worker,
            "generation": self.caller.generation,
            "user": self.caller.user,
            "kind": self.caller.kind,
            "to": list(self.to),
            "time": self.time,
            "verdict": self.verdict,
            "status": self.status,
            "message_id": self.message_ids[0] if self.message_ids else None,
            "message_ids": list(self.message_ids),
            "answered": self.answered,
            "members": [{"user": m.user, "kind": m.kind, "generation": m.generation} for m in self.members],
        }


def _summary(mail: MessageRecord | MessageLine) -> Json:
    return {
        "id": mail.id,
        "key": mail.key,
        "from": mail.sender,
        "to": list(mail.to),
        "subject": mail.subject,
        "user": mail.caller.user,
        "kind": mail.caller.kind,
        "worker": mail.caller.worker,
        "generation": mail.caller.generation,
        "created_at": mail.created_at,
        "transport": mail.transport,
    }


def as_list(value: object) -> list[object]:
    """Resend's fields that are one address or several, as several."""
    if value is None:
        return []
    return list(value) if isinstance(value, list) else [value]


def pack(value: object) -> str:
    """A value as one line of JSON for a column."""
    return _encode(value)


_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode  # dumps() would make one each time
