"""Reading a mail as it comes over SMTP (RFC 5322, MIME); takes whatever there is, and never fails."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from email import message_from_bytes
from email.header import decode_header, make_header
from email.message import Message

from providers.mock.wire import fingerprint, storable

HEAD_BYTES_MAX = 102_400  # beyond that some of the library takes minutes
KEY_HEADER = "resend-idempotency-key"
# Every sending makes these anew, so they do not tell one mail from another; the parts say what the MIME ones say.
PASSING = {"date", "message-id", "mime-version", "received"}


@dataclass(frozen=True, slots=True)
class Letter:
    """What could be read. `sender` is None without a From; a header that repeats has one line for each time."""

    sender: str | None
    subject: str
    html: str | None
    text: str | None
    headers: dict[str, str]
    fingerprint: str

    def header(self, name: str) -> str | None:
        """One header's value; case does not count."""
        return next((value for known, value in self.headers.items() if known.lower() == name), None)


def read(raw: bytes, to: Sequence[str]) -> Letter:
    """Read a mail for these recipients; one whose parts cannot be told apart is shown as its bytes are, as text."""
    head = raw.partition(b"\r\n\r\n")[0][:HEAD_BYTES_MAX]
    headers = _headers(head)
    try:
        if len(head) == HEAD_BYTES_MAX:
            raise ValueError("too much to take apart")
        leaves = [part for part in message_from_bytes(raw).walk() if not part.is_multipart()]
        html, text = _first(leaves, "text/html"), _first(leaves, "text/plain")
        parts = [[part.get_content_type(), _digest(_payload(part))] for part in leaves]
    except Exception:  # noqa: BLE001 - what the library raises at odd mails has no end; the mail is taken all the same
        html, text, parts = None, _decode(raw, "utf-8"), [["", _digest(raw)]]
    named = {name.lower(): value for name, value in headers.items()}
    lasting = {name: value for name, value in named.items() if name not in PASSING and not name.startswith("content-")}
    return Letter(
        sender=named.get("from"),
        subject=named.get("subject", ""),
        html=html,
        text=text,
        headers=headers,
        fingerprint=fingerprint({"to": list(to), "headers": lasting, "parts": parts}),
    )


def _headers(head: bytes) -> dict[str, str]:
    """Every header by the name it first had, unfolded and decoded where that can be done."""
    names: dict[str, str] = {}
    values: dict[str, list[str]] = {}
    for name, value in message_from_bytes(head + b"\r\n\r\n").raw_items():
        known = names.setdefault(name.lower(), storable(name))
        values.setdefault(known, []).append(header_text(str(value)))
    return {name: "\n".join(lines) for name, lines in values.items()}


def header_text(folded: str) -> str:
    """A header's value, unfolded, its encoded words read where that can be done."""
    line = re.sub(r"\r?\n(?=[ \t])", "", folded)
    value = _decode(line.encode("utf-8", "surrogateescape"), "utf-8")
    try:
        return storable(str(make_header(decode_header(value))))
    except Exception:  # noqa: BLE001 - as above
        return value


def _first(leaves: Sequence[Message], content_type: str) -> str | None:
    """The first part of this type that is no attachment, with line ends as they are written here."""
    for part in leaves:
        if part.get_content_type() == content_type and part.get_content_disposition() != "attachment":
            return _decode(_payload(part), part.get_content_charset() or "utf-8").replace("\r\n", "\n")
    return None


def _payload(part: Message) -> bytes:
    payload = part.get_payload(decode=True)
    return payload if isinstance(payload, bytes) else b""


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _decode(content: bytes, charset: str) -> str:
    try:
        return storable(content.decode(charset, "replace"))
    except (LookupError, ValueError):  # a charset nobody knows, or one that is none
        return content.decode("utf-8", "replace")
