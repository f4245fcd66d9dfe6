"""Resend's wire format from the receiving side: what a request must look like, what a refusal says; pure."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn
from urllib.parse import unquote

from providers.mock.records import Caller, as_list

BATCH_MAX = 100
RECIPIENTS_MAX = 50
CONTEXT_CHARS_MAX = 1_024
KEY_FORM = re.compile(r"[\x21-\x7e]{1,256}")
ADDRESS = re.compile(r"[^\s@<>]+@[^\s@<>]+")


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error answer."""

    status: int
    name: str
    message: str


@dataclass(frozen=True, slots=True)
class Mail:
    """One mail as asked for, checked."""

    sender: str
    to: tuple[str, ...]
    subject: str
    html: str | None
    text: str | None
    headers: Mapping[str, str]
    body: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Request:
    """What a call asks for: one mail or a batch, and the fingerprint a repeat is compared by."""

    mails: tuple[Mail, ...]
    fingerprint: str

    @property
    def to(self) -> tuple[str, ...]:
        """Everybody the call concerns, in order."""
        return tuple(address for mail in self.mails for address in mail.to)


class _Unfit(Exception):
    def __init__(self, status: int, name: str, message: str) -> None:
        super().__init__(message)
        self.refusal = Refusal(status, name, message)


def parse(raw: bytes, *, batch: bool) -> Request | Refusal:
    """Read the body of POST /emails or, with `batch`, of POST /emails/batch."""
    try:
        content = _json(raw)
        if batch:
            items = _batch(content)
            mails = tuple(_mail(item, f"[{index}] ") for index, item in enumerate(items))
        else:
            mails = (_mail(content, ""),)
    except _Unfit as unfit:
        return unfit.refusal
    return Request(mails, fingerprint(content))


def fingerprint(content: object) -> str:
    """A digest of the JSON value: order of names and white space do not count."""
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def check_key(key: str | None) -> Refusal | None:
    """Whether the Idempotency-Key can be used; it must be there."""
    if key is None:
        return Refusal(400, "missing_idempotency_key", "Send an Idempotency-Key header: one key for each mail.")
    if not KEY_FORM.fullmatch(key):
        return Refusal(400, "invalid_idempotency_key", "The Idempotency-Key must be 1 to 256 visible ASCII characters.")
    return None


def check_bearer(authorization: str | None) -> Refusal | None:
    """Whether an API key was sent; any will do."""
    scheme, _, token = (authorization or "").partition(" ")
    if scheme.lower() == "bearer" and token.strip():
        return None
    return Refusal(401, "missing_api_key", "Send an API key: `Authorization: Bearer <key>`.")


def caller(headers: Mapping[str, str]) -> Caller:
    """Who calls, from the X-Notifier headers; they are percent-encoded."""
    generation = headers.get("X-Notifier-Generation", "")
    return Caller(
        worker=_context(headers, "X-Notifier-Worker"),
        generation=int(generation) if re.fullmatch(r"[0-9]{1,18}", generation) else None,
        user=_context(headers, "X-Notifier-User"),
        kind=_context(headers, "X-Notifier-Kind"),
    )


def members(mails: Sequence[Mail], headers: Mapping[str, str]) -> tuple[Caller, ...]:
    """Who sent each mail of a batch: the call has one head for all, so each mail says itself whose it is."""
    generations = headers.get("X-Notifier-Generation", "").split(",")
    if len(generations) != len(mails):
        generations = generations[:1] * len(mails)
    return tuple(
        Caller(
            worker=_context(headers, "X-Notifier-Worker"),
            generation=int(generation) if re.fullmatch(r"[0-9]{1,18}", generation) else None,
            user=_context(mail.headers, "X-Notifier-User"),
            kind=_context(mail.headers, "X-Notifier-Kind"),
        )
        for mail, generation in zip(mails, generations, strict=True)
    )


def storable(value: str) -> str:
    """The text without what UTF-8 cannot hold (a header may carry any byte)."""
    return value.encode("utf-8", "replace").decode()


