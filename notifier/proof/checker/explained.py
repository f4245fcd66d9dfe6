"""Why a mail may lawfully be missing: acts and answers seen from outside, and `uncertain` where doubt was real."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from notifier.proof.checker.asks import FOLLOWUP, Ask, Notification, listed
from notifier.proof.checker.record import Record
from notifier.proof.checker.uncertain import why_uncertain
from notifier.proof.history import Line

MAX_AGE = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class Reason:
    """Why not. `excused`: it is no clean end, but one that nobody could have helped."""

    why: str
    lines: tuple[Line, ...] = ()
    excused: bool = False


def surely_owed(record: Record, about: Notification) -> bool:
    """Whether a signup of a person with an address was acknowledged, in time, and every reading of it asks for this."""
    if not any(ask.answered for ask in about.person.signups):
        return False
    return all(_has_address(record, about, ask) and _is_fresh(about, ask) for ask in about.deciders)


def why_missing(record: Record, about: Notification) -> Reason | None:
    """Why the mail need not be there; None: it must."""
    return _by_act(about) or _by_login(about) or _by_provider(about) or _by_doubt(record, about)


def due(record: Record, about: Notification) -> tuple[datetime, datetime]:
    """Between when and when it falls due."""
    delay = timedelta(seconds=record.run.followup_delay_s if about.kind == FOLLOWUP else 0.0)
    earliest, latest = about.decided
    never = latest.max.replace(tzinfo=latest.tzinfo) - delay
    return min(earliest, never) + delay, min(latest, never) + delay


def owed_since(record: Record, about: Notification) -> datetime:
    """When it can have been claimed at the earliest."""
    asked = min((ask.first.at for ask in about.deciders), default=record.run.at)
    return max(asked, due(record, about)[0]) if about.kind == FOLLOWUP else asked


def may_be_canceled(about: Notification) -> bool:
    """Whether anything was asked that could have canceled it."""
    by_login = any(ask.may_have_happened and about.perhaps_concerned_by(ask) for ask in about.person.logins)
    by_erasure = any(ask.may_have_happened for ask in about.person.erasures)
    return by_login or by_erasure or bool(about.acts_of("cancel"))


def standing_cancel(about: Notification) -> Ask | None:
    """An operator's cancel that no acknowledged retry has lifted."""
    retries = [ask for ask in about.acts_of("retry") if ask.acknowledgement]
    for ask in about.acts_of("cancel"):
        if ask.acknowledgement is None or not any(ask.before(retry) for retry in retries):
            return ask
    return None


def _by_act(about: Notification) -> Reason | None:
    for ask in about.person.erasures:
        if ask.may_have_happened:
            return Reason("its user was erased", ask.lines)
    if (cancel := standing_cancel(about)) is not None:
        return Reason("an operator canceled it", cancel.lines)
    for ask in about.acts_of("resolve", "sent"):
        return Reason("an operator said it was sent", ask.lines)
    for ask in about.acts_of("resolve", "not_sent"):
        if ask.acknowledgement is None:
            return Reason("an operator's resolve had no answer", ask.lines)
        logins = (login for login in about.person.logins if login.may_have_happened)
        if _says_canceled(ask) and (login := next(filter(about.perhaps_concerned_by, logins), None)) is not None:
            return Reason("resolved not sent, and a login stands", (*login.lines, *ask.lines))
    return None


def _says_canceled(ask: Ask) -> bool:
    return ask.acknowledgement is not None and ask.acknowledgement.body.get("state") == "canceled"


def _by_login(about: Notification) -> Reason | None:
    if about.kind != FOLLOWUP:
        return None
    for ask in about.person.logins:
        if not ask.may_have_happened or not about.perhaps_concerned_by(ask):
            continue
        answer = ask.acknowledgement
        if answer is None or not (listed(answer, "too_late", about.kind) or listed(answer, "untouched", about.kind)):
            return Reason("a login canceled it", ask.lines)
    return None


def _by_provider(about: Notification) -> Reason | None:
    retries = [ask for ask in about.acts_of("retry") if ask.acknowledgement]
    for attempt in about.attempts:
        if attempt.verdict == "rejected" and not any(retry.first.at > attempt.at for retry in retries):
            return Reason("the provider refused it for good", (attempt,))
    return None


def _by_doubt(record: Record, about: Notification) -> Reason | None:
    said = next((opinion for opinion in about.opinions if opinion.state == "uncertain"), None)
    if said is None:
        return None
    evidence = why_uncertain(record, about, said, owed_since(record, about))
    if evidence is None:
        return None
    return Reason("uncertain, and in doubt by the outside record", (*evidence, said), True)


def _has_address(record: Record, about: Notification, decider: Ask) -> bool:
    """Whether an address is surely known when it is needed: at once, or, for a follow-up, once it is due."""
    if decider.said.email is not None:
        return True
    for other in about.person.events:
        known = other.acknowledgement
        if other.said.email is None or known is None:
            continue
        if other.before(decider) or (about.kind == FOLLOWUP and known.at < due(record, about)[0]):
            return True
    return False


def _is_fresh(about: Notification, decider: Ask) -> bool:
    """Whether it was surely taken while it was young enough to mail anybody."""
    known = [ask.acknowledgement.at for ask in about.person.signups if ask.acknowledgement]
    latest = decider.acknowledgement.at if decider.acknowledgement else min(known)
    return latest - decider.occurred[0] <= MAX_AGE
