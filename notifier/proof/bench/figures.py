"""What was measured, as values: medians, marks for noise, and the refusal to compare what cannot be compared."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

NOISE_MAX = 0.25  # by how much a measurement's calibration may be off the run's median before it is marked


class NotComparable(Exception):
    """The two files are of different runs, so a ratio between them would say nothing."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One side doing one work once. `number` units took `seconds`; everything else is per unit, where it was measured.

    `setting` tells variants of a work apart ("1 worker"), `way` how a side did it where it knows several. `cpu_us`:
    microseconds by who spent them. `calibration_s`: how long the calibration loop took before and after. `more`: what
    only this work has, by name with its unit last.
    """

    work: str
    side: str
    setting: str
    round: int
    number: int
    seconds: float
    calibration_s: tuple[float, float]
    cpu_us: Mapping[str, float] = field(default_factory=dict)
    wal_bytes: float | None = None
    fpi_bytes: float | None = None
    commits: float | None = None
    statements: float | None = None
    more: Mapping[str, float] = field(default_factory=dict)
    way: str = ""

    @property
    def rate(self) -> float:
        """Units per second."""
        return self.number / self.seconds


@dataclass(frozen=True, slots=True)
class Summary:
    """The medians of one side's rounds of one work. `noisy`: in how many rounds the machine was not the same."""

    work: str
    side: str
    setting: str
    rounds: int
    number: int
    rate: float
    rate_min: float
    rate_max: float
    noisy: int
    calibration_s: float
    cpu_us: Mapping[str, float]
    wal_bytes: float | None
    fpi_bytes: float | None
    commits: float | None
    statements: float | None
    more: Mapping[str, float]
    way: str = ""


def is_noisy(measured: Measured, usual_s: float) -> bool:
    """Whether the calibration loop before or after took so much more or less time than usual."""
    return any(abs(seconds / usual_s - 1) > NOISE_MAX for seconds in measured.calibration_s)


def usual_calibration(measured: Iterable[Measured]) -> float:
    """The run's median."""
    return statistics.median(seconds for item in measured for seconds in item.calibration_s)


def summarize(measured: Sequence[Measured]) -> list[Summary]:
    """One summary per work, setting, side and way, in the order they were first measured."""
    if not measured:
        return []
    usual_s = usual_calibration(measured)
    groups: dict[tuple[str, ...], list[Measured]] = {}
    for item in measured:
        groups.setdefault((item.work, item.setting, item.side, item.way), []).append(item)
    return [_summary(group, usual_s) for group in groups.values()]


def _summary(group: Sequence[Measured], usual_s: float) -> Summary:
    rates = [item.rate for item in group]
    return Summary(
        work=group[0].work,
        side=group[0].side,
        setting=group[0].setting,
        rounds=len(group),
        number=group[0].number,
        rate=statistics.median(rates),
        rate_min=min(rates),
        rate_max=max(rates),
        noisy=sum(is_noisy(item, usual_s) for item in group),
        calibration_s=statistics.median(seconds for item in group for seconds in item.calibration_s),
        cpu_us=_medians([item.cpu_us for item in group]),
        wal_bytes=_median(item.wal_bytes for item in group),
        fpi_bytes=_median(item.fpi_bytes for item in group),
        commits=_median(item.commits for item in group),
        statements=_median(item.statements for item in group),
        more=_medians([item.more for item in group]),
        way=group[0].way,
    )


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _medians(values: Sequence[Mapping[str, float]]) -> Mapping[str, float]:
    names = dict.fromkeys(name for item in values for name in item)
    return {name: statistics.median(item[name] for item in values if name in item) for name in names}


def percentile(values: Sequence[float], share: float) -> float:
    """The value that `share` of them do not exceed; no interpolation. Raises ValueError when there are none."""
    if not values:
        raise ValueError("no values, no percentile")
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def to_document(run: Mapping[str, Any], measured: Sequence[Measured]) -> dict[str, Any]:
    """Everything for a program: the run, each measurement, and the medians."""
    usual_s = usual_calibration(measured) if measured else None
    return {
        **run,
        "calibration_s": usual_s,
        "measured": [
            {**asdict(item), "rate": item.rate, "noisy": usual_s is not None and is_noisy(item, usual_s)}
            for item in measured
        ],
        "medians": [asdict(summary) for summary in summarize(measured)],
    }


def compare(left: Mapping[str, Any], right: Mapping[str, Any]) -> list[tuple[str, str, str, float]]:
    """How many times the right side's rate each of the left's is: (work and setting, left, right, ratio).

    Raises NotComparable unless both are of one run: at another hour the same machine is another machine.
    """
    for document in (left, right):
        if not isinstance(document.get("run"), str) or not isinstance(document.get("medians"), list):
            raise NotComparable("this is not what the bench writes with --json")
    if left["run"] != right["run"]:
        raise NotComparable(
            f"these are two runs, {left['run']} of {left.get('date')} and {right['run']} of {right.get('date')}: "
            "rates of different times say nothing about each other. Put both sides into one run (--sides)"
        )
    found = []
    for a in left["medians"]:
        for b in right["medians"]:
            if (a["work"], a["setting"]) == (b["work"], b["setting"]) and a["side"] != b["side"]:
                found.append((f"{a['work']}, {a['setting']}", _who(a), _who(b), a["rate"] / b["rate"]))
    return found


def _who(median: Mapping[str, Any]) -> str:
    return f"{median['side']} ({median['way']})" if median["way"] else str(median["side"])
