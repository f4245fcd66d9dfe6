"""The journeys file as values, and plan(): an event and what is known of its user → what to create and what to stop."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, NamedTuple

from notifier.domain.errors import SettingsError
from notifier.domain.event import Event
from notifier.domain.notification import NotificationRow, State
from notifier.domain.restore import NOTHING_LOST, REASON_RESTORED, Doubt, LostTime

LOGGED_IN = "user.logged_in"
REASON_ERASED = "erased"
REASON_TOO_OLD = "too_old"
REASON_NO_RECIPIENT = "no_recipient"
REASON_SUPPRESSED = "suppressed"

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|h|d|w)")
_UNIT_S = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_KIND_NAME = re.compile(r"[a-z][a-z0-9_.-]{0,62}")
_EVENT_TYPE = re.compile(r"[^\x00-\x1f\x7f-\x9f\u2028\u2029]{1,128}")  # as events can carry them: others never match
_FOLDER = re.compile(r"[^./\x00-\x1f][^/\x00-\x1f]*")
_DELAY_MAX = timedelta(days=3_660)
_ENDLESS_S = 1e12


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of mail: what asks for it, when it is due, what stops it."""

    name: str
    on: str
    template: str
    delay: timedelta
    cancel_on: tuple[str, ...]
    cancel_grace: timedelta
    max_age: timedelta


@dataclass(frozen=True, slots=True)
class Journeys:
    """All kinds this build knows."""

    kinds: Mapping[str, Kind]
    asked_by: Mapping[str, tuple[Kind, ...]] = field(init=False)
    canceling_types: frozenset[str] = field(init=False)
    event_types: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        """Kinds by the type that asks for them; types that may stop something, and all that mean something here.

        Every other is recorded, no more.
        """
        asked_by: dict[str, tuple[Kind, ...]] = {}
        for kind in self.kinds.values():
            asked_by[kind.on] = (*asked_by.get(kind.on, ()), kind)
        canceling = frozenset(event_type for kind in self.kinds.values() for event_type in kind.cancel_on)
        object.__setattr__(self, "asked_by", asked_by)
        object.__setattr__(self, "canceling_types", canceling)
        object.__setattr__(self, "event_types", canceling | asked_by.keys())


# What is made for every event is a NamedTuple: a frozen dataclass takes three times as long to make.


class Seen(NamedTuple):
    """The latest event of one type: when it occurred, and which it was."""

    at: datetime
    ref: str


class UserState(NamedTuple):
    """What is true of a user under the row lock, the event in hand already merged into the profile."""

    user_id: str
    email: str | None
    name: str | None
    locale: str | None
    timezone: str | None
    attributes: Mapping[str, Any]
    notifications: Sequence[NotificationRow]
    last_seen: Mapping[str, Seen]
    erased: bool = False


class Creation(NamedTuple):
    """A new decision and the place it goes to: scheduled, pending, or closed at once (canceled, skipped).

    `doubt`: it may have been decided before, and sent, in a time the database has forgotten.
    """

    kind: str
    decided_at: datetime
    due_at: datetime
    cancel_on: tuple[str, ...]
    cancel_from: datetime
    data: Mapping[str, Any]
    state: State
    reason: str | None = None
    decided_by: str | None = None
    doubt: Doubt | None = None


class Plan(NamedTuple):
    """What one event does: new decisions, what it names that exists, what it stops if it still can."""

    create: tuple[Creation, ...]
    existing: tuple[NotificationRow, ...]
    cancel: tuple[NotificationRow, ...]


