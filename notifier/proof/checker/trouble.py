"""What may keep an outcome from being known or hold a mail up, as seen from outside: signals, faults, unclear calls."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

from notifier.proof.checker.asks import Notification
from notifier.proof.checker.record import Record
from notifier.proof.checker.working import at_work, is_unclear
from notifier.proof.history import Attempt, Fault, Line, Signal

STOPPING = ("KILL", "STOP", "END", "QUIT")
HOLDING_FAMILIES = ("postgres", "network", "provider", "rolling", "pause")  # Redis and clocks may hold nothing up
AFTERMATH_S = 35.0  # a breaker's longest wait between two probes, and the longest back-off
SETTLED_WITHIN_S = 1.0  # from a call's arrival until its outcome is written, if nothing happens to its worker
READ_WITHIN_S = 0.5  # until its answer is read, if the provider is not slow, and the writing begins
_UNRECORDED = ("restarted", "slow")  # under these of the provider's faults a call may leave no trace there
_SIGNALLED = ("kill", "freeze", "processes", "rolling")  # what these do to a worker, the signals tell
_HOLD_NOTHING = ("provider_cut", "provider_answers_lost")  # these wires drop a call, or let it pass at once
_ACCEPTED = ("accepted", "duplicate", "replayed", "dropped")


def faults_between(record: Record, since: datetime, until: datetime, aftermath_s: float = 0.0) -> Iterator[Fault]:
    """Faults that were on at some time between the two, or had ended no longer than `aftermath_s` before."""
    aftermath = timedelta(seconds=aftermath_s)
    for begin, end in record.faults:
        if begin.at <= until and (end is None or end.at + aftermath >= since):
            yield begin


def concerns(fault: Fault, pod: str | None = None) -> bool:
    """Whether it lies on a worker's wires, or in the worker itself; `pod`: of this one, or one that is not named."""
    is_local = fault.family == "network" or (fault.hides_answers and "pod" in fault.detail)
    named = fault.detail.get("pod")
    return is_local and fault.family not in _SIGNALLED and (pod is None or named is None or named == pod)


def is_refused(attempt: Attempt) -> bool:
    """Whether the provider said no, and surely took nothing: whatever heard it, or did not, nothing is in doubt."""
    return attempt.verdict in ("rejected", "unauthorized") or (attempt.verdict == "failed" and attempt.status == 429)


def is_taken(attempt: Attempt) -> bool:
    """Whether the provider had the mail by then."""
    return attempt.verdict in _ACCEPTED


def what_hid(record: Record, attempt: Attempt) -> Line | None:
    """What may have kept the outcome of this call from being known or written; None: the service knows it."""
    return next(all_that_hid(record, attempt), None)


def all_that_hid(record: Record, attempt: Attempt) -> Iterator[Line]:
    """Everything that may have: the call itself, or its own worker down, cut off or without a database just then."""
    if is_unclear(attempt):
        yield attempt
    read = attempt.at + timedelta(seconds=READ_WITHIN_S)
    written = attempt.at + timedelta(seconds=SETTLED_WITHIN_S)
    fate = record.fate_of(attempt.worker)
    if record.pid_of(attempt.worker) is not None and (down := _down(fate, attempt.at)):
        yield down
    yield from stops(fate, attempt.at, written)
    for line in record.signals:
        if line.role == "mock" and line.signal == "KILL" and attempt.at <= line.at <= written:
            yield line
    pod = record.pod_of(attempt.worker)
    for fault in faults_between(record, attempt.at, read, READ_WITHIN_S):
        slow = fault.family == "provider" and fault.name == "slow" and _came_late(record, attempt)
        if slow or concerns(fault, pod) or fault.family == "postgres":  # a silent wire's calls arrive when it heals
            yield fault


