"""A mail as it would travel."""

from __future__ import annotations

from email import message_from_bytes
from email.policy import default

import pytest

from providers.mock.api import raw
from providers.mock.records import Caller, MessageRecord


def a_record(**changes: object) -> MessageRecord:
    fields: dict[str, object] = {
        "id": "m1",
        "key": "k",
        "sender": "Notifier <hello@example.com>",
        "to": ("ada@example.com",),
        "subject": "Grüße, Ada",
        "html": "<p>ä</p>",
        "text": "ä",
        "headers": {"Auto-Submitted": "auto-generated", "Subject": "other", "Content-Type": "text/x"},
        "body": {},
        "caller": Caller(),
        "created_at": "2026-11-29T10:00:00.000001+00:00",
    }
    return MessageRecord(**{**fields, **changes})


def test_text_comes_first_and_fixed_headers_win() -> None:
    mail = message_from_bytes(raw(a_record()), policy=default)
    assert mail["Subject"] == "Grüße, Ada"
    assert mail["Auto-Submitted"] == "auto-generated"
    assert [part.get_content_type() for part in mail.iter_parts()] == ["text/plain", "text/html"]


@pytest.mark.parametrize(
    "changes",
    [
        {"html": None},
        {"text": None},
        {"to": ("jürgen@exämple.com", "Ada, the first <ada@example.com>")},
        {"sender": '"unclosed <a@x.com>'},
        {"headers": {"Reply-To": "<<>>", "Date": "never", "Message-ID": "<", "References": "\t" * 2_000}},
        {"subject": "x" * 5_000},
        {"subject": " "},
        {"text": "a\r\nb\rc\0\u2028" + "y" * 2_000},
    ],
)
def test_whatever_passed_as_a_mail_can_be_shown(changes: dict[str, object]) -> None:
    assert raw(a_record(**changes)).startswith(b"From:")