def plan(
    event: Event,
    occurred_at: datetime,
    user: UserState,
    journeys: Journeys,
    now: datetime,
    lost: LostTime = NOTHING_LOST,
) -> Plan:
    """Decide what `event` means. `now` is business time read under the user lock.

    Order is that of `occurred_at`, never of arrival; a tie goes to the canceling event.
    """
    known = {row.kind: row for row in user.notifications}
    asked = journeys.asked_by.get(event.type, ())
    wanted = [] if user.erased else [kind for kind in asked if kind.name not in known]
    data = _template_data(event, user) if wanted else {}
    return Plan(
        create=tuple([_create(kind, occurred_at, user, data, now, lost) for kind in wanted]),
        existing=tuple([known[kind.name] for kind in asked if kind.name in known]),
        cancel=tuple([row for row in user.notifications if concerns(event.type, occurred_at, row)]),
    )


def concerns(event_type: str, occurred_at: datetime, row: NotificationRow) -> bool:
    """Whether an event of this type and time is one that stops this notification."""
    return event_type in row.cancel_on and occurred_at >= row.cancel_from


def cancel_reason(event_type: str) -> str:
    """The code a canceled notification carries."""
    return "login" if event_type == LOGGED_IN else event_type


@dataclass(frozen=True, slots=True)
class Obstacle:
    """What stands against a notification: the state it ends in, its reason, and the event or rule behind it."""

    state: State
    reason: str
    decided_by: str


def stopped_by(cancel_on: Collection[str], cancel_from: datetime, last_seen: Mapping[str, Seen]) -> Obstacle | None:
    """Give the canceling event that stands against a notification, whichever of the two came first."""
    for event_type in cancel_on:
        seen = last_seen.get(event_type)
        if seen is not None and seen.at >= cancel_from:
            return Obstacle(State.CANCELED, cancel_reason(event_type), f"event:{seen.ref}")
    return None


def replan(
    cancel_on: Collection[str],
    cancel_from: datetime,
    last_seen: Mapping[str, Seen],
    *,
    email: str | None,
    suppressed: bool,
    is_due: bool,
    erased: bool = False,
) -> Obstacle | None:
    """What stands against sending a closed notification after all; None: nothing does.

    The same questions as for a new one, asked again: an erased user, an event that cancels it, a suppressed address,
    and, where it would be owed at once, no address.
    """
    if erased:
        return Obstacle(State.CANCELED, REASON_ERASED, f"rule:{REASON_ERASED}")
    stopping = stopped_by(cancel_on, cancel_from, last_seen)
    if stopping is not None:
        return stopping
    if suppressed:
        return Obstacle(State.SKIPPED, REASON_SUPPRESSED, f"rule:{REASON_SUPPRESSED}")
    if is_due and email is None:
        return Obstacle(State.SKIPPED, REASON_NO_RECIPIENT, f"rule:{REASON_NO_RECIPIENT}")
    return None


def _create(
    kind: Kind, occurred_at: datetime, user: UserState, data: Mapping[str, Any], now: datetime, lost: LostTime
) -> Creation:
    due_at = occurred_at + kind.delay if kind.delay else occurred_at
    cancel_from = occurred_at + kind.cancel_grace if kind.cancel_grace else occurred_at
    state, reason, decided_by = State.SCHEDULED, None, None
    stopping = stopped_by(kind.cancel_on, cancel_from, user.last_seen) if user.last_seen else None
    doubt = lost.doubt(occurred_at, due_at, kind.max_age)
    if doubt is not None:  # whatever stands against it now, its age too: no rule can say that it never was sent
        state, reason = State.PENDING, REASON_RESTORED
    elif stopping is not None:
        state, reason, decided_by = stopping.state, stopping.reason, stopping.decided_by
    elif now - occurred_at > kind.max_age:
        state, reason, decided_by = State.SKIPPED, REASON_TOO_OLD, "rule:max_age"
    elif due_at <= now and user.email is None:
        state, reason, decided_by = State.SKIPPED, REASON_NO_RECIPIENT, "rule:no_recipient"
    elif due_at <= now:
        state = State.PENDING
    # By place: with names it costs twice as much.
    return Creation(kind.name, occurred_at, due_at, kind.cancel_on, cancel_from, data, state, reason, decided_by, doubt)


