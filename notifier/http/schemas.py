"""The wire: what comes in is validated here, what goes out is shaped here; nothing else knows it."""

from __future__ import annotations

import math
import re
import zoneinfo
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache, lru_cache
from typing import Annotated, Any, Literal, TypeVar

from email_validator import EmailNotValidError, validate_email
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, WithJsonSchema

from notifier.domain.event import API, LOGIN_WEBHOOK, Event, Profile, canonical, digest
from notifier.domain.journey import LOGGED_IN
from notifier.http.problems import Problem

Model = TypeVar("Model", bound=BaseModel)

DEPTH_MAX = 64  # nesting of what an event carries
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_RFC3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)")
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
_DIGITS_MAX = 300
_MANY_DIGITS = re.compile(rf"\d{{{_DIGITS_MAX}}}")
_ID = re.compile(r"[\x21-\x7e]{1,255}")
_PLAIN_LOCAL = re.compile(r"[A-Za-z0-9]+(?:[._+-][A-Za-z0-9]+)*")
_PLAIN_MAX = 64  # characters of the whole address: far below every limit of a part


def _no_control(value: str) -> str:
    if _CONTROL.search(value):
        raise ValueError("must not contain line breaks or other control characters")
    return value


def _moment(value: object) -> datetime:
    if isinstance(value, datetime):
        return value
    if not isinstance(value, str) or not _RFC3339.fullmatch(value):
        raise ValueError('must be an RFC 3339 time with its offset, like "2026-11-29T10:00:00Z"')
    try:
        moment = datetime.fromisoformat(value.upper())
        if moment.tzinfo is not UTC:
            moment = moment.astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError("is not a time that exists") from None
    if moment < _EARLIEST:
        raise ValueError("is before 1970")
    return moment


def _address(value: str) -> str:
    local, _, domain = value.rpartition("@")
    try:
        if len(value) <= _PLAIN_MAX and _PLAIN_LOCAL.fullmatch(local):
            return f"{local}@{_domain(domain)}"  # what the library says of a plain local part is known
        checked = validate_email(value, check_deliverability=False, globally_deliverable=False)
    except EmailNotValidError as error:
        raise ValueError(f"is not an address mail can go to: {error}") from None
    return f"{checked.local_part}@{_with_a_dot(checked.domain)}"


@lru_cache(maxsize=4_096)
def _domain(domain: str) -> str:
    """The domain as the library normalizes it: most addresses share few. Raises EmailNotValidError, ValueError."""
    return _with_a_dot(validate_email(f"a@{domain}", check_deliverability=False, globally_deliverable=False).domain)


def _with_a_dot(domain: str) -> str:
    if "." not in domain:
        raise ValueError("is not an address mail can go to: the part after the @ has no dot")
    return domain


def _timezone(value: str) -> str:
    if value not in _timezones():
        raise ValueError('is not an IANA time zone like "Europe/London"')
    return value


@cache
def _timezones() -> frozenset[str]:
    return frozenset(zoneinfo.available_timezones())


def _event_id(value: str) -> str:
    if not _ID.fullmatch(value):
        raise ValueError("must be 1 to 255 visible ASCII characters")
    return value


Moment = Annotated[datetime, BeforeValidator(_moment), WithJsonSchema({"type": "string", "format": "date-time"})]
Line = Annotated[str, AfterValidator(_no_control)]
UserId = Annotated[
    str,
    Field(min_length=1, max_length=255, description="the application's id of the person"),  # first: the library's own
    AfterValidator(_no_control),
]
EventId = Annotated[
    str,
    AfterValidator(_event_id),
    WithJsonSchema({"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"}),
]
Address = Annotated[str, Field(max_length=320), AfterValidator(_address)]
Locale = Annotated[str, Field(pattern=r"^[A-Za-z]{2,8}([-_][A-Za-z0-9]{1,8})*$", max_length=35)]


