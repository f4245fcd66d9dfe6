"""A message as a mail: what stands in it, and that it is the same every time."""

from __future__ import annotations

from email import message_from_bytes
from email.message import EmailMessage
from email.policy import SMTP

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.base import Message
from providers.smtp_mail import Mail, Unsendable, build
from tests.support.mock_server import MAIL

KEY = "5f0c9a52-52c9-5c9c-9a52-0c9a5252c95c"


def parsed(mail: Mail) -> EmailMessage:
    found = message_from_bytes(mail.content, policy=SMTP)
    assert isinstance(found, EmailMessage)
    return found


def parts(mail: Mail) -> dict[str, str]:
    return {part.get_content_subtype(): part.get_content().replace("\r\n", "\n") for part in parsed(mail).iter_parts()}


def test_a_mail_has_what_a_mail_must_have() -> None:
    mail = build(MAIL, KEY)
    found = parsed(mail)
    assert (mail.sender, mail.recipient) == ("hello@example.com", "ada@example.com")
    assert found["From"] == "Notifier <hello@example.com>"
    assert found["To"] == "ada@example.com"
    assert found["Subject"] == "Welcome, Ada"
    assert found["Date"] == "Sun, 29 Nov 2026 10:00:00 +0000"
    assert found["Message-ID"] == f"<{KEY}@example.com>"
    assert found["Auto-Submitted"] == "auto-generated"
    assert found.get_content_type() == "multipart/alternative"
    assert [part.get_content_subtype() for part in found.iter_parts()] == ["plain", "html"]
    assert found.defects == []


def test_the_same_message_gives_the_same_bytes() -> None:
    assert build(MAIL, KEY) == build(MAIL._replace(), KEY)
    other = build(MAIL, "another")
    assert other.content != build(MAIL, KEY).content
    assert parsed(other)["Message-ID"] == "<another@example.com>"


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"])), st.text(st.characters(exclude_categories=["Cs", "Cc"])))
def test_both_parts_arrive_as_rendered_and_every_line_is_seven_bit(text: str, html: str) -> None:
    mail = build(MAIL._replace(text=f"a{text}\n", html=f"<p>{html}</p>\n"), KEY)
    assert parts(mail) == {"plain": f"a{text}\n", "html": f"<p>{html}</p>\n"}
    assert mail.content.isascii()
    assert mail.content.endswith(b"\r\n")
    assert all(len(line) <= 998 for line in mail.content.split(b"\r\n"))
    assert b"\n" not in mail.content.replace(b"\r\n", b"")


def test_a_line_that_is_a_dot_ends_nothing() -> None:
    mail = build(MAIL._replace(html="", text="one\n.\n..two\nthree\n"), KEY)
    assert b"\r\n.\r\n" not in mail.wire
    assert b"\r\n..\r\n...two\r\n" in mail.wire
    assert mail.wire.replace(b"\r\n..", b"\r\n.") == mail.content


@pytest.mark.parametrize(("text", "html", "type_"), [("", "<p>x</p>", "text/html"), ("x", "", "text/plain")])
def test_one_part_alone_is_no_multipart(text: str, html: str, type_: str) -> None:
    assert parsed(build(MAIL._replace(text=text, html=html), KEY)).get_content_type() == type_


def test_the_key_travels_in_a_header_where_one_is_named() -> None:
    assert parsed(build(MAIL, KEY, "Resend-Idempotency-Key"))["Resend-Idempotency-Key"] == KEY
    assert "Resend-Idempotency-Key" not in parsed(build(MAIL, KEY))


def test_a_foreign_domain_travels_in_its_ascii_form() -> None:
    mail = build(MAIL._replace(to="ada@bücher.example"), KEY)
    assert (mail.recipient, mail.needs_utf8) == ("ada@xn--bcher-kva.example", False)
    assert parsed(mail)["To"] == "ada@xn--bcher-kva.example"


def test_a_foreign_local_part_needs_a_server_that_takes_it() -> None:
    mail = build(MAIL._replace(to="zoë@bücher.example"), KEY)
    assert (mail.recipient, mail.needs_utf8) == ("zoë@xn--bcher-kva.example", True)


def test_a_name_with_signs_of_its_own_stays_a_name() -> None:
    mail = build(MAIL._replace(sender='"Zoë, Ltd." <hello@example.com>', subject="Zoë {{7*7}} <b>"), KEY)
    assert parsed(mail)["From"].addresses[0].display_name == "Zoë, Ltd."
    assert parsed(mail)["Subject"] == "Zoë {{7*7}} <b>"


@pytest.mark.parametrize(
    "message",
    [
        MAIL._replace(subject="one\r\nBcc: eve@example.com"),
        MAIL._replace(headers={"X-One": "a\nb"}),
        MAIL._replace(to="ädä"),
    ],
)
def test_what_cannot_be_a_mail_is_refused(message: Message) -> None:
    with pytest.raises(Unsendable):
        build(message, KEY)
