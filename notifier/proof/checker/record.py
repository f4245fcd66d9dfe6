"""A history, sorted once: each request with its answer, each event with its tries, each notification's story."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any

from notifier.proof.checker.verdict import Finding
from notifier.proof.history import (
    Answer,
    Attempt,
    Fault,
    Invariants,
    KeysForgotten,
    Line,
    Mail,
    Opinion,
    Quiet,
    Request,
    Run,
    Signal,
)

ONBOARDING, FOLLOWUP = "onboarding", "followup"
KINDS = (ONBOARDING, FOLLOWUP)
CLOCKS_S = 0.01  # how far the recorder's idea of the database's clock and the provider's clock may lie apart
_NEVER = datetime.max.replace(tzinfo=UTC)


class NotAHistory(ValueError):
    """The lines are no history of a run; the message says what is missing."""


@dataclass(frozen=True)
class Exchange:
    """One request, and what came back if anything did."""

    request: Request
    answer: Answer | None

    @property
    def acknowledged(self) -> Answer | None:
        """The answer, where it says that the request took effect."""
        return self.answer if self.answer is not None and self.answer.status in (200, 202) else None

    @property
    def is_unclear(self) -> bool:
        """Whether the sender cannot know: no answer, or one that says the service could not tell itself."""
        return self.answer is None or self.answer.status is None or self.answer.status >= 500

    @property
    def is_replay(self) -> bool:
        """Whether the answer is said to be an earlier one's, in whichever way the door says so."""
        event = self.answer.body.get("event") if self.answer else None
        told_so = isinstance(event, dict) and event.get("duplicate") is True
        return told_so or (self.answer is not None and self.answer.replayed)


@dataclass(frozen=True)
class Ask:
    """One thing that was asked, with all its tries in the order of sending: an event's id, or an operator's act."""

    tries: tuple[Exchange, ...]

    @property
    def first(self) -> Request:
        """Where it was first sent."""
        return self.tries[0].request

    @cached_property
    def answered(self) -> Exchange | None:
        """The try whose acknowledgement was read first."""
        known = [one for one in self.tries if one.acknowledged]
        return min(known, key=lambda one: one.answer.mono if one.answer else 0.0, default=None)

    @cached_property
    def acknowledgement(self) -> Answer | None:
        """The first acknowledgement that was read."""
        return self.answered.answer if self.answered else None

    @cached_property
    def may_have_happened(self) -> bool:
        """Whether it took effect or may have."""
        return self.answered is not None or any(one.is_unclear for one in self.tries)

    @cached_property
    def said(self) -> Request:
        """What it said: the try that was acknowledged, or the first."""
        return (self.answered or self.tries[0]).request

    @cached_property
    def occurred(self) -> tuple[datetime, datetime]:
        """Between when and when it occurred: as the sender said, or else while the service had it in hand."""
        if self.said.occurred_at is not None:
            return self.said.occurred_at, self.said.occurred_at
        slack = timedelta(seconds=CLOCKS_S)
        return self.first.at - slack, self.acknowledgement.at + slack if self.acknowledgement else _NEVER

    def before(self, other: Ask) -> bool:
        """Whether this was acknowledged before the other was sent at all."""
        return self.acknowledgement is not None and self.acknowledgement.mono < other.first.mono

    @cached_property
    def lines(self) -> tuple[Line, ...]:
        """What shows it: the request, and the first acknowledgement or the lack of one."""
        shown = self.answered or self.tries[0]
        return (shown.request,) if shown.answer is None else (shown.request, shown.answer)


@dataclass
class Person:
    """All that was asked for one user."""

    user: str
    signups: list[Ask] = field(default_factory=list)
    logins: list[Ask] = field(default_factory=list)
    others: list[Ask] = field(default_factory=list)
    erasures: list[Ask] = field(default_factory=list)

    @property
    def events(self) -> Iterator[Ask]:
        """All but operators' acts."""
        yield from self.signups
        yield from self.logins
        yield from self.others

    def deciders(self, kind: str) -> list[Ask]:
        """The signups that may have decided this kind: the one that says it created it, or all that may have."""
        possible = [
            ask
            for ask in self.signups
            if ask.may_have_happened and not any(other.before(ask) for other in self.signups if other is not ask)
        ]
        creators = [ask for ask in possible if any("existing" not in entry for entry in _asked_for(ask, kind))]
        return creators or [ask for ask in possible if ask.answered is None] or possible