class _In(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class UserIn(_In):
    """Who it happened to. Only `id` is required; an absent field keeps what is known."""

    id: UserId
    email: Address | None = None
    name: Annotated[str, Field(max_length=255), AfterValidator(_no_control)] | None = None
    timezone: Annotated[str, AfterValidator(_timezone)] | None = None
    locale: Locale | None = None
    attributes: dict[str, Any] | None = None


class EventIn(_In):
    """What an application says happened."""

    id: EventId | None = Field(None, description="makes a repeat harmless; or the header Idempotency-Key")
    type: Annotated[str, Field(min_length=1, max_length=128, examples=["user.signed_up"]), AfterValidator(_no_control)]
    occurred_at: Moment | None = Field(None, description="orders meaning; default: the database's clock")
    user: UserIn
    data: dict[str, Any] | None = Field(None, description="for the templates")


class LoginData(BaseModel):
    """Whose login it was."""

    model_config = ConfigDict(extra="ignore", strict=True)
    user_id: UserId


class LoginIn(BaseModel):
    """A login, as Standard Webhooks wrap it."""

    model_config = ConfigDict(extra="ignore", strict=True)
    type: Literal["user.logged_in"]
    timestamp: Moment | None = None
    data: LoginData


def check_storable(document: Any) -> None:
    """Refuse what PostgreSQL or another reader could not hold: NUL, lone surrogates, endless numbers, deep nesting."""
    errors = list(_unstorable(document, "", 0))
    if errors:
        raise Problem("invalid", f"{errors[0][0] or 'the body'} {errors[0][1]}", errors[:20])


def _canonical(content: dict[str, Any], document: dict[str, Any]) -> str:
    """The canonical form of content that is storable; raises a Problem that points at what in the document is not."""
    try:
        text = canonical(content)
    except (ValueError, RecursionError):
        check_storable(document)
        raise
    if not _is_storable(text):
        check_storable(document)
    return text


def _is_storable(text: str) -> bool:
    """Whether the canonical form shows at a glance that there is nothing to refuse, as it mostly does.

    It is in ASCII: all characters that could be wrong are escapes in it, every level of nesting opens a bracket, and a
    number that is too large has many digits.
    """
    return (
        "\\u" not in text
        and text.count("{") + text.count("[") <= DEPTH_MAX
        and (len(text) < _DIGITS_MAX or _MANY_DIGITS.search(text) is None)
    )


def _unstorable(value: Any, pointer: str, depth: int) -> Iterator[tuple[str, str]]:
    if depth > DEPTH_MAX:
        yield pointer, f"is nested deeper than {DEPTH_MAX}"
        return
    match value:
        case str():
            if (wrong := _bad_text(value)) is not None:
                yield pointer, wrong
        case float():
            if not math.isfinite(value):
                yield pointer, "is too large a number"
        case int():
            if abs(value) > 10**300:
                yield pointer, "is too large a number"
        case dict():
            for name, item in value.items():
                if (wrong := _bad_text(name)) is not None:
                    yield pointer, f"has a name that {wrong}"
                else:
                    yield from _unstorable(item, f"{pointer}/{_escape(name)}", depth + 1)
        case list():
            for index, item in enumerate(value):
                yield from _unstorable(item, f"{pointer}/{index}", depth + 1)


def _bad_text(text: str) -> str | None:
    found = _UNSTORABLE.search(text)
    if found is None:
        return None
    return "contains the character NUL" if found[0] == "\x00" else "contains half of a surrogate pair"


def pointer(name: str) -> str:
    """Give the JSON pointer of a field at the top."""
    return f"/{_escape(name)}"


def _escape(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def parse_event(document: Any, header_id: str | None) -> Event:
    """Make an Event of one parsed body. Raises a Problem that points at what is wrong."""
    if not isinstance(document, dict):
        raise Problem("invalid", "an event is a JSON object", [("", "must be an object")])
    body_id = document.get("id")
    if body_id is not None and not (isinstance(body_id, str) and body_id.isprintable()):
        check_storable(document)
    content = document.copy()
    content.pop("id", None)
    text = _canonical(content, document)
    if body_id is None and header_id is None:
        raise Problem(
            "bad-request",
            "the event has no id: give it one in `id` or in the header Idempotency-Key, and the same one on a repeat",
            [("/id", "is required")],
        )
    if body_id is not None and header_id is not None and body_id != header_id:
        raise Problem(
            "bad-request", "`id` and the header Idempotency-Key differ: send one of them", [("/id", "differs")]
        )
    parsed = validate(EventIn, document)
    event_id = parsed.id or header_id
    assert event_id is not None
    user = parsed.user
    return Event(
        source=API,
        id=event_id,
        type=parsed.type,
        user_id=user.id,
        occurred_at=parsed.occurred_at,
        fingerprint=digest(text),
        profile=Profile(user.email, user.name, user.timezone, user.locale, user.attributes),
        data=parsed.data or {},
    )


def parse_login(document: Any, webhook_id: str) -> Event:
    """Make an Event of a login webhook's body. Raises a Problem that points at what is wrong."""
    if not isinstance(document, dict):
        raise Problem("invalid", "the body is a JSON object", [("", "must be an object")])
    content = _canonical(document, document)
    parsed = validate(LoginIn, document)
    return Event(
        source=LOGIN_WEBHOOK,
        id=webhook_id,
        type=LOGGED_IN,
        user_id=parsed.data.user_id,
        occurred_at=parsed.timestamp,
        fingerprint=digest(content),
        profile=Profile(),
        data={},
    )


def validate(model: type[Model], document: Any) -> Model:
    """Check a parsed document; raises a Problem that names each field that is wrong.

    By the validator itself: model_validate() spends half as much again on options that nobody uses here.
    """
    try:
        found: Model = model.__pydantic_validator__.validate_python(document)
    except ValidationError as error:
        raise _problem_of(error) from None
    return found


def _problem_of(error: ValidationError) -> Problem:
    errors = [
        ("".join(f"/{_escape(str(part))}" for part in item["loc"]), _words(str(item["msg"])))
        for item in error.errors(include_url=False, include_input=False)[:20]
    ]
    pointer, detail = errors[0]
    return Problem("invalid", f"{pointer or 'the body'}: {detail}", errors)


def _words(message: str) -> str:
    if message == "Extra inputs are not permitted":
        return "is not a field of this document"
    return message.removeprefix("Value error, ")
