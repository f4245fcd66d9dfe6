"""I2: nobody gets the same mail twice, unless the provider forgot the first while the service could not know of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from itertools import pairwise

from notifier.proof.checker.asks import CLOCKS_S, Notification
from notifier.proof.checker.record import Record
from notifier.proof.checker.trouble import (
    all_that_hid,
    concerns,
    faults_between,
    is_of_the_database,
    is_refused,
    is_taken,
    must_have_been_repeated,
    on_its_way,
    stops,
)
from notifier.proof.checker.verdict import Finding
from notifier.proof.checker.working import is_unclear
from notifier.proof.history import Attempt, Fault, KeysForgotten, Line, Mail

WRITTEN_AFTER_S = 3.0  # a settler's longest pause between two tries, and a moment


def check(record: Record) -> tuple[list[Finding], list[Finding]]:
    """Give the copies, and those that are excused."""
    found: list[Finding] = []
    excused: list[Finding] = []
    for about in record.notifications.values():
        by_key: dict[str | None, list[Mail]] = defaultdict(list)
        for mail in about.mails:
            by_key[mail.key].append(mail)
        for first, second in (pair for mails in by_key.values() for pair in pairwise(mails)):
            excuse = _excuse(record, about, first, second) if first.key is not None else None
            if excuse is None:
                found.append(record.finding("I2", about, _twice(first), *_story(about, first, second)))
            else:
                sentence = "a second mail after the provider forgot its keys, while the first was in doubt"
                excused.append(record.finding("keys forgotten", about, sentence, first, *excuse, second))
        found += _too_many(record, about, list(by_key))
        found += _other_body(record, about)
        found += _other_key(record, about)
        found += _one_claim_twice(record, about)
    return found, excused


def _twice(mail: Mail) -> str:
    return "accepted twice" if mail.key is None else "accepted twice under one key"


def _too_many(record: Record, about: Notification, keys: Sequence[str | None]) -> Iterator[Finding]:
    """More keys than a person asked for; copies under one key are told already."""
    resolves = about.acts_of("resolve", "not_sent")
    if len(keys) <= 1 + len(resolves):
        return
    sentence = f"accepted under {len(keys)} keys, and a person asked for {len(resolves)} new ones"
    yield record.finding("I2", about, sentence, *about.mails, *(line for ask in resolves for line in ask.lines))


def _other_body(record: Record, about: Notification) -> Iterator[Finding]:
    for attempt in about.attempts:
        if attempt.verdict == "body_mismatch" and not _lacks_the_erased(record, attempt):
            yield record.finding("I2", about, "a repeat under the key carried another mail", *about.mails, attempt)
            return


def _other_key(record: Record, about: Notification) -> Iterator[Finding]:
    """A repeat under a key that no person had asked for by then; it need not be accepted to be wrong."""
    clocks = timedelta(seconds=CLOCKS_S)
    resolves = about.acts_of("resolve", "not_sent")
    first: dict[str | None, Attempt] = {}
    before: list[Attempt] = []
    for attempt in about.attempts:
        before.append(attempt)
        if attempt.key in first:
            continue
        if record.run.batch_max > 1 and all(is_refused(other) for other in before[:-1]):
            first.clear()  # a batch that was surely refused is dissolved, and its mails may go in others
        first[attempt.key] = attempt
        asked = [ask for ask in resolves if ask.first.at <= attempt.at + clocks]
        if len(first) > 1 + len(asked):
            sentence = f"called under {len(first)} keys, and a person had asked for {len(asked)} new ones"
            yield record.finding("I2", about, sentence, *first.values(), *(line for ask in asked for line in ask.lines))
            return


def _lacks_the_erased(record: Record, repeat: Attempt) -> bool:
    """Whether it is a batch's repeat, and all who were in it before and are no more were erased."""
    same = [attempt for attempt in record.attempts if attempt.key == repeat.key]
    now = {attempt.user for attempt in same if attempt.at == repeat.at}
    gone = {attempt.user for attempt in same if attempt.at < repeat.at} - now
    people = [record.people[user] for user in gone if user is not None and user in record.people]
    erased = [any(ask.may_have_happened for ask in person.erasures) for person in people]
    return record.run.batch_max > 1 and bool(erased) and len(erased) == len(gone) and all(erased)