@dataclass
class Notification:
    """All that was seen of one user's one mail."""

    user: str
    kind: str
    person: Person
    mails: list[Mail] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    acts: list[Ask] = field(default_factory=list)
    opinions: list[Opinion] = field(default_factory=list)

    @cached_property
    def deciders(self) -> list[Ask]:
        """The signups that may have decided it."""
        return self.person.deciders(self.kind)

    @cached_property
    def decided(self) -> tuple[datetime, datetime]:
        """Between when and when the deciding signup occurred."""
        spans = [ask.occurred for ask in self.deciders]
        return min((span[0] for span in spans), default=_NEVER), max((span[1] for span in spans), default=_NEVER)

    def surely_concerned_by(self, login: Ask) -> bool:
        """Whether the login, if it happened, is one that stops this."""
        return self.kind == FOLLOWUP and bool(self.deciders) and login.occurred[0] >= self.decided[1]

    def perhaps_concerned_by(self, login: Ask) -> bool:
        """Whether the login may be one that stops this."""
        return self.kind == FOLLOWUP and bool(self.deciders) and login.occurred[1] >= self.decided[0]

    def acts_of(self, name: str, outcome: str | None = None) -> list[Ask]:
        """Operators' acts on it that happened or may have."""
        return [
            ask
            for ask in self.acts
            if ask.first.act == name
            and ask.may_have_happened
            and (outcome is None or ask.first.detail.get("outcome", outcome) == outcome)
        ]


@dataclass
class Record:
    """A history, indexed."""

    run: Run
    exchanges: list[Exchange]
    asks: list[Ask]
    people: dict[str, Person]
    notifications: dict[tuple[str, str], Notification]
    ids: dict[str, set[tuple[str, str]]]
    attempts: list[Attempt]
    mails: list[Mail]
    signals: list[Signal]
    faults: list[tuple[Fault, Fault | None]]
    forgotten: list[KeysForgotten]
    invariants: list[Invariants]
    quiet: Quiet | None
    strays: list[Answer]
    has_opinions: bool

    def finding(self, rule: str, about: Notification | str | None, sentence: str, *lines: Line | None) -> Finding:
        """Make a finding about a notification, a user, or the whole."""
        shown: list[Line] = []
        for line in lines:
            if line is not None and line not in shown:
                shown.append(line)
        shown.sort(key=lambda line: line.at)
        user = about.user if isinstance(about, Notification) else about
        kind = about.kind if isinstance(about, Notification) else None
        return Finding(rule, user, kind, sentence, tuple(shown), self.run.at)


