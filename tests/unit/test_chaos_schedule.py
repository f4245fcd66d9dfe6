"""The plan of a run's faults: the same from the same seed, full, and never two where only one can be."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise

import pytest

from notifier.failpoints import Point
from notifier.proof.chaos import faults
from notifier.proof.chaos.run import CLAIM_TTL_S
from notifier.proof.chaos.schedule import (
    CATALOG,
    DEFAULT_FAMILIES,
    FAMILIES,
    LANES,
    PAUSES,
    Planned,
    plan_faults,
    turn_of,
)

SEEDS = range(200)


def of(plan: list[Planned], *families: str) -> list[Planned]:
    return [fault for fault in plan if fault.family in families]


def test_the_same_seed_gives_the_same_plan_and_another_seed_another() -> None:
    for seed in SEEDS:
        plan = plan_faults(seed, 120, DEFAULT_FAMILIES)
        assert plan == plan_faults(seed, 120, tuple(reversed(DEFAULT_FAMILIES)))
        assert plan != plan_faults(seed + 1, 120, DEFAULT_FAMILIES)


def test_another_process_draws_the_same_plan() -> None:
    program = "from notifier.proof.chaos.schedule import *; print(plan_faults(7, 120, set(FAMILIES)), end='')"
    told = {
        subprocess.run([sys.executable, "-c", program], env={"PYTHONHASHSEED": seed}, capture_output=True).stdout
        for seed in ("1", "2")
    }
    assert told == {str(plan_faults(7, 120, FAMILIES)).encode()}


def test_leaving_out_a_family_changes_no_other_lane() -> None:
    whole, part = (plan_faults(3, 120, families) for families in (DEFAULT_FAMILIES, ("redis", "network")))
    for family in ("redis", "network"):
        assert [f.at_s for f in of(whole, family)] == [f.at_s for f in of(part, family)]


def test_a_minute_has_every_family_and_two_minutes_have_each_several_times() -> None:
    for seed in SEEDS:
        assert {fault.family for fault in plan_faults(seed, 60, FAMILIES)} == set(FAMILIES)
        plan = plan_faults(seed, 120, DEFAULT_FAMILIES)
        for family in set(DEFAULT_FAMILIES) - {"clocks", "rolling"}:  # one lasts for the whole run, the other long
            assert len(of(plan, family)) >= 3, (seed, family)


def test_two_minutes_have_nearly_every_fault_there_is() -> None:
    for seed in SEEDS:
        had = {(fault.family, fault.name) for fault in plan_faults(seed, 120, DEFAULT_FAMILIES)}
        for family in ("postgres", "redis", "provider", "network"):
            assert {(family, kind.name) for kind in CATALOG[family]} <= had, seed


def test_faults_are_numbered_in_order_and_the_last_tenth_is_calm() -> None:
    for seconds in (5, 25, 60, 600):
        plan = plan_faults(1, seconds, FAMILIES)
        assert [fault.n for fault in plan] == list(range(1, len(plan) + 1))
        assert [fault.at_s for fault in plan] == sorted(fault.at_s for fault in plan)
        assert all(fault.at_s + fault.for_s <= 0.9 * seconds + 0.001 for fault in plan if fault.family != "clocks")


def test_nothing_is_broken_twice_at_a_time() -> None:
    for seed in SEEDS:
        plan = plan_faults(seed, 120, FAMILIES)
        for name in ("postgres", "redis", "provider", "network"):
            assert_apart(of(plan, *LANES[name].families))
        broken = of(plan, "kill", "freeze", "processes")
        for pod in {fault.parameters["pod"] for fault in broken}:
            assert_apart([fault for fault in broken if fault.parameters["pod"] == pod])


def assert_apart(plan: list[Planned]) -> None:
    for one, next_one in pairwise(plan):
        assert one.at_s + one.for_s <= next_one.at_s + 0.002, (one, next_one)


def test_every_point_is_killed_at_and_every_fault_can_be_found() -> None:
    assert {kind.name for kind in CATALOG["kill"]} == {*Point, "at_any_moment"}
    for family, kinds in CATALOG.items():
        for kind in kinds:
            planned = Planned(1, family, kind.name, 0, 1, {"pod": kind.draws.get("pod", ("worker-1",))[0]})
            assert callable(faults.find(planned))


@pytest.mark.parametrize(
    ("family", "name", "pod", "hides"),
    [
        ("kill", "worker.mid_send", "worker-1", True),
        ("kill", "ingest.after_commit", "api-1", False),
        ("freeze", "at_any_moment", "worker-2", True),
        ("provider", "answer_dropped", "", True),
        ("provider", "too_many", "", False),
        ("network", "provider_answers_lost", "worker-1", True),
        ("network", "database_cut", "worker-1", False),
        ("forget", "keys_forgotten", "", True),
        ("postgres", "postmaster_killed", "", False),
    ],
)
def test_which_faults_may_hide_an_answer(family: str, name: str, pod: str, hides: bool) -> None:
    assert faults.hides_answers(Planned(1, family, name, 0, 1, {"pod": pod})) is hides


def test_a_family_nobody_knows_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="no such family of faults: weather"):
        plan_faults(1, 60, ("kill", "weather"))


def test_what_is_only_done_when_asked_for_changes_nothing_else() -> None:
    for seed in SEEDS:
        usual, more = (
            plan_faults(seed, 120, families) for families in (DEFAULT_FAMILIES, (*DEFAULT_FAMILIES, "pause"))
        )
        assert [fault.at_s for fault in of(more, *DEFAULT_FAMILIES)] == [fault.at_s for fault in usual]


def test_a_pause_lasts_within_what_the_step_can_bear() -> None:
    """An api's event has four seconds in all; a worker's either stays within its claim or outlasts every patience."""
    claim_s, patience_s = CLAIM_TTL_S, 2 * CLAIM_TTL_S
    for point, pauses in PAUSES:
        for pause_s in pauses:
            assert pause_s < 2 if not point.startswith("worker") else pause_s < claim_s or pause_s > patience_s


def test_what_breaks_one_thing_takes_turns_and_what_breaks_pods_does_not() -> None:
    assert turn_of("provider") == turn_of("forget") == turn_of("refuse") != turn_of("postgres")
    assert turn_of("redis") is not None
    assert turn_of("kill") is turn_of("clocks") is None
