"""What logins and erasures are told: every notification in one list, the right one, borne out by the provider."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from notifier.proof.checker.asks import CLOCKS_S, KINDS, Ask, Exchange, Notification, Person, entries, listed
from notifier.proof.checker.explained import owed_since
from notifier.proof.checker.record import Record
from notifier.proof.checker.trouble import AFTERMATH_S, HOLDING_FAMILIES, STOPPING, doubt, faults_between
from notifier.proof.checker.verdict import Finding
from notifier.proof.history import Answer

RULE = "answers"
THREE_LISTS = ("canceled", "too_late", "untouched")
TOO_LATE = ("pending", "sending", "sent", "uncertain")


def check(record: Record) -> list[Finding]:
    """Give every login's or erasure's answer that cannot be right."""
    found: list[Finding] = []
    for person in record.people.values():
        for ask in person.logins:
            if ask.answered is not None and ask.acknowledgement is not None:
                found += _login(record, person, ask, ask.answered, ask.acknowledgement)
        for ask in person.erasures:
            for one in ask.tries:
                if one.acknowledged is not None:
                    found += _erasure(record, person, ask, one, one.acknowledged)
    for about in record.notifications.values():
        found += _canceled_twice(record, about)
    return found


def _login(record: Record, person: Person, ask: Ask, one: Exchange, answer: Answer) -> Iterator[Finding]:
    if "untouched" in answer.body:
        yield from _all_listed_once(record, person, ask, one, answer)
    for kind in KINDS:
        about = record.notifications.get((person.user, kind))
        if about is None or not about.deciders:
            continue
        lists = {name: entry for name in THREE_LISTS if (entry := listed(answer, name, kind)) is not None}
        shown = (*about.deciders[0].lines, one.request, answer)
        if not about.perhaps_concerned_by(ask) and ("canceled" in lists or "too_late" in lists):
            yield record.finding(RULE, about, "a login that does not concern it is told that it does", *shown)
        elif about.surely_concerned_by(ask):
            if "untouched" in lists and lists["untouched"].get("state") not in ("canceled", "skipped", "failed"):
                sentence = f"{lists['untouched'].get('state')}, and untouched by a login that concerns it"
                yield record.finding(RULE, about, sentence, *shown)
            elif about.mails and not lists.keys() & {"too_late", "canceled"}:  # canceled: told under I3
                sentence = "accepted, and a login that concerns it was not told that it came too late"
                yield record.finding(RULE, about, sentence, *shown, *about.mails)
            elif not lists and _must_be_named(about, ask):
                yield record.finding(RULE, about, "open, and named in no list by a login that concerns it", *shown)
        if "too_late" in lists:
            yield from _too_late(record, about, one, answer, lists["too_late"])


def _must_be_named(about: Notification, login: Ask) -> bool:
    """Whether it was there and open when the login came, as nothing else can have closed it before."""
    person = about.person
    others = (ask for ask in (*person.logins, *person.erasures, *about.acts) if ask is not login)
    return (
        not about.mails
        and any(signup.before(login) for signup in person.signups)
        and not any(other.may_have_happened for other in others)
        and not any(opinion.state in ("skipped", "failed") for opinion in about.opinions)
    )


def _erasure(record: Record, person: Person, ask: Ask, one: Exchange, answer: Answer) -> Iterator[Finding]:
    yield from _all_listed_once(record, person, ask, one, answer)
    for kind in KINDS:
        about = record.notifications.get((person.user, kind))
        if about is None:
            continue
        untouched, late = listed(answer, "untouched", kind), listed(answer, "too_late", kind)
        if untouched is not None and untouched.get("state") not in ("canceled", "skipped", "failed"):
            sentence = f"{untouched.get('state')}, and untouched by the erasure of its user"
            yield record.finding(RULE, about, sentence, one.request, answer)
        if late is not None:
            yield from _too_late(record, about, one, answer, late)


def _all_listed_once(record: Record, person: Person, ask: Ask, one: Exchange, answer: Answer) -> Iterator[Finding]:
    """Whatever a signup's answer listed before this was sent stands in exactly one list."""
    known = {
        entry.get("kind"): signup
        for signup in person.signups
        if signup.before(ask) and signup.acknowledgement is not None
        for entry in entries(signup.acknowledgement.body, "notifications")
    }
    told = [entry.get("kind") for name in THREE_LISTS for entry in entries(answer.body, name)]
    for kind in sorted({str(kind) for kind in (*known, *told)}):
        times = told.count(kind)
        if times > 1 or (times == 0 and kind in known):
            about = record.notifications.get((person.user, kind)) or person.user
            signup = known[kind].lines if kind in known else ()
            sentence = f"an answer lists it {times} times, not once"
            yield record.finding(RULE, about, sentence, *signup, one.request, answer)


