"""Which fault begins when, for how long and with what: drawn from a seed before anything is started."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from notifier.failpoints import Point

CALM_SHARE = 0.1  # of the run, at its end: nothing is broken any more


@dataclass(frozen=True, slots=True)
class Planned:
    """One fault of a run. `at_s` counts from the start; it has healed by `at_s + for_s`, or is ended then.

    At a failpoint `for_s` counts from when the armed process answers, and what that took comes on top.
    """

    n: int
    family: str
    name: str
    at_s: float
    for_s: float
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Kind:
    """One way to break something: how long it lasts, least and most, and what is drawn for it."""

    name: str
    for_s: tuple[float, float]
    draws: Mapping[str, Sequence[Any]] = field(default_factory=dict)


WORKERS = ("worker-1", "worker-2", "worker-3")
APIS = ("api-1", "api-2")
SCHEDULERS = ("scheduler-1", "scheduler-2")
OF_A_DEPLOY = ("api-1", "worker-1", "scheduler-1", "worker-2", "api-2", "worker-3", "scheduler-2", "run")
ANY_MOMENT = (0.0, 0.1, 0.3, 0.7, 1.1, 1.6)  # seconds; a worker is somewhere else at each


def _pods_of(point: Point) -> tuple[str, ...]:
    doors = {"worker": WORKERS, "scheduler": SCHEDULERS, "ingest": APIS, "login": APIS}
    return doors[point.partition(".")[0]]


FREEZES = (
    Point.WORKER_AFTER_CLAIM,
    Point.WORKER_AFTER_BEGIN,
    Point.WORKER_BEFORE_SEND,
    Point.INGEST_AFTER_LOCK,
    Point.LOGIN_BETWEEN_CANCELS,
)
# How long a process waits at a step, each time: a worker for most of a claim (3 s), or for longer than two, which is as
# long as its lease is heeded; whoever takes its mail over has it in hand just then.
PAUSES: Sequence[tuple[Point, tuple[float, ...]]] = (
    (Point.INGEST_BEFORE_COMMIT, (0.5, 1.0)),
    (Point.LOGIN_BETWEEN_CANCELS, (0.5, 1.0)),
    (Point.WORKER_AFTER_CLAIM, (6.6,)),
    (Point.WORKER_AFTER_SEND, (2.0,)),
    (Point.WORKER_AFTER_SEND, (6.6,)),
)

CATALOG: Mapping[str, tuple[Kind, ...]] = {
    "kill": (
        *(Kind(point.value, (6, 9), {"pod": _pods_of(point)}) for point in Point),
        Kind("at_any_moment", (1, 2), {"pod": WORKERS, "after_s": ANY_MOMENT}),
    ),
    "freeze": (
        *(Kind(point.value, (9, 11), {"pod": _pods_of(point), "frozen_s": (3.5, 4.5)}) for point in FREEZES),
        Kind("at_any_moment", (3.5, 6), {"pod": WORKERS}),
    ),
    "processes": (
        Kind("api_killed", (1, 2), {"pod": APIS}),
        Kind("scheduler_killed", (1, 2), {"pod": SCHEDULERS}),
        Kind("run_killed", (2, 4), {"pod": ("run",)}),
    ),
    "postgres": (
        Kind("backend_killed", (1, 2), {"pick": (0.1, 0.3, 0.5, 0.7, 0.9)}),
        Kind("postmaster_killed", (1, 4)),
        Kind("stopped_at_once", (1, 4)),
        Kind("read_only", (2, 5)),
    ),
    "redis": (
        Kind("stopped", (2, 5)),
        Kind("flushed", (1, 2)),
        Kind("frozen", (2, 5)),
        Kind("out_of_memory", (2, 5)),
        Kind("restarted_empty", (1, 2)),
        Kind("grants_all", (2, 5)),
        Kind("denies_all", (2, 5)),
        Kind("answers_late", (2, 5)),
    ),
    "provider": (
        Kind("slow", (2, 5), {"latency_ms": ((100, 600), (300, 1_500), (900, 1_300))}),
        Kind("failing", (2, 5)),
        Kind("too_many", (2, 4), {"retry_after_s": (1, 2)}),
        Kind("answer_dropped", (2, 5), {"rate": (0.3, 1.0)}),
        Kind("error_after_accept", (2, 5), {"rate": (0.3, 1.0)}),
        Kind("reset", (2, 5), {"rate": (0.3, 1.0)}),
        Kind("hanging", (2, 4), {"hang_s": (0.5, 2.0)}),
        Kind("restarted", (1, 2)),
    ),
    "network": (
        Kind("database_cut", (2, 5), {"pod": WORKERS}),
        Kind("database_silent", (2, 6), {"pod": WORKERS}),
        Kind("provider_cut", (2, 5), {"pod": WORKERS}),
        Kind("provider_silent", (2, 5), {"pod": WORKERS}),
        Kind("provider_answers_lost", (2, 5), {"pod": WORKERS}),
    ),
    "clocks": (Kind("ten_minutes_apart", (0, 0)),),
    "rolling": (Kind("replaced", (12, 16), {"first": ("new", "old"), "beginning_with": OF_A_DEPLOY}),),
    "forget": (Kind("keys_forgotten", (1.5, 3)),),
    "pause": tuple(
        Kind(point.value, (11, 14), {"pod": _pods_of(point), "pause_s": seconds}) for point, seconds in PAUSES
    ),
    "refuse": (Kind("refusing", (2, 4), {"to": ("*[0-4]@*", "*[5-9]@*")}),),
}
FAMILIES = tuple(CATALOG)
ASKED_FOR = ("forget", "pause", "refuse")
DEFAULT_FAMILIES = tuple(family for family in FAMILIES if family not in ASKED_FOR)


@dataclass(frozen=True, slots=True)
class _Lane:
    """Families whose faults come one after the other, on each of so many tracks, with a pause in between."""

    families: tuple[str, ...]
    pause_s: tuple[float, float]
    tracks: int = 1


# Lanes go on side by side. A pod takes long to be started again, so what breaks pods has two tracks.
LANES: Mapping[str, _Lane] = {
    "pods": _Lane(("kill", "freeze", "processes", "rolling"), (0.5, 2), tracks=2),
    "postgres": _Lane(("postgres",), (4, 8)),
    "redis": _Lane(("redis",), (1, 3)),
    "provider": _Lane(("provider", "forget", "refuse"), (2, 4)),
    "network": _Lane(("network",), (2, 4)),
    "pauses": _Lane(("pause",), (0.5, 2), tracks=2),
}


def plan_faults(seed: int, seconds: float, families: Collection[str]) -> list[Planned]:
    """Plan a run of `seconds`: the same arguments give the same plan, ordered by time and numbered from 1.

    A lane's draws depend on the seed and on its own families alone. Raises ValueError for a family nobody knows.
    """
    if unknown := sorted(set(families) - set(FAMILIES)):
        raise ValueError(f"no such family of faults: {', '.join(unknown)}; there are {', '.join(FAMILIES)}")
    drawn = [fault for lane in LANES for fault in _draw(lane, seed, seconds, families)]
    if "clocks" in families:
        drawn.append(("clocks", CATALOG["clocks"][0].name, 0.0, seconds, {}))
    drawn.sort(key=lambda fault: (fault[2], fault[0], fault[1]))
    return [Planned(n, *fault) for n, fault in enumerate(drawn, start=1)]


def turn_of(family: str) -> str | None:
    """The lane whose faults come one after the other, however late one ends; None where they may overlap."""
    return next((name for name, lane in LANES.items() if lane.tracks == 1 and family in lane.families), None)


_Drawn = tuple[str, str, float, float, dict[str, Any]]


def _draw(name: str, seed: int, seconds: float, families: Collection[str]) -> Iterator[_Drawn]:
    lane = LANES[name]
    members = [family for family in lane.families if family in families]
    if not members:
        return
    dice = random.Random(f"{seed}/{name}")
    end_s = seconds * (1 - CALM_SHARE)
    free_from = [dice.uniform(*lane.pause_s) for _ in range(lane.tracks)]
    busy_until: dict[str, float] = {}
    for family, kind in _turns(dice, members):
        track = min(range(len(free_from)), key=free_from.__getitem__)
        at_s, for_s = free_from[track], dice.uniform(*kind.for_s)
        parameters = {name: dice.choice(values) for name, values in kind.draws.items()}
        if "pod" in parameters:  # the one that has been left alone for longest
            pods = sorted(kind.draws["pod"], key=lambda pod: busy_until.get(pod, 0.0))
            parameters["pod"] = pods[0]
            at_s = max(at_s, busy_until.get(pods[0], 0.0))
            busy_until[pods[0]] = at_s + for_s
        if at_s + for_s > end_s:
            return
        yield family, kind.name, round(at_s, 3), round(for_s, 3), parameters
        free_from[track] = at_s + for_s + dice.uniform(*lane.pause_s)


def _turns(dice: random.Random, families: Sequence[str]) -> Iterator[tuple[str, Kind]]:
    """Every kind of every family, families in turn, for ever; each round in another order."""
    while True:
        shuffled = [
            [(family, kind) for kind in dice.sample(CATALOG[family], len(CATALOG[family]))] for family in families
        ]
        for turn in zip_longest(*dice.sample(shuffled, len(shuffled))):
            yield from filter(None, turn)
