"""When some worker was surely at work: one clear answer after the other, so that it claimed all there was to claim."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

from notifier.proof.history import Attempt

PAUSE_S = 1.5  # between two of its calls; after a longer one it may have been without a database, or frozen
ENOUGH_S = 2.5  # so long at work, and nothing that waits is left out, on a busy host either

Stretch = tuple[datetime, datetime]


def is_unclear(attempt: Attempt) -> bool:
    """Whether the caller was left without a definite answer, as the provider itself recorded it."""
    return not attempt.answered or attempt.status is None or attempt.status >= 500 or attempt.verdict == "in_flight"


def stretches(attempts: Iterable[Attempt]) -> list[Stretch]:
    """From calls in their order: when a worker had one clear answer after the other; each closes its breaker."""
    answered: dict[str, list[datetime]] = defaultdict(list)
    for attempt in attempts:
        if attempt.worker is not None and not is_unclear(attempt):
            answered[attempt.worker].append(attempt.at)
    found: list[Stretch] = []
    for moments in answered.values():
        begin = last = moments[0]
        for at in (*moments[1:], None):
            if at is None or at - last > timedelta(seconds=PAUSE_S):
                if last - begin >= timedelta(seconds=ENOUGH_S):
                    found.append((begin, last))
                begin = at or last
            last = at or last
    return sorted(found)


def at_work(known: Iterable[Stretch], since: datetime, until: datetime) -> Iterator[Stretch]:
    """When some worker was at work for long enough between the two."""
    for begin, end in known:
        first, last = max(begin, since), min(end, until)
        if last - first >= timedelta(seconds=ENOUGH_S):
            yield first, last
