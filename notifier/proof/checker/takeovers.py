"""I7: what a dead or frozen worker had in hand comes to the provider again in time, unless something held it up."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime, timedelta

from notifier.proof.checker.asks import Notification
from notifier.proof.checker.explained import why_missing
from notifier.proof.checker.record import Record
from notifier.proof.checker.trouble import (
    AFTERMATH_S,
    STOPPING,
    concerns,
    faults_between,
    is_taken,
    must_have_been_repeated,
    switched,
)
from notifier.proof.checker.verdict import Finding, Takeover
from notifier.proof.history import Attempt, Signal

SLACK_S = 2.0  # a busy host, and the call itself
STARTUP_S = 5.0  # from a process's start until it surely claims


def check(record: Record) -> tuple[list[Finding], list[Takeover]]:
    """Give what came too late or never, and every takeover that was seen."""
    found: list[Finding] = []
    takeovers: list[Takeover] = []
    if not record.run.has_keys:
        return found, takeovers  # without keys nothing is repeated
    calls: dict[str, list[tuple[Notification, int]]] = defaultdict(list)
    for about in record.notifications.values():
        for place, attempt in enumerate(about.attempts):
            if attempt.worker is not None:
                calls[attempt.worker].append((about, place))
    judged: set[int] = set()  # one that froze before it died held its calls once
    for death in _deaths(record):
        assert death.worker is not None
        for about, place in calls[death.worker]:
            attempt = about.attempts[place]
            if attempt.seq not in judged and _was_in_hand(record, attempt, death):
                judged.add(attempt.seq)
                found += _judge(record, about, place, death, takeovers)
    return found, takeovers


def _deaths(record: Record) -> Iterator[Signal]:
    """The moments in which a worker, known by name, died or froze; one that drained first is none."""
    drained: set[int] = set()
    dead: set[int] = set()
    for line in record.signals:
        if line.signal in ("TERM", "INT") or (line.signal == "END" and not line.by):
            drained.add(line.pid)  # an end of its own without an exit code: it drained, or was killed before
        elif line.signal in STOPPING and line.worker is not None and line.pid not in drained | dead:
            if line.signal != "STOP":
                dead.add(line.pid)
            yield line


def _was_in_hand(record: Record, attempt: Attempt, death: Signal) -> bool:
    """Whether the call may have been under way, or its outcome unwritten, when its worker died."""
    run = record.run
    return attempt.at <= death.at <= attempt.at + timedelta(seconds=run.provider_timeout_s + SLACK_S)


def _judge(
    record: Record, about: Notification, place: int, death: Signal, takeovers: list[Takeover]
) -> Iterator[Finding]:
    attempt, run = about.attempts[place], record.run
    repeat = next((later for later in about.attempts[place + 1 :] if later.at > death.at), None)
    if any(ask.first.at >= death.at for ask in about.acts):
        return  # a person saw to it
    latest = attempt.at + timedelta(seconds=2 * run.claim_ttl_s + run.poll_s + SLACK_S)
    held_up = _held_up(record, attempt, latest, death)
    if repeat is None:
        may_be_settled = bool(about.mails) or is_taken(attempt) or _thawed(record, death)
        is_over = record.quiet is not None and record.quiet.at > latest
        if not may_be_settled and is_over and held_up is None and why_missing(record, about) is None:
            sentence = "in the hands of a dead worker, and never repeated by anybody"
            yield record.finding("I7", about, sentence, attempt, death, *about.opinions)
    elif repeat.worker != death.worker:
        if held_up is None and (not is_taken(attempt) or _thawed(record, death, repeat.at)):
            held_up = "its outcome may have been written, and its next turn lay that far ahead"
        seconds = (repeat.at - death.at).total_seconds()
        claims = max(1, (repeat.generation or 0) - (attempt.generation or 0))
        takeovers.append(Takeover(about.user, about.kind, str(death.worker), death.by, seconds, held_up, claims))
        others = (claims - 1) * timedelta(seconds=run.claim_ttl_s + run.poll_s)  # each ran out, too
        if repeat.at > latest + others and held_up is None:
            sentence = f"in the hands of a dead worker, and repeated only {seconds:.1f} s later"
            yield record.finding("I7", about, sentence, attempt, death, repeat)


def _thawed(record: Record, death: Signal, until: datetime | None = None) -> bool:
    """Whether it was only frozen, and could see to its calls itself."""
    return any(
        line.pid == death.pid and line.signal == "CONT" and line.at >= death.at and (until is None or line.at <= until)
        for line in record.signals
    )


def _held_up(record: Record, attempt: Attempt, latest: datetime, death: Signal) -> str | None:
    """What lawfully delays a repeat: a switch, trouble of those who might do it, or nobody there."""
    if switched(record, attempt.at, latest):
        return "a switch"
    if must_have_been_repeated(record, attempt, latest):
        return None  # whatever was broken: somebody was seen at work all the while
    if any(attempt.at <= line.at <= latest and line.role == "postgres" for line in record.signals):
        return "the database"
    for fault in faults_between(record, attempt.at, latest, AFTERMATH_S):
        if fault.family == "provider":
            return f"fault {fault.n}, {fault.family}: {fault.name}"
    for fault in faults_between(record, attempt.at, latest, STARTUP_S):
        if fault.family == "postgres" or concerns(fault):  # the one that takes it may be cut off from the provider
            return f"fault {fault.n}, {fault.family}: {fault.name}"
    if not _others_up(record, attempt.at, latest, death):
        return "no other worker was up"
    return None


def _others_up(record: Record, since: datetime, until: datetime, death: Signal) -> bool:
    """Whether another worker was there all the time."""
    started: dict[int, datetime] = {}
    gone: set[int] = {death.pid}
    for line in record.signals:
        if line.role != "worker" or line.at > until:
            continue
        if line.signal in ("START", "CONT"):
            started[line.pid] = line.at
            gone.discard(line.pid)
        elif line.signal in (*STOPPING, "TERM"):
            gone.add(line.pid)
            started.pop(line.pid, None)
    early = since - timedelta(seconds=STARTUP_S)
    return any(at <= early and pid not in gone for pid, at in started.items() if pid != death.pid)
