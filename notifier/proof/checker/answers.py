"""The answers themselves: one event id takes effect once and is answered the same way each time; one id, one row."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime, timedelta

from notifier.proof.checker.asks import FOLLOWUP, KINDS, Ask, Exchange, Notification, Person, entries
from notifier.proof.checker.explained import due
from notifier.proof.checker.record import Record
from notifier.proof.checker.verdict import LISTS, Finding
from notifier.proof.history import Answer

RULE = "answers"
ROUNDING_S = 0.001  # the service keeps microseconds; a sender may print fewer digits


def check(record: Record) -> list[Finding]:
    """Give every answer that contradicts another, or the contract."""
    found = list(_ids(record))
    for ask in record.asks:
        if ask.first.door != "operate":
            found += _repeats(record, ask)
    for person in record.people.values():
        for ask in person.signups:
            if ask.acknowledgement is not None:
                found += _signup(record, person, ask, ask.acknowledgement)
    for about in record.notifications.values():
        found += _created_once(record, about)
    return found


def _ids(record: Record) -> Iterator[Finding]:
    """A notification has one id for ever, and an id one notification."""
    by_notification: dict[tuple[str, str], set[str]] = defaultdict(set)
    for notification_id, owners in record.ids.items():
        for owner in owners:
            by_notification[owner].add(notification_id)
        if len(owners) > 1:
            yield record.finding(RULE, None, f"one id names {len(owners)} notifications: {notification_id}")
    for (user, kind), ids in by_notification.items():
        if len(ids) > 1:
            about = record.notifications.get((user, kind))
            sentence = f"the service knows it under {len(ids)} ids: {', '.join(sorted(ids))}"
            person = record.people.get(user)
            lines = [line for ask in person.signups for line in ask.lines] if person else []
            yield record.finding(RULE, about or user, sentence, *lines)


def _repeats(record: Record, ask: Ask) -> Iterator[Finding]:
    """All acknowledgements of one id say the same; one at most says that it was the first."""
    known = [(one, one.acknowledged) for one in ask.tries if one.acknowledged is not None]
    first = ask.answered
    if first is None or first.answer is None:
        return
    user = ask.said.user
    for one, answer in known:
        if _content(one) != _content(first):
            sentence = "one id, two contents, and both were acknowledged"
            yield record.finding(RULE, user, sentence, *ask.lines, one.request, answer)
            return
        if any(entries(answer.body, name) != entries(first.answer.body, name) for name in LISTS):
            sentence = "a repeat was told something else than the first answer"
            yield record.finding("I3", user, sentence, *ask.lines, one.request, answer)
            return
    fresh = [(one, answer) for one, answer in known if not one.is_replay]
    if len(fresh) > 1:
        lines = (line for pair in fresh[:2] for line in (pair[0].request, pair[1]))
        yield record.finding(RULE, user, "one id was taken as new twice", *lines)
    for one, answer in known:
        if ask.first.door != "webhook" and (answer.status == 200) != one.is_replay:
            sentence = f"answered {answer.status}, which does not fit {'a replay' if one.is_replay else 'a new event'}"
            yield record.finding(RULE, user, sentence, one.request, answer)
            return
        earlier = [other for other in ask.tries if other is not one and other.request.mono <= answer.mono]
        if one.is_replay and not earlier:
            yield record.finding(RULE, user, "a replay of what nobody had sent before", one.request, answer)
            return


def _content(one: Exchange) -> tuple[str, str | None, datetime | None, str | None]:
    return one.request.act, one.request.user, one.request.occurred_at, one.request.email


def _signup(record: Record, person: Person, ask: Ask, answer: Answer) -> Iterator[Finding]:
    """What a signup's answer must list, and as what."""
    erased = [other for other in person.erasures if other.may_have_happened and other.first.mono < answer.mono]
    for kind in KINDS:
        told = [entry for entry in entries(answer.body, "notifications") if entry.get("kind") == kind]
        about = record.notifications[person.user, kind]
        if len(told) != 1 and not (erased and not told):
            yield record.finding(RULE, about, f"a signup's answer lists it {len(told)} times", *ask.lines)
        elif told and told[0].get("existing") and not _had_one_before(person, ask, answer):
            yield record.finding(RULE, about, "called existing, and nobody else had asked for it", *ask.lines)
        elif told and not _due_fits(record, about, told[0].get("due_at")):
            sentence = f"due at {told[0].get('due_at')}, which is not the signup's time and the delay"
            yield record.finding(RULE, about, sentence, *about.deciders[0].lines, *ask.lines)
        elif told and kind == FOLLOWUP and "existing" not in told[0]:
            yield from _created_as(record, person, ask, about, str(told[0].get("state")))


def _had_one_before(person: Person, ask: Ask, answer: Answer) -> bool:
    return any(
        other is not ask and other.may_have_happened and other.first.mono < answer.mono for other in person.signups
    )


def _due_fits(record: Record, about: Notification, said: object) -> bool:
    if not isinstance(said, str) or not about.deciders:
        return False
    slack = timedelta(seconds=ROUNDING_S)
    earliest, latest = due(record, about)
    never = latest.max.replace(tzinfo=latest.tzinfo) - slack
    return earliest - slack <= datetime.fromisoformat(said) <= min(latest, never) + slack


def _created_as(record: Record, person: Person, ask: Ask, about: Notification, state: str) -> Iterator[Finding]:
    """A follow-up is created canceled where a login counts against it that was taken before, and only there."""
    if state == "canceled":
        might = [
            login
            for login in person.logins
            if login.may_have_happened
            and login.occurred[1] >= ask.occurred[0]
            and (ask.acknowledgement is None or login.first.mono < ask.acknowledgement.mono)
        ]
        if not might:
            yield record.finding(RULE, about, "created as canceled, and no login had asked for that", *ask.lines)
        return
    for login in person.logins:
        if login.before(ask) and login.occurred[0] >= ask.occurred[1]:
            sentence = f"created as {state}, though a later login had been acknowledged before"
            yield record.finding(RULE, about, sentence, *login.lines, *ask.lines)
            return


def _created_once(record: Record, about: Notification) -> Iterator[Finding]:
    creators = [
        ask
        for ask in about.person.signups
        if ask.acknowledgement is not None
        and any(
            entry.get("kind") == about.kind and "existing" not in entry
            for entry in entries(ask.acknowledgement.body, "notifications")
        )
    ]
    if len(creators) > 1:
        lines = (line for ask in creators[:2] for line in ask.lines)
        yield record.finding(RULE, about, "two events each say that they created it", *lines)
