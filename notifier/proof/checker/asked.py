"""I5: nothing is accepted that no request asked for: this user, this kind, this address, at this time."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from notifier.proof.checker.asks import CLOCKS_S, KINDS, Ask, Notification, Person
from notifier.proof.checker.record import Record
from notifier.proof.checker.verdict import Finding
from notifier.proof.history import Line, Mail


def check(record: Record) -> list[Finding]:
    """Give every mail that nobody asked for."""
    found = [
        record.finding("I5", mail.user, "accepted for nobody known: it names no user or no kind", mail)
        for mail in record.mails
        if mail.user is None or mail.kind is None
    ]
    for about in record.notifications.values():
        for mail in about.mails:
            found += _unasked(record, about, mail)
    return found


def _unasked(record: Record, about: Notification, mail: Mail) -> Iterator[Finding]:
    person = about.person
    signups = [ask for ask in person.signups if _came_before(ask, mail) and not _was_erased(person, ask)]
    if about.kind not in KINDS or not signups:
        yield record.finding("I5", about, "accepted, and nobody had asked for it", *_lines(person.signups), mail)
        return
    given = [ask for ask in person.events if ask.said.email is not None and _came_before(ask, mail)]
    known = {one.request.email.casefold() for ask in given for one in ask.tries if one.request.email is not None}
    if len(mail.to) != 1 or mail.to[0].casefold() not in known:
        sentence = f"accepted for {', '.join(mail.to) or 'no address'}, which nobody gave for this user"
        yield record.finding("I5", about, sentence, *_lines(given), mail)


def _was_erased(person: Person, signup: Ask) -> bool:
    """Whether it came only after an acknowledged erasure: a later event of an erased id asks for nothing."""
    return any(erasure.before(signup) for erasure in person.erasures)


def _came_before(ask: Ask, mail: Mail) -> bool:
    return ask.may_have_happened and ask.first.at <= mail.at + timedelta(seconds=CLOCKS_S)


def _lines(asks: list[Ask]) -> Iterator[Line]:
    for ask in asks:
        yield from ask.lines