def _template_data(event: Event, user: UserState) -> dict[str, Any]:
    """What a template may use, as far as it is known: template_values() fills in the rest."""
    known = {"name": user.name, "locale": user.locale, "timezone": user.timezone}
    person: dict[str, Any] = {name: value for name, value in known.items() if value is not None}
    if user.attributes:
        person["attributes"] = dict(user.attributes)
    data: dict[str, Any] = {"user": person} if person else {}
    if event.data:
        data["data"] = dict(event.data)
    return data


def template_values(user_id: str, data: Mapping[str, Any]) -> dict[str, Any]:
    """Give a template everything it may name, from what was kept with the decision; what is unknown is null."""
    nothing: dict[str, Any] = {"id": user_id, "name": None, "locale": None, "timezone": None, "attributes": {}}
    return {"user": {**nothing, **data.get("user", {})}, "data": data.get("data", {})}


def parse_journeys(text: str, origin: str) -> Journeys:
    """Read a journeys file. Raises SettingsError that names the kind and the key that is wrong."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"journeys file {origin}: {error}") from None
    tables = document.pop("kinds", None)
    if document:
        raise SettingsError(
            f"journeys file {origin}: unknown table {next(iter(document))!r}; it holds [kinds.NAME] only"
        )
    if not isinstance(tables, dict) or not tables:
        raise SettingsError(f"journeys file {origin}: it names no kind; add a [kinds.NAME] table")
    return Journeys(MappingProxyType({name: _parse_kind(name, table, origin) for name, table in tables.items()}))


def _parse_kind(name: str, table: object, origin: str) -> Kind:
    where = f"journeys file {origin}, kind {name!r}"
    if not _KIND_NAME.fullmatch(name):
        raise SettingsError(f"{where}: a name is lower-case letters, digits, and _ . - (at most 63), no @")
    if not isinstance(table, dict):
        raise SettingsError(f"{where}: write it as a table, [kinds.{name}]")
    unknown = set(table) - {"on", "template", "delay", "cancel_on", "cancel_grace", "max_age"}
    if unknown:
        raise SettingsError(f"{where}: unknown key {sorted(unknown)[0]!r}")
    on, template, cancel_on = table.get("on"), table.get("template", name), table.get("cancel_on", [])
    if not isinstance(on, str) or not _EVENT_TYPE.fullmatch(on):
        raise SettingsError(f"{where}: `on` must name the event type that asks for this mail")
    if not isinstance(template, str) or not _FOLDER.fullmatch(template):
        raise SettingsError(f"{where}: `template` must be the name of a folder of templates")
    if not isinstance(cancel_on, list) or not all(
        isinstance(item, str) and _EVENT_TYPE.fullmatch(item) for item in cancel_on
    ):
        raise SettingsError(f"{where}: `cancel_on` must be a list of event types")
    return Kind(
        name=name,
        on=on,
        template=template,
        delay=_duration(table.get("delay", "0s"), f"{where}: `delay`"),
        cancel_on=tuple(cancel_on),
        cancel_grace=_duration(table.get("cancel_grace", "0s"), f"{where}: `cancel_grace`"),
        max_age=_duration(table.get("max_age", "7d"), f"{where}: `max_age`"),
    )


def _duration(value: object, where: str) -> timedelta:
    length = parse_duration(value) if isinstance(value, str) else None
    if length is None:
        raise SettingsError(f'{where} must be a number and a unit of s, m, h, d or w, like "3d", not {value!r}')
    if length > _DELAY_MAX:
        raise SettingsError(f"{where} is longer than ten years")
    return length


def parse_duration(text: str) -> timedelta | None:
    """Read a number and a unit of s, m, h, d or w; None when it is no such thing. What is endless is very long."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        return None
    return timedelta(seconds=min(float(match[1]) * _UNIT_S[match[2]], _ENDLESS_S))
