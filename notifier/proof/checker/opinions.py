"""I6: what the service says of itself at the end, compared with what was found from outside; never built upon."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from notifier.proof.checker.asks import KINDS, Ask, Notification
from notifier.proof.checker.explained import due, may_be_canceled, owed_since
from notifier.proof.checker.owed import OPEN
from notifier.proof.checker.promises import Promise, promises
from notifier.proof.checker.record import Record
from notifier.proof.checker.uncertain import why_uncertain
from notifier.proof.checker.verdict import Finding
from notifier.proof.history import Opinion


def check(record: Record) -> list[Finding]:
    """Give every opinion that the record contradicts."""
    found: list[Finding] = []
    for about in record.notifications.values():
        if len(about.opinions) > 1:
            found.append(record.finding("I6", about, "the service has two rows for it", *about.opinions))
        for opinion in about.opinions[:1]:
            found += _of_one(record, about, opinion)
        if record.has_opinions and not about.opinions:
            found += _unknown(record, about)
    for promise in promises(record):
        found += _forgot(record, promise)
    for line in record.invariants:
        if line.document.get("violations"):
            rules = line.document.get("invariants", {})
            broken = sorted(name for name, rule in rules.items() if isinstance(rule, dict) and rule.get("violations"))
            sentence = f"the service counts violations of its own: {', '.join(broken) or 'unnamed'}"
            found.append(record.finding("I6", None, sentence, line))
    return found


def _of_one(record: Record, about: Notification, opinion: Opinion) -> Iterator[Finding]:
    state = opinion.state
    at_rest = record.quiet is not None and record.quiet.reached  # else what was open then may be accepted by now
    asked = about.kind in KINDS and any(ask.may_have_happened for ask in about.person.signups)
    if not asked:
        yield record.finding("I5", about, f"{state}, and nobody had asked for it", opinion)
    elif state != "sent" and (resolved := _resolved_sent(about)) is not None:
        yield record.finding("I6", about, f"resolved as sent, and called {state}", *resolved.lines, opinion)
    elif state == "sent" and not about.mails and not about.acts_of("resolve", "sent"):
        yield record.finding("I6", about, "called sent, and the provider never accepted it", *about.attempts, opinion)
    elif state in OPEN and not at_rest:
        return  # told under `quiet`
    elif about.mails and state not in ("sent", "uncertain") and not about.acts_of("resolve", "not_sent"):
        yield record.finding("I6", about, f"accepted, and called {state}", *about.mails, opinion)
    elif state in OPEN:
        yield from _still_open(record, about, opinion)
    elif state != "sent" and not opinion.reason:
        yield record.finding("I6", about, f"ended {state}, and no reason is given", opinion)
    elif state == "canceled" and not may_be_canceled(about):
        yield record.finding("I6", about, "canceled, and nobody had asked for that", opinion)
    elif state == "uncertain" and why_uncertain(record, about, opinion, owed_since(record, about)) is None:
        sentence = "uncertain, and nothing seen from outside kept the service from knowing"
        yield record.finding("I6", about, sentence, *about.attempts, opinion)


def _resolved_sent(about: Notification) -> Ask | None:
    """An operator's word that it was sent, where the service took it: that is final."""
    return next((ask for ask in about.acts_of("resolve", "sent") if ask.acknowledgement is not None), None)


def _still_open(record: Record, about: Notification, opinion: Opinion) -> Iterator[Finding]:
    quiet = record.quiet
    assert quiet is not None, "what is open is looked at only when all has come to rest"
    is_due = due(record, about)[1] <= quiet.at - timedelta(seconds=2 * record.run.poll_s)
    if opinion.state != "scheduled" or is_due:
        yield record.finding("I6", about, f"still {opinion.state} when all had come to rest", quiet, opinion)


def _unknown(record: Record, about: Notification) -> Iterator[Finding]:
    acknowledged = [ask for ask in about.person.signups if ask.acknowledgement]
    erased = any(ask.may_have_happened for ask in about.person.erasures)
    if about.mails or (acknowledged and not erased):
        lines = (line for ask in acknowledged[:1] for line in ask.lines)
        yield record.finding("I6", about, "the service does not know of it at all", *lines, *about.mails)


def _forgot(record: Record, promise: Promise) -> Iterator[Finding]:
    for opinion in promise.about.opinions[:1]:
        if promise.lifted is None and opinion.state != "canceled" and not promise.about.mails:
            shown = (promise.exchange.request, promise.answer, opinion)
            sentence = f"an answer lists it as canceled, and at the end it is {opinion.state}"
            yield record.finding("I6", promise.about, sentence, *shown)