def _one_claim_twice(record: Record, about: Notification) -> Iterator[Finding]:
    """Two workers under one generation: a claim is one worker's, and no generation is ever used again."""
    claims: dict[int, Attempt] = {}
    for attempt in about.attempts:
        if attempt.generation is None or attempt.worker is None:
            continue
        first = claims.setdefault(attempt.generation, attempt)
        if first.worker != attempt.worker:
            yield record.finding("I2", about, "two workers called for it under one generation", first, attempt)
            return


def _story(about: Notification, first: Mail, second: Mail) -> Iterator[Line]:
    yield from (first, second)
    for attempt in about.attempts:
        if attempt.verdict == "accepted" and {first.id, second.id} & set(attempt.message_ids):
            yield attempt


def _excuse(record: Record, about: Notification, first: Mail, second: Mail) -> tuple[Line, ...] | None:
    """Why the second is nobody's fault: keys forgotten in between, and the service could not know of the first."""
    if not record.run.has_keys:
        return None
    for forgotten in record.forgotten:
        if first.at <= forgotten.at <= second.at:
            why = _on_its_way(record, about, forgotten, second) or _in_doubt(record, about, first, forgotten.at)
            if why is not None:
                return (forgotten, *why)
    return None


def _on_its_way(record: Record, about: Notification, forgotten: KeysForgotten, second: Mail) -> tuple[Line, ...] | None:
    """Whether the second call had begun before the keys were forgotten, and came through only afterwards."""
    call = next((attempt for attempt in about.attempts if second.id in attempt.message_ids), None)
    return None if call is None else on_its_way(record, call, forgotten.at)


def _in_doubt(record: Record, about: Notification, first: Mail, until: datetime) -> tuple[Line, ...] | None:
    """Whether every call that told of the first mail before `until` may have been told to nobody."""
    telling: list[Attempt] = [
        attempt for attempt in about.attempts if is_taken(attempt) and first.at <= attempt.at <= until
    ]
    telling += [attempt for attempt in about.attempts if first.id in attempt.message_ids and attempt not in telling]
    hidden = [_what_hid(record, attempt, telling, until) for attempt in telling]
    if not telling or any(line is None for line in hidden):
        return None
    return tuple(line for line in hidden if line is not None)


def _what_hid(record: Record, attempt: Attempt, telling: Sequence[Attempt], until: datetime) -> Line | None:
    """What hid the outcome of this call up to then; None: it was known, or must have been."""
    reasons = list(all_that_hid(record, attempt))
    if not reasons or is_unclear(attempt) or any(attempt.at < later.at <= until for later in telling):
        return reasons[0] if reasons else None
    if must_have_been_repeated(record, attempt, until):
        return None
    return next((why for why in reasons if not _was_written(record, attempt, why, until)), None)


def _was_written(record: Record, attempt: Attempt, why: Line, until: datetime) -> bool:
    """Whether it was only the database that was away, and its worker wrote the outcome as soon as it was back."""
    pod = record.pod_of(attempt.worker)
    if not isinstance(why, Fault) or not is_of_the_database(why, pod) or (end := record.ends.get(why.n)) is None:
        return False
    written = end.at + timedelta(seconds=WRITTEN_AFTER_S)
    others = (fault for fault in faults_between(record, end.at, written) if fault != why)
    stopped = any(stops(record.fate_of(attempt.worker), attempt.at, written))
    if written > until or stopped or any(is_of_the_database(fault, pod) for fault in others):
        return False
    ran_out = attempt.at + timedelta(seconds=record.run.claim_ttl_s - record.run.provider_timeout_s)
    if why.family == "postgres":
        ran_out = max(ran_out, end.at)  # until then nobody could take it over either
    if written <= ran_out:
        return True
    # Somebody may have taken it over meanwhile: a call of theirs that came to the provider would stand among its calls.
    wires = any(fault.hides_answers and concerns(fault) for fault in faults_between(record, ran_out, written))
    return not wires and not any(any(stops(fate, ran_out, written)) for fate in record.fates.values())