def entries(body: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """One list of an answer; empty where there is none."""
    found = body.get(name)
    return [entry for entry in found if isinstance(entry, dict)] if isinstance(found, list) else []


def listed(answer: Answer, name: str, kind: str) -> dict[str, Any] | None:
    """What one list of an answer says of a kind, if it names it."""
    return next((entry for entry in entries(answer.body, name) if entry.get("kind") == kind), None)


def _asked_for(ask: Ask, kind: str) -> list[dict[str, Any]]:
    answer = ask.acknowledgement
    return [e for e in entries(answer.body, "notifications") if e.get("kind") == kind] if answer else []


def index(lines: Iterable[Line]) -> Record:
    """Sort a history. Raises NotAHistory where it does not begin with its run."""
    by_type: dict[type, list[Any]] = defaultdict(list)
    for line in lines:
        by_type[type(line)].append(line)
    if len(by_type[Run]) != 1:
        raise NotAHistory(f"a history has one line `run`, this one has {len(by_type[Run])}")
    exchanges, strays = _exchanges(by_type[Request], by_type[Answer])
    asks = _asks(exchanges)
    record = Record(
        run=by_type[Run][0],
        exchanges=exchanges,
        asks=asks,
        people=_people(asks),
        notifications={},
        ids=_ids(exchanges, by_type[Opinion]),
        attempts=sorted(by_type[Attempt], key=lambda line: (line.at, line.seq)),
        mails=sorted(by_type[Mail], key=lambda line: (line.at, line.seq)),
        signals=sorted(by_type[Signal], key=lambda line: line.at),
        faults=_spans(by_type[Fault]),
        forgotten=by_type[KeysForgotten],
        invariants=by_type[Invariants],
        quiet=by_type[Quiet][-1] if by_type[Quiet] else None,
        strays=strays,
        has_opinions=bool(by_type[Opinion]),
    )
    _fill(record, by_type[Opinion])
    return record


def _exchanges(requests: list[Request], answers: list[Answer]) -> tuple[list[Exchange], list[Answer]]:
    by_n: dict[int, Answer] = {}
    strays = []
    known = {request.n for request in requests}
    for answer in answers:
        if answer.n in by_n or answer.n not in known:
            strays.append(answer)
        else:
            by_n[answer.n] = answer
    ordered = sorted(requests, key=lambda request: (request.mono, request.n))
    return [Exchange(request, by_n.get(request.n)) for request in ordered], strays


def _asks(exchanges: list[Exchange]) -> list[Ask]:
    """Put the tries of one thing together: by the event's id at its source, or by what a request says it repeats."""
    groups: dict[tuple[str, str], list[Exchange]] = defaultdict(list)
    roots: dict[int, tuple[str, str]] = {}
    for one in exchanges:
        request = one.request
        if request.id is not None and request.door != "operate":
            name = ("webhook" if request.door == "webhook" else "api", request.id)
        else:
            name = roots.get(-1 if request.resends is None else request.resends, ("request", str(request.n)))
        roots[request.n] = name
        groups[name].append(one)
    return [Ask(tuple(group)) for group in groups.values()]


def _people(asks: list[Ask]) -> dict[str, Person]:
    people: dict[str, Person] = {}
    for ask in asks:
        user = ask.said.user
        if user is None:
            continue
        person = people.setdefault(user, Person(user))
        match ask.first.act:
            case "signup":
                person.signups.append(ask)
            case "login":
                person.logins.append(ask)
            case "erase":
                person.erasures.append(ask)
            case _ if ask.first.door != "operate":
                person.others.append(ask)
    return people


def _ids(exchanges: list[Exchange], opinions: list[Opinion]) -> dict[str, set[tuple[str, str]]]:
    """Whose notification an id is, as answers and the service's pages say."""
    found: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for one in exchanges:
        body = one.acknowledged.body if one.acknowledged else {}
        user = body.get("user_id") or one.request.user
        if user is None:
            continue
        for name in ("notifications", "canceled", "too_late", "untouched"):
            for entry in entries(body, name):
                found[str(entry.get("id"))].add((user, str(entry.get("kind"))))
        if one.request.door == "operate" and "kind" in body and "id" in body:
            found[str(body["id"])].add((user, str(body["kind"])))
    for opinion in opinions:
        found[opinion.id].add((opinion.user, opinion.kind))
    return found


def _spans(faults: list[Fault]) -> list[tuple[Fault, Fault | None]]:
    ends = {fault.n: fault for fault in faults if fault.phase == "end"}
    return [(fault, ends.get(fault.n)) for fault in faults if fault.phase == "begin"]


def _fill(record: Record, opinions: list[Opinion]) -> None:
    def of(user: str, kind: str) -> Notification:
        found = record.notifications.get((user, kind))
        if found is None:
            person = record.people.setdefault(user, Person(user))
            found = record.notifications[user, kind] = Notification(user, kind, person)
        return found

    for person in list(record.people.values()):
        if person.signups:
            for kind in KINDS:
                of(person.user, kind)
    for mail in record.mails:
        if mail.user is not None and mail.kind is not None:
            of(mail.user, mail.kind).mails.append(mail)
    for attempt in record.attempts:
        if attempt.user is not None and attempt.kind is not None:
            of(attempt.user, attempt.kind).attempts.append(attempt)
    for opinion in opinions:
        of(opinion.user, opinion.kind).opinions.append(opinion)
    for ask in record.asks:
        if ask.first.act in ("cancel", "retry", "resolve"):
            for user, kind in record.ids.get(str(ask.first.notification), set()):
                of(user, kind).acts.append(ask)
