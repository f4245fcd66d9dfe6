"""What was asked and what came of it: a request with its answer, an event with its tries, a notification with all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any

from notifier.proof.history import Answer, Attempt, Line, Mail, Opinion, Request

ONBOARDING, FOLLOWUP = "onboarding", "followup"
KINDS = (ONBOARDING, FOLLOWUP)
CLOCKS_S = 0.01  # how far the recorder's idea of the database's clock and the provider's clock may lie apart
_NEVER = datetime.max.replace(tzinfo=UTC)


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
