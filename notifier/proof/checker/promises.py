"""I3: what an answer lists as canceled is never accepted, and no call for it arrives after that answer was read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from notifier.proof.checker.asks import CLOCKS_S, Ask, Exchange, Notification, entries
from notifier.proof.checker.record import Record
from notifier.proof.checker.trouble import on_its_way
from notifier.proof.checker.verdict import Finding
from notifier.proof.history import Answer


@dataclass(frozen=True, slots=True)
class Promise:
    """An answer that says of a notification that it is canceled. `lifted`: from when on that may be over.

    `was_in_doubt`: an operator resolved it so; a mail or a call of the claim in doubt may stand before the answer.
    """

    about: Notification
    exchange: Exchange
    answer: Answer
    lifted: datetime | None = None
    was_in_doubt: bool = False


def check(record: Record) -> list[Finding]:
    """Give every promise that was not kept."""
    found: list[Finding] = []
    for promise in promises(record):
        found += _broken(record, promise)
    return found


def promises(record: Record) -> Iterator[Promise]:
    """All promises, one for each answer and notification."""
    for ask in record.asks:
        for one in ask.tries:
            if one.acknowledged is not None:
                yield from _promised(record, ask, one, one.acknowledged)


def _promised(record: Record, ask: Ask, one: Exchange, answer: Answer) -> Iterator[Promise]:
    user = ask.said.user or answer.body.get("user_id")
    if ask.first.act in ("cancel", "resolve"):
        if answer.body.get("state") == "canceled":
            for about in _named(record, str(ask.first.notification)):
                yield Promise(about, one, answer, _lifted(about, answer), ask.first.act == "resolve")
        return
    if ask.first.act in ("retry", "read", "switch") or user is None:  # what is read promises nothing
        return
    kinds = [str(entry.get("kind")) for entry in entries(answer.body, "canceled")]
    for kind in kinds:
        if (named := record.notifications.get((user, kind))) is not None:
            yield Promise(named, one, answer)
    for entry in entries(answer.body, "notifications"):  # created canceled, or found so
        named = record.notifications.get((user, str(entry.get("kind"))))
        if named is None or entry.get("state") != "canceled":
            continue
        if "existing" not in entry or not named.acts_of("cancel") + named.acts_of("retry") + named.acts_of("resolve"):
            yield Promise(named, one, answer)


def _named(record: Record, notification: str) -> Iterator[Notification]:
    for user, kind in record.ids.get(notification, ()):
        if (about := record.notifications.get((user, kind))) is not None:
            yield about


def _lifted(about: Notification, answer: Answer) -> datetime | None:
    """When a retry that came after the cancel was sent, if one was."""
    later = [ask.first.at for ask in about.acts_of("retry") if ask.tries[-1].request.mono > answer.mono]
    return min(later, default=None)


def _broken(record: Record, promise: Promise) -> Iterator[Finding]:
    about, lifted = promise.about, promise.lifted
    shown = (promise.exchange.request, promise.answer)
    clocks = timedelta(seconds=CLOCKS_S)
    for mail in () if promise.was_in_doubt else about.mails:
        if lifted is None or mail.at < lifted - clocks:
            sentence = "an answer lists it as canceled, and the provider accepted it"
            yield record.finding("I3", about, sentence, *shown, mail)
            return
    for attempt in about.attempts:
        if promise.was_in_doubt and on_its_way(record, attempt, promise.answer.at):
            continue
        if attempt.at > promise.answer.at + clocks and (lifted is None or attempt.at < lifted - clocks):
            sentence = "an answer lists it as canceled, and a call for it arrived afterwards"
            yield record.finding("I3", about, sentence, *shown, attempt)
            return
