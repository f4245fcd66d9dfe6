"""The judge: a history in, a verdict out. Pure, and it takes nobody's word but the outside record's."""

from __future__ import annotations

from collections.abc import Iterable

from notifier.proof.checker import answers, asked, copies, opinions, owed, promises, quiet, stops, takeovers, totals
from notifier.proof.checker.record import NotAHistory, index
from notifier.proof.checker.verdict import Finding, Takeover, Verdict, describe, explain
from notifier.proof.history import Line

__all__ = ["Finding", "NotAHistory", "Takeover", "Verdict", "describe", "explain", "judge"]


def judge(lines: Iterable[Line]) -> Verdict:
    """Judge a history; the time it takes grows with its lines. Raises NotAHistory where it has no line `run`."""
    record = index(lines)
    missing, missing_excused = owed.check(record)
    twice, twice_excused = copies.check(record)
    late, seen = takeovers.check(record)
    violations = [
        *missing,
        *twice,
        *promises.check(record),
        *answers.check(record),
        *stops.check(record),
        *asked.check(record),
        *opinions.check(record),
        *late,
        *quiet.check(record),
    ]
    return Verdict(
        violations=tuple(violations),
        excused=(*missing_excused, *twice_excused),
        totals=totals.count(record, seen),
        takeovers=tuple(seen),
    )