def unquoted(value: str) -> str:
    """What the notifier percent-encoded, bounded."""
    return storable(unquote(value, errors="replace"))[:CONTEXT_CHARS_MAX]


def _context(headers: Mapping[str, str], name: str) -> str | None:
    value = headers.get(name)
    return None if value is None else unquoted(value)


def _json(raw: bytes) -> object:
    try:
        content = json.loads(raw, parse_constant=_no_number)
        json.dumps(content, ensure_ascii=False).encode()
    except (ValueError, RecursionError):  # UnicodeError, too: half a surrogate pair is no text
        raise _Unfit(400, "validation_error", "The body is not JSON in UTF-8.") from None
    return content


def _no_number(name: str) -> NoReturn:
    raise ValueError(name)


def _batch(content: object) -> list[object]:
    if not isinstance(content, list):
        raise _Unfit(422, "validation_error", "A batch is an array of mails.")
    if not 1 <= len(content) <= BATCH_MAX:
        raise _Unfit(422, "validation_error", f"A batch holds 1 to {BATCH_MAX} mails; this one holds {len(content)}.")
    return content


def _mail(content: object, where: str) -> Mail:
    if not isinstance(content, dict):
        raise _Unfit(422, "validation_error", f"{where}A mail is a JSON object.")
    for name in ("from", "to", "subject"):
        if content.get(name) in (None, "", []):
            raise _Unfit(422, "missing_required_field", f"{where}Missing `{name}` field.")
    html, text = (_text(content, name, where) for name in ("html", "text"))
    if not html and not text:
        raise _Unfit(422, "missing_required_field", f"{where}Missing `html` or `text` field.")
    sender = _line(content["from"], f"{where}The `from` field")
    _check_address(sender, f"{where}The `from` field")
    for name in ("cc", "bcc", "reply_to"):
        _recipients(content.get(name), f"{where}The `{name}` field")
    return Mail(
        sender=sender,
        to=_recipients(content["to"], f"{where}The `to` field"),
        subject=_line(content["subject"], f"{where}The `subject` field"),
        html=html,
        text=text,
        headers=_headers(content.get("headers"), where),
        body=content,
    )


def _text(content: Mapping[str, object], name: str, where: str) -> str | None:
    value = content.get(name)
    if value is not None and not isinstance(value, str):
        raise _Unfit(422, "validation_error", f"{where}The `{name}` field must be text.")
    return value


def _line(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise _Unfit(422, "validation_error", f"{what} must be text.")
    if any(ord(character) < 0x20 or ord(character) == 0x7F for character in value if character != "\t"):
        raise _Unfit(422, "validation_error", f"{what} must be one line without control characters.")
    return value


def _recipients(value: object, what: str) -> tuple[str, ...]:
    addresses = tuple(_line(address, what) for address in as_list(value))
    if len(addresses) > RECIPIENTS_MAX:
        raise _Unfit(422, "validation_error", f"{what} takes at most {RECIPIENTS_MAX} addresses.")
    for address in addresses:
        _check_address(address, what)
    return addresses


def _check_address(value: str, what: str) -> None:
    if not ADDRESS.fullmatch(address_of(value)):
        raise _Unfit(422, "validation_error", f"{what} must look like `a@example.com` or `Name <a@example.com>`.")


def _headers(value: object, where: str) -> dict[str, str]:
    if value is None:
        return {}
    what = f"{where}The `headers` field"
    if not isinstance(value, dict):
        raise _Unfit(422, "validation_error", f"{what} must be an object.")
    for name in value:
        if not re.fullmatch(r"[!-9;-~]+", name):
            raise _Unfit(422, "validation_error", f"{what} holds a name that no mail header can have.")
    return {name: _line(content, f"{what}, `{name}`,") for name, content in value.items()}


def address_of(recipient: str) -> str:
    """The bare address of `Name <address>`."""
    _, bracket, rest = recipient.rpartition("<")
    return rest.partition(">")[0].strip() if bracket else recipient.strip()
