"""What a mail server's reply means: the step, the code and its text in, an outcome out; pure."""

from __future__ import annotations

import enum
import re

from providers.base import Accepted, Ambiguous, ConfigError, Outcome, Rejected, RetryLater

ENHANCED = re.compile(r"([245]\.\d{1,3}\.\d{1,3})(?=\s|$)")  # RFC 3463
QUEUED = (
    re.compile(r"queued as ([\w.-]{1,64})"),  # Postfix, and the mock
    re.compile(r"\bid=([\w-]{1,64})"),  # Exim
    re.compile(r"^2\.0\.0 ([0-9a-f]{8,32}) Message accepted"),  # OpenSMTPD
    re.compile(r"^2\.0\.0 (\w{10,32}) Message accepted"),  # sendmail
)
LOGIN_CODES = {530, 534, 535, 538}
SYNTAX_CODES = {500, 501, 502, 503, 504}
BAD_ADDRESS_CODES = {501, 553, 555}  # at RCPT they are about this recipient, not about how we speak
FULL = {"4.2.2", "5.2.2"}
ABOUT_THE_MAIL = ("5.2.3", "5.3.4", "5.6.")  # too big for a mailbox, for the system; content or form not supported


class Step(enum.StrEnum):
    """How far a call had come when the reply was read."""

    CONNECT = "connect"
    HELLO = "hello"
    LOGIN = "login"
    MAIL = "mail"
    RCPT = "rcpt"
    DATA = "data"
    DOT = "dot"


def classify(step: Step, code: int, text: str) -> Outcome:
    """Read a reply by step, code and enhanced status together.

    A refusal at MAIL or before concerns our server, login or sender, so every mail: nothing but its operator can mend
    that. From RCPT on it concerns this one mail, unless the server says that we speak or log in wrongly.
    """
    found = ENHANCED.match(text)
    status = found[1] if found else ""
    reason = f"smtp_{step}_{code}" + (f"_{status}" if status else "")
    if step is Step.DOT and 200 <= code < 300:
        return Accepted(_queue_id(text))
    if status in FULL:
        return RetryLater("mailbox_full", counted=True)
    if 400 <= code < 500:
        return RetryLater(reason)
    if code == 552 and step is Step.RCPT:  # "too many recipients", RFC 5321 §4.5.3.1.10
        return RetryLater(reason)
    if 500 <= code < 600:
        return ConfigError(reason) if _about_every_mail(step, code, status) else Rejected(reason)
    # No reply for this step at all: whoever talks there is no mail server we understand.
    return Ambiguous(reason) if step is Step.DOT else RetryLater(reason)


def _about_every_mail(step: Step, code: int, status: str) -> bool:
    if step in (Step.CONNECT, Step.HELLO, Step.LOGIN):
        return True
    if step is Step.MAIL:
        return code != 552 and not status.startswith(ABOUT_THE_MAIL)
    if step is Step.RCPT and (code in BAD_ADDRESS_CODES or status.startswith("5.1.")):
        return False
    # Not 5.5.x by itself: large mail hosts say "550 5.5.0 mailbox unavailable" of an unknown user.
    return code in LOGIN_CODES | SYNTAX_CODES or status == "5.7.8"


def _queue_id(text: str) -> str | None:
    """The server's own name for the mail, if it says one in a way we know."""
    return next((found[1] for form in QUEUED if (found := form.search(text))), None)
