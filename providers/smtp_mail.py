"""A message as the bytes of a mail (RFC 5322): a pure function, so that a repeat is byte for byte the same."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from email.errors import MessageError
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime, parseaddr

from email_validator import EmailNotValidError, validate_email

from providers.base import Message

# Everything 7-bit: no relay on the way has a reason to write the mail anew.
_POLICY = SMTP.clone(cte_type="7bit")
_LEADING_DOT = re.compile(rb"^\.", re.MULTILINE)


class Unsendable(Exception):
    """No mail can be made of this message; `reason` is a code."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Mail:
    """Envelope and content. An address that is not ASCII only a server with SMTPUTF8 can take (RFC 6531).

    `wire`: the content as it is sent after DATA, a line's leading dot doubled (RFC 5321 §4.5.2); without the last dot.
    """

    sender: str
    recipient: str
    content: bytes
    wire: bytes

    @property
    def needs_utf8(self) -> bool:
        """Whether the server has to know SMTPUTF8."""
        return not (self.sender.isascii() and self.recipient.isascii())


def build(message: Message, key: str, key_header: str | None = None) -> Mail:
    """Make the mail; raises Unsendable. `key` names it: the same key gives the same Message-ID."""
    assert message.dated is not None, "a Date is fixed before the first attempt"
    sender, recipient = _travelling(parseaddr(message.sender)[1]), _travelling(message.to)
    mail = EmailMessage(policy=_POLICY.clone(utf8=not (sender.isascii() and recipient.isascii())))
    try:
        mail["From"] = message.sender.replace(parseaddr(message.sender)[1], sender)
        mail["To"] = recipient
        mail["Subject"] = message.subject
        mail["Date"] = format_datetime(datetime.fromtimestamp(message.dated, UTC))
        mail["Message-ID"] = f"<{key}@{sender.rpartition('@')[2]}>"
        for name, value in message.headers.items():
            mail[name] = value
        if key_header is not None:
            mail[key_header] = key
        _fill(mail, message, key)
        content = mail.as_bytes()
    except (ValueError, MessageError, UnicodeError) as error:
        raise Unsendable("unsendable_message") from error
    return Mail(sender, recipient, content, _LEADING_DOT.sub(b"..", content))


def _fill(mail: EmailMessage, message: Message, key: str) -> None:
    if not message.html:
        mail.set_content(message.text)
        return
    if not message.text:
        mail.set_content(message.html, subtype="html")
        return
    mail.set_content(message.text)
    mail.add_alternative(message.html, subtype="html")
    mail.set_boundary(f"=_{key}")  # the library would draw one by lot, and a repeat would be another mail


def _travelling(address: str) -> str:
    """The address as a server without SMTPUTF8 can take it, where there is such a form (an IDN domain has one)."""
    if address.isascii():
        return address
    try:
        valid = validate_email(address, check_deliverability=False, globally_deliverable=False)
    except EmailNotValidError as error:
        raise Unsendable("address_unsendable") from error
    return valid.ascii_email or f"{valid.local_part}@{valid.ascii_domain}"