def _too_late(
    record: Record, about: Notification, one: Exchange, answer: Answer, entry: dict[str, Any]
) -> Iterator[Finding]:
    """What is called too late was claimed, in doubt or sent; the provider's record must bear it out."""
    state, since = str(entry.get("state")), entry.get("since")
    shown = (one.request, answer)
    if state not in TOO_LATE:
        yield record.finding(RULE, about, f"called too late, and {state}", *shown)
    elif state == "pending" and since is None:
        yield record.finding(RULE, about, "called too late, and pending without doubt", *shown)
    elif state == "sent" and not _was_sent(about, answer):
        sentence = "called sent, and the provider had not accepted it"
        yield record.finding(RULE, about, sentence, *shown, *about.mails)
    elif state != "sent" and answer.at < owed_since(record, about) - timedelta(seconds=CLOCKS_S):
        yield record.finding(RULE, about, f"called too late, and {state}, before it was due", *shown)
    elif state in ("pending", "uncertain") and doubt(record, about, owed_since(record, about), answer.at) is None:
        sentence = "called in doubt, and nothing seen from outside could have brought it there"
        yield record.finding(RULE, about, sentence, *shown, *about.attempts)
    elif state == "sending" and not _was_claimed(record, about, answer, since):
        sentence = "called claimed, and no call of that claim can have come, with no trouble to explain it"
        yield record.finding(RULE, about, sentence, *shown)


def _was_sent(about: Notification, answer: Answer) -> bool:
    latest = answer.at + timedelta(seconds=CLOCKS_S)
    resolved = any(ask.first.mono <= answer.mono for ask in about.acts_of("resolve", "sent"))
    return resolved or any(mail.at <= latest for mail in about.mails)


def _was_claimed(record: Record, about: Notification, answer: Answer, since: object) -> bool:
    """Whether that claim's call came, or a reason why not: trouble at the time, a later cancel, an end in doubt."""
    clocks, claim = timedelta(seconds=CLOCKS_S), timedelta(seconds=record.run.claim_ttl_s)
    claimed, latest = answer.at - claim, answer.at
    if isinstance(since, str):
        claimed = latest = datetime.fromisoformat(since)
        if claimed < owed_since(record, about) - clocks:
            return False  # nobody can have claimed it yet
    if any(claimed - clocks <= call.at <= latest + claim + clocks for call in about.attempts):
        return True
    if any(opinion.state == "uncertain" for opinion in about.opinions):
        return True
    begin, end = min(claimed, answer.at) - claim, answer.at + claim
    if any(begin <= line.at <= end and line.signal in (*STOPPING, "TERM") for line in record.signals):
        return True
    if any(fault.family in HOLDING_FAMILIES for fault in faults_between(record, begin, end, AFTERMATH_S)):
        return True
    later = [ask for ask in about.person.logins if ask.first.mono > answer.mono or ask.acknowledgement is None]
    erased = any(ask.may_have_happened for ask in about.person.erasures)
    return erased or any(ask.may_have_happened for ask in (*later, *about.acts_of("cancel")))


def _canceled_twice(record: Record, about: Notification) -> Iterator[Finding]:
    """Only one event, and only one erasure, can have stopped it."""
    stopped: list[Exchange] = []
    for ask in (*about.person.logins, *about.person.erasures):
        tries = [one for one in ask.tries if one.acknowledged and listed(one.acknowledged, "canceled", about.kind)]
        stopped += tries if ask.first.act == "erase" else tries[:1]
    if len(stopped) > 1:
        lines = [line for one in stopped[:2] for line in (one.request, one.answer)]
        yield record.finding(RULE, about, "two answers each say that they canceled it", *lines)
