"""The classification table: one line per answer a provider may give."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

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
from providers.resend_answers import Answer, classify, retry_after

NOW = datetime(2026, 11, 29, 12, 0, 0, tzinfo=UTC)
SECOND, HOUR = timedelta(seconds=1), timedelta(hours=1)


def outcome(status: int, content: object = None, **headers: str) -> Outcome:
    body = content if isinstance(content, bytes) or content is None else json.dumps(content).encode()
    return classify(Answer(status, {name.replace("_", "-"): value for name, value in headers.items()}, body), NOW)


def named(name: str, **more: str) -> dict[str, str]:
    return {"name": name, "message": "Mind ada@example.com", **more}


@pytest.mark.parametrize(
    ("status", "content", "expected"),
    [
        (200, {"id": "m1"}, Accepted("m1")),
        (200, None, Ambiguous("unreadable_answer")),
        (200, b"", Ambiguous("unreadable_answer")),
        (200, b'\xef\xbb\xbf{"id": "m1"}', Accepted("m1")),
        (200, b'{"id": "m1", "took": NaN, "note": "\\ud800"}', Accepted("m1")),
        (200, b'{"id": "m', Ambiguous("unreadable_answer")),
        (200, b"<html>Welcome to the hotel</html>", Ambiguous("unreadable_answer")),
        (200, b"\xff\xfe\xfd", Ambiguous("unreadable_answer")),
        (200, b"[" * 100_000, Ambiguous("unreadable_answer")),
        (200, ["m1"], Ambiguous("unreadable_answer")),
        (200, {"id": 7}, Ambiguous("unreadable_answer")),
        (202, {"id": "m1"}, Ambiguous("http_202")),
        (204, b"", Ambiguous("http_204")),
        (409, named("duplicate_idempotency_key", original_id="m1"), Duplicate("m1")),
        (409, named("duplicate_idempotency_key"), Duplicate(None)),
        (409, named("invalid_idempotent_request"), BodyMismatch("invalid_idempotent_request")),
        (
            409,
            named("concurrent_idempotent_requests"),
            Ambiguous("concurrent_idempotent_requests", counted=False),
        ),
        (409, named("something_new"), Ambiguous("http_409")),
        (409, None, Ambiguous("http_409")),
        (400, named("invalid_idempotency_key"), ConfigError("invalid_idempotency_key")),
        (400, named("validation_error"), Rejected("validation_error")),
        (422, named("missing_required_field"), Rejected("missing_required_field")),
        (422, b"no", Rejected("http_422")),
        (413, None, Rejected("http_413")),
        (401, named("missing_api_key"), ConfigError("missing_api_key")),
        (403, named("invalid_api_key"), ConfigError("invalid_api_key")),
        (403, b"Forbidden", ConfigError("http_403")),
        (429, named("rate_limit_exceeded"), RetryLater("rate_limit_exceeded")),
        (429, None, RetryLater("rate_limited")),
        (429, named("daily_quota_exceeded"), RetryLater("daily_quota_exceeded", HOUR)),
        (429, named("monthly_quota_exceeded"), RetryLater("monthly_quota_exceeded", HOUR)),
        (500, named("application_error"), Ambiguous("http_500")),
        (503, None, Ambiguous("http_503")),
        (599, None, Ambiguous("http_599")),
        (408, None, Ambiguous("http_408")),
        (301, None, ConfigError("http_301")),
        (404, named("not_found"), ConfigError("http_404")),
        (405, None, ConfigError("http_405")),
    ],
)
def test_each_answer_has_one_meaning(status: int, content: object, expected: Outcome) -> None:
    assert outcome(status, content) == expected


@pytest.mark.parametrize("name", ["ada@example.com", "two words", "x" * 65, "naïve", "", None, 7])
def test_a_reason_is_a_code_and_never_free_text(name: object) -> None:
    assert outcome(422, {"name": name}) == Rejected("http_422")


def test_the_wait_asked_for_is_kept() -> None:
    assert outcome(429, None, retry_after="7") == RetryLater("rate_limited", 7 * SECOND)
    assert outcome(503, None, retry_after="7") == Ambiguous("http_503", 7 * SECOND)
    in_flight = outcome(409, named("concurrent_idempotent_requests"), retry_after="1")
    assert in_flight == Ambiguous("concurrent_idempotent_requests", SECOND, counted=False)
    assert outcome(429, named("daily_quota_exceeded"), retry_after="9000") == RetryLater(
        "daily_quota_exceeded", 9000 * SECOND
    )


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("0", timedelta(0)),
        (" 12 ", 12 * SECOND),
        ("9" * 400, timedelta(days=1)),
        ("-3", timedelta(0)),
        ("1.5", timedelta(0)),
        ("soon", timedelta(0)),
        ("", timedelta(0)),
        ("²", timedelta(0)),
        ("Sun, 29 Nov 2026 12:00:30 GMT", 30 * SECOND),
        ("Sun, 29 Nov 2026 11:00:00 GMT", timedelta(0)),
        ("Sun, 29 Nov 2099 12:00:30 GMT", timedelta(days=1)),
        ("Sun, 99 Nov 2026 12:00:30 GMT", timedelta(0)),
    ],
)
def test_retry_after_is_seconds_or_a_date(value: str, expected: timedelta) -> None:
    assert retry_after({"retry-after": value}, NOW) == expected


def test_a_date_is_measured_by_the_clock_of_whoever_wrote_it() -> None:
    headers = {"retry-after": "Sun, 29 Nov 2026 15:00:05 GMT", "date": "Sun, 29 Nov 2026 15:00:00 GMT"}
    assert retry_after(headers, NOW) == 5 * SECOND


@pytest.mark.parametrize("name", ["", "m\x00", "\ud800", "m\n", "x" * 256, 7, None, ["m1"]])
def test_a_message_name_that_cannot_be_kept_is_none(name: object) -> None:
    """The result would be unwritable: the mail accepted, and no record of it possible."""
    assert outcome(200, {"id": name}) == Ambiguous("unreadable_answer")
    assert outcome(409, {"name": "duplicate_idempotency_key", "original_id": name}) == Duplicate(None)
