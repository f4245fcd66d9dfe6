"""When `uncertain` is a lawful end: doubt of that very mail, and nobody could settle it by asking once more."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from notifier.proof.checker.asks import CLOCKS_S, Notification
from notifier.proof.checker.record import Record
from notifier.proof.checker.trouble import SETTLED_WITHIN_S, concerns, is_taken, what_hid, what_swallowed
from notifier.proof.checker.working import is_unclear
from notifier.proof.history import Attempt, Line, Opinion

ATTEMPTS_MAX = 8  # as the service is built; a run leaves it alone
SEEN_MIN = ATTEMPTS_MAX // 2  # so many of them must have come to the provider; the others may have been lost on the way


def why_uncertain(record: Record, about: Notification, opinion: Opinion, since: datetime) -> tuple[Line, ...] | None:
    """Give what explains that it ended uncertain; None: it may not. `since`: when it can have been claimed.

    Without keys any doubt of it does. With keys a repeat settles a doubt, so something must have forbidden the repeat.
    """
    calls = _under_the_last_key(about)
    if any(is_taken(call) and what_hid(record, call) is None for call in calls):
        return None  # the service was told, and certain knowledge outlives a lost claim
    doubtful = _doubtful(record, calls, opinion, since)
    if doubtful is None:
        return None
    if not record.run.has_keys:
        return (doubtful,)
    barred = _why_no_repeat(record, about, calls, doubtful)
    return None if barred is None else (doubtful, *barred)


def _under_the_last_key(about: Notification) -> list[Attempt]:
    """Its calls since a person asked for another key, if one did."""
    resolves = about.acts_of("resolve", "not_sent")
    latest = max((ask.first.at for ask in resolves), default=None)
    since = [call for call in about.attempts if latest is None or call.at >= latest]
    return since or about.attempts


def _doubtful(record: Record, calls: list[Attempt], opinion: Opinion, since: datetime) -> Line | None:
    """A call of its own whose outcome is not known, or what may have ended a claim whose call never came."""
    for call in calls:
        if (why := what_hid(record, call)) is not None:
            return why
    if calls:
        since = max(since, calls[-1].at)
    until = record.quiet.at if record.quiet else opinion.at
    claimed = opinion.document.get("doubt_since")
    if claimed is None and "doubt_since" in opinion.document:
        return None  # uncertain, and not even by its own word in doubt
    if isinstance(claimed, str):  # its own word, and it only narrows what counts
        clocks, claim = timedelta(seconds=CLOCKS_S), timedelta(seconds=record.run.claim_ttl_s + SETTLED_WITHIN_S)
        begin = datetime.fromisoformat(claimed)
        since, until = max(since, begin - clocks), min(until, begin + claim)
    return what_swallowed(record, since, until)


def _why_no_repeat(
    record: Record, about: Notification, calls: list[Attempt], doubtful: Line
) -> tuple[Line, ...] | None:
    """What forbids or ends the repeats under a key: an erasure, the provider's refusal, the window, the allowance."""
    for ask in about.person.erasures:
        if ask.may_have_happened:
            return ask.lines
    for call in calls:
        if call.verdict in ("rejected", "body_mismatch"):
            return (call,)
    end = record.quiet.at if record.quiet else datetime.max.replace(tzinfo=doubtful.at.tzinfo)
    if end - doubtful.at >= timedelta(seconds=record.run.window_s - record.run.claim_ttl_s):
        return ()
    used_up = [call for call in calls if is_unclear(call) and call.verdict != "in_flight"]
    if len(used_up) >= SEEN_MIN and len(used_up) + sum(1 for _ in _lost(record, used_up[0].at, end)) >= ATTEMPTS_MAX:
        return tuple(used_up)
    return None


def _lost(record: Record, since: datetime, until: datetime) -> Iterator[Line]:
    """What may each have used up one attempt that never came to the provider."""
    for fate in record.fates.values():
        yield from (line for line in fate if line.signal in ("KILL", "STOP") and since <= line.at <= until)
    yield from (begin for begin, _ in record.faults if concerns(begin) and since <= begin.at <= until)
