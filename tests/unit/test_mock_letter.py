"""Reading a mail that came as bytes."""

from __future__ import annotations

from email.message import EmailMessage
from email.policy import SMTP, SMTPUTF8

import pytest

from providers.mock.letter import HEAD_BYTES_MAX, read

TO = ["ada@example.com"]


def a_mail(**changes: str) -> EmailMessage:
    fields = {"From": "Nötifier <hello@example.com>", "Subject": "Grüße", "Date": "today", "Message-ID": "<1@x>"}
    mail = EmailMessage(policy=SMTP)
    for name, value in {**fields, **changes}.items():
        mail[name] = value
    mail.set_content("Grüße\n")
    mail.add_alternative("<p>Grüße</p>\n", subtype="html")
    return mail


def test_headers_and_both_parts_are_decoded() -> None:
    mail = a_mail()
    mail.add_attachment("not the body\n", filename="a.txt")
    found = read(mail.as_bytes(), TO)
    assert (found.sender, found.subject) == ("Nötifier <hello@example.com>", "Grüße")
    assert (found.text, found.html) == ("Grüße\n", "<p>Grüße</p>\n")
    assert found.header("message-id") == "<1@x>"
    assert found.header("x-other") is None


@pytest.mark.parametrize("charset", ["iso-8859-1", "utf-8"])
def test_a_charset_counts(charset: str) -> None:
    raw = f"Content-Type: text/plain; charset={charset}\r\n\r\n".encode() + "Grüße".encode(charset)
    assert read(raw, TO).text == "Grüße"


@pytest.mark.parametrize("charset", ["nobody-knows", "rot13", "idna", "undefined", "a\0b"])
def test_a_charset_that_is_none_is_read_as_utf8(charset: str) -> None:
    assert read(f"Content-Type: text/plain; charset={charset}\r\n\r\nGrüße\xff".encode(), TO).text == "Grüße\xff"


def test_eight_bit_headers_are_utf8() -> None:
    mail = EmailMessage(policy=SMTPUTF8)
    mail["Subject"] = "Grüße"
    mail["From"] = "jürgen@exämple.com"
    found = read(mail.as_bytes(), TO)
    assert (found.subject, found.sender) == ("Grüße", "jürgen@exämple.com")


def test_what_cannot_be_taken_apart_is_text() -> None:
    raw = b"Subject: deep\r\n" + b"".join(
        b"Content-Type: multipart/mixed; boundary=b%d\r\n\r\n--b%d\r\n" % (number, number) for number in range(3_000)
    )
    found = read(raw, TO)
    assert (found.subject, found.html) == ("deep", None)
    assert found.text is not None and found.text.startswith("Subject: deep")


def test_a_head_without_end_is_not_taken_apart() -> None:
    found = read(b"Subject: long\r\nTo: " + b"a@b.c, " * HEAD_BYTES_MAX + b"\r\n\r\nbody", TO)
    assert found.subject == "long"
    assert found.text is not None
    assert found.text.startswith("Subject: long"), "shown as its bytes are, not as its parts would be"
    assert found.text.endswith("body")


def test_the_fingerprint_is_of_what_a_reader_sees() -> None:
    first = read(a_mail().as_bytes(), TO).fingerprint
    again = a_mail(**{"Date": "tomorrow", "Message-ID": "<2@x>"})
    again.set_boundary("another")
    assert read(again.as_bytes(), TO).fingerprint == first
    assert read(again.as_bytes(), ["bob@example.com"]).fingerprint != first
    assert read(a_mail(Subject="Else").as_bytes(), TO).fingerprint != first
    assert read(a_mail().as_bytes().replace(b"<p>", b"<b>"), TO).fingerprint != first
