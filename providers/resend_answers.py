"""What an answer in Resend's dialect means: status, headers and body in, an outcome out; pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

import orjson

from providers.base import (
    Accepted,
    Ambiguous,
    BodyMismatch,
    ConfigError,
    Duplicate,
    Outcome,
    Rejected,
    RetryLater,
)

QUOTA_WAIT = timedelta(hours=1)  # a spent quota does not come back in seconds
WAIT_MAX = timedelta(days=1)  # beyond that a header is a mistake, not advice
REASON_CHARS_MAX = 64
ID_CHARS_MAX = 255


@dataclass(frozen=True, slots=True)
class Answer:
    """One HTTP answer: headers are asked for in lower case; `body` is None where it was cut off or unreadable."""

    status: int
    headers: Mapping[str, str]
    body: bytes | None


def classify(answer: Answer, now: datetime) -> Outcome:
    """Read an answer by status and error name together: 409 alone means three different things."""
    content = _content(answer.body)
    if answer.status == 200:
        message_id = _id(content.get("id"))
        return Ambiguous("unreadable_answer") if message_id is None else Accepted(message_id)
    name = _code(content.get("name"))
    wait = retry_after(answer.headers, now)
    match answer.status:
        case 409:
            return _conflict(name, content, wait)
        case 400 if name == "invalid_idempotency_key":
            return ConfigError(name)
        case 400 | 413 | 422:  # 413 concerns this one mail as 422 does
            return Rejected(name or f"http_{answer.status}")
        case 401 | 403:
            return ConfigError(name or f"http_{answer.status}")
        case 429:
            quota = QUOTA_WAIT if name.endswith("quota_exceeded") else timedelta(0)
            return RetryLater(name or "rate_limited", max(wait, quota))
        case 408:  # some proxy lost patience; how far the request had come by then it does not say
            return Ambiguous("http_408", wait)
        case status if status >= 500 or 200 < status < 300:
            return Ambiguous(f"http_{status}", wait)
        case status:
            return ConfigError(f"http_{status}", wait)


def classify_batch(answer: Answer, size: int, now: datetime) -> list[Outcome]:
    """Read the answer to a call for `size` mails: one outcome for each, all of one sort."""
    content = _content(answer.body)
    if answer.status == 200:
        data = content.get("data")
        items = data if isinstance(data, list) else []
        ids = [_id(item.get("id")) if isinstance(item, dict) else None for item in items]
        if len(ids) != size or None in ids:
            return [Ambiguous("unreadable_answer")] * size
        return [Accepted(message_id) for message_id in ids]
    outcome = classify(answer, now)
    if isinstance(outcome, Duplicate):
        known = content.get("original_ids")
        originals = known if isinstance(known, list) and len(known) == size else [None] * size
        return [Duplicate(_id(original)) for original in originals]
    return [outcome] * size


def _conflict(name: str, content: Mapping[str, object], wait: timedelta) -> Outcome:
    match name:
        case "duplicate_idempotency_key":
            return Duplicate(_id(content.get("original_id")))
        case "invalid_idempotent_request":
            return BodyMismatch(name)
        case "concurrent_idempotent_requests":
            return Ambiguous(name, wait, counted=False)
        case _:
            return Ambiguous("http_409", wait)


def retry_after(headers: Mapping[str, str], now: datetime) -> timedelta:
    """The wait the answer asks for, as seconds or as a date; zero when it asks for none or cannot be read.

    A date is measured against the answer's own Date where there is one: whoever wrote both used one clock.
    """
    value = headers.get("retry-after", "").strip()
    if not value:
        return timedelta(0)
    if value.isascii() and value.isdigit():
        return timedelta(seconds=min(int(value[:9]), WAIT_MAX.total_seconds()))
    until = _date(value)
    if until is None:
        return timedelta(0)
    return min(max(until - (_date(headers.get("date", "")) or now), timedelta(0)), WAIT_MAX)


def _date(value: str) -> datetime | None:
    try:
        date = parsedate_to_datetime(value)
    except ValueError:
        return None
    return date if date.tzinfo else date.replace(tzinfo=UTC)


def _content(body: bytes | None) -> Mapping[str, object]:
    content: object
    try:
        content = orjson.loads(body or b"")
    except orjson.JSONDecodeError:
        try:
            content = json.loads((body or b"").decode("utf-8-sig"))  # RFC 8259: who reads may overlook a mark in front
        except (ValueError, RecursionError):
            return {}
    return content if isinstance(content, dict) else {}


def _id(value: object) -> str | None:
    """A name of a message that can be kept: a database holds neither NUL nor half a surrogate pair."""
    return value if isinstance(value, str) and 0 < len(value) <= ID_CHARS_MAX and value.isprintable() else None


def _code(name: object) -> str:
    """The error name if it looks like one. A reason is kept and shown, so free text must not slip into it."""
    if not isinstance(name, str) or not name.isascii() or not name.replace("_", "").isalnum():
        return ""
    return name.lower() if len(name) <= REASON_CHARS_MAX else ""