def on_its_way(record: Record, call: Attempt, at: datetime) -> tuple[Line, ...] | None:
    """What shows that a call had begun by then, and was held back until it came to the provider; None: nothing does."""
    if call.at <= at:
        return (call,)
    nobody_waits = timedelta(seconds=record.run.provider_timeout_s + SETTLED_WITHIN_S)
    latest: dict[str, Signal | None] = {"STOP": None, "CONT": None}
    for line in record.fate_of(call.worker):
        if line.signal in latest and line.at <= call.at:
            latest[line.signal] = line  # the last of each before the call
    stopped, thawed = latest["STOP"], latest["CONT"]
    if stopped and thawed and stopped.at <= at <= thawed.at and call.at <= thawed.at + nobody_waits:
        return (stopped, thawed, call)
    pod = record.pod_of(call.worker)
    for begin, end in record.faults:  # what a wire held back comes through when it heals, or never
        on = begin.at <= at and (end is None or at <= end.at)
        holds = begin.hides_answers and begin.name not in _HOLD_NOTHING
        if on and holds and concerns(begin, pod) and (end is None or call.at <= end.at + nobody_waits):
            return (begin, call)
    return None


def is_of_the_database(fault: Fault, pod: str | None) -> bool:
    """Whether it kept this pod's worker from writing."""
    return fault.family == "postgres" or (fault.name.startswith("database_") and concerns(fault, pod))


def _came_late(record: Record, attempt: Attempt) -> bool:
    """Whether its caller may have stopped waiting before it was accepted; of a repeat nobody knows how long it took."""
    waited = [(record.by_id[id].at - attempt.at).total_seconds() for id in attempt.message_ids if id in record.by_id]
    return attempt.verdict != "accepted" or not waited or max(waited) > record.run.provider_timeout_s - READ_WITHIN_S


def must_have_been_repeated(record: Record, attempt: Attempt, until: datetime) -> bool:
    """Whether a call whose outcome was not written by its claim's end surely came again before `until`.

    Some worker was at work then, and no switch held it back; with keys only, since without them nobody repeats.
    """
    run = record.run
    ran_out = attempt.at + timedelta(seconds=run.claim_ttl_s + run.poll_s)
    return any(not switched(record, *stretch) for stretch in at_work(record.stretches, ran_out, until))


def switched(record: Record, since: datetime, until: datetime) -> bool:
    """Whether a switch may have held anything back between the two."""
    for one in record.exchanges:
        if one.request.act == "switch" and one.request.at <= until:
            ended = one.request.detail.get("ttl_s")
            lasts = timedelta(seconds=float(ended) if isinstance(ended, int | float) else AFTERMATH_S)
            if one.request.at + lasts >= since:
                return True
    return False


def stops(fate: Iterable[Signal], since: datetime, until: datetime) -> Iterator[Signal]:
    """Where a worker died or froze between the two; an end of its own is neither, unless it failed."""
    for line in fate:
        if since <= line.at <= until and (
            line.signal in ("KILL", "STOP", "QUIT") or (line.signal == "END" and line.by)
        ):
            yield line


def doubt(record: Record, about: Notification, since: datetime, until: datetime) -> Line | None:
    """Outside evidence that a worker could not know, between the two, whether it had been accepted.

    Either one of its own calls, or a claim that may have ended without a call that came, or without its outcome: by a
    worker that was stopped, cut off or without a database. `since`: when that can have been claimed.
    """
    calls = [attempt for attempt in about.attempts if attempt.at <= until]
    for attempt in calls:
        if (why := what_hid(record, attempt)) is not None and why.at <= until:
            return why
    return what_swallowed(record, since, until)


def what_swallowed(record: Record, since: datetime, until: datetime) -> Line | None:
    """What may have ended a claim between the two without its call's ever having come to the provider."""
    for fate in record.fates.values():
        if (stop := next(stops(fate, since, until), None)) is not None:
            return stop
    for fault in faults_between(record, since, until, READ_WITHIN_S):
        if fault.family == "postgres" or concerns(fault) or fault.name in _UNRECORDED:
            return fault
    return None


def _down(fate: Iterable[Signal], at: datetime) -> Signal | None:
    """The signal that had killed or frozen it by then, if it was not awake again."""
    last = None
    for line in fate:
        if line.at <= at and line.signal in ("KILL", "STOP", "QUIT", "CONT"):
            last = line
    return last if last is not None and last.signal != "CONT" else None
