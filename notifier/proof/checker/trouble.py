"""What may lawfully hide an answer or hold a mail up, as seen from outside: signals, faults, unclear calls."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from notifier.proof.checker.asks import Notification
from notifier.proof.checker.record import Record
from notifier.proof.history import Attempt, Fault, Line, Signal

STOPPING = ("KILL", "STOP", "END", "QUIT")
HOLDING_FAMILIES = ("postgres", "network", "provider", "rolling", "pause")  # Redis and clocks may hold nothing up
HIDING_FAMILIES = ("postgres", "network")  # a settle cannot be written, and the claim runs out meanwhile
AFTERMATH_S = 35.0  # a breaker's longest wait between two probes, and the longest back-off
_ACCEPTED = ("accepted", "duplicate", "replayed", "dropped")


def faults_between(record: Record, since: datetime, until: datetime, aftermath_s: float = 0.0) -> Iterator[Fault]:
    """Faults that were on at some time between the two, or had ended no longer than `aftermath_s` before."""
    aftermath = timedelta(seconds=aftermath_s)
    for begin, end in record.faults:
        if begin.at <= until and (end is None or end.at + aftermath >= since):
            yield begin


def worker_stops(record: Record, since: datetime, until: datetime, worker: str | None = None) -> Iterator[Signal]:
    """Workers that died or froze between the two; `worker`: this one only, or one that is not known by name."""
    for line in record.signals:
        stops_work = line.signal in STOPPING and line.role in ("worker", "supervisor")
        is_named = worker is None or line.worker is None or line.worker == worker
        if stops_work and is_named and since <= line.at <= until:
            yield line


def is_unclear(attempt: Attempt) -> bool:
    """Whether the caller was left without a definite answer, as the provider itself recorded it."""
    return not attempt.answered or attempt.status is None or attempt.status >= 500 or attempt.verdict == "in_flight"


def is_taken(attempt: Attempt) -> bool:
    """Whether the provider had the mail by then."""
    return attempt.verdict in _ACCEPTED


def doubt(record: Record, about: Notification, since: datetime, until: datetime | None = None) -> Line | None:
    """Outside evidence that nobody could know whether it had been accepted; None where there is none.

    The nearest first: a call of its own, then a fault that may have swallowed one, then a worker that was stopped
    and may have held it. `since`: when it can have been claimed at the earliest.
    """
    until = until or (record.quiet.at if record.quiet else datetime.max.replace(tzinfo=since.tzinfo))
    for attempt in about.attempts:
        if attempt.at <= until and (is_unclear(attempt) or not record.run.has_keys):
            return attempt
    for fault in faults_between(record, since, until):
        if fault.hides_answers or fault.family in HIDING_FAMILIES:
            return fault
    return next(worker_stops(record, since, until), None)


def what_hid(record: Record, attempt: Attempt, until: datetime) -> Line | None:
    """What may have kept the answer to this call from being known to the service before `until`."""
    if is_unclear(attempt):
        return attempt
    run = record.run
    if attempt.worker is not None:  # even after `until`: what it had not written by its end, nobody knew before
        latest = attempt.at + timedelta(seconds=run.claim_ttl_s + 2 * run.provider_timeout_s)
        for stop in worker_stops(record, attempt.at, latest, attempt.worker):
            return stop
    soon = attempt.at + timedelta(seconds=run.provider_timeout_s)
    for fault in faults_between(record, attempt.at, min(until, soon)):
        if fault.hides_answers or fault.family in HIDING_FAMILIES:
            return fault
    return None
