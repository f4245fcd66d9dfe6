"""The load's plan: the same from the same seed, within its time, and holding something of everything."""

from __future__ import annotations

from collections import Counter

import pytest

from notifier.proof.chaos.load_plan import FOLLOWUP_DELAY_S, Operate, Say, plan_load

SECONDS = 120.0


def happenings(seed: int = 7, users: int = 400) -> list[tuple[Say, str]]:
    return [
        (step, one.act) for step in plan_load(seed, users, SECONDS) if isinstance(step, Say) for one in step.happenings
    ]


def test_the_same_seed_is_the_same_load_and_another_seed_another() -> None:
    assert plan_load(7, 50, SECONDS) == plan_load(7, 50, SECONDS)
    assert plan_load(7, 50, SECONDS) != plan_load(8, 50, SECONDS)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("seconds", [5.0, 25.0, SECONDS])
def test_everything_is_within_the_time_and_in_order(seed: int, seconds: float) -> None:
    steps = plan_load(seed, 40, seconds)
    assert [step.at_s for step in steps] == sorted(step.at_s for step in steps)
    assert all(0 <= step.at_s <= seconds for step in steps)


@pytest.mark.parametrize("seed", range(5))
def test_everybody_signs_up_and_whatever_becomes_due_in_the_run_does_so_before_its_end(seed: int) -> None:
    signups = [
        one
        for step in plan_load(seed, 80, SECONDS)
        if isinstance(step, Say)
        for one in step.happenings
        if one.act == "signup"
    ]
    assert len({one.user for one in signups}) == 80
    due = [one.occurred_s + FOLLOWUP_DELAY_S for one in signups if one.occurred_s is not None]
    in_the_run = [due_s for due_s in due if due_s <= SECONDS]
    assert max(in_the_run) <= 0.96 * SECONDS
    assert len(in_the_run) > 0.8 * len(due)
    assert all(due_s > FOLLOWUP_DELAY_S for due_s in due if due_s > SECONDS), "neither during the run nor after it"


@pytest.mark.parametrize("seed", range(5))
def test_there_is_something_of_everything(seed: int) -> None:
    steps = plan_load(seed, 400, SECONDS)
    assert {step.act for step in steps if isinstance(step, Operate)} == {
        "cancel",
        "retry",
        "erase",
        "resolve",
        "switch",
    }
    said = [step for step in steps if isinstance(step, Say)]
    assert {step.form for step in said} == {"single", "batch", "ndjson", "webhook"}
    assert any(step.copies > 2 for step in said)
    every = [one for step in said for one in step.happenings]
    assert {one.act for one in every} == {"signup", "login", "other"}
    assert max(Counter(one.id for one in every).values()) > 1, "nothing is said twice"
    assert any(
        len({one.id for one in every if (one.act, one.user) == ("signup", user)}) > 1 for user in users_of(every)
    )
    signed_up = {one.user: step.at_s for step in reversed(said) for one in step.happenings if one.act == "signup"}
    assert any(step.at_s < signed_up[one.user] for step in said for one in step.happenings if one.act == "login")
    assert any(one.email is None for one in every if one.act == "signup")


def test_what_is_said_again_is_said_in_the_same_words() -> None:
    said: dict[str, object] = {}
    for step in plan_load(3, 400, SECONDS):
        for one in step.happenings if isinstance(step, Say) else ():
            assert said.setdefault(one.id, one) == one


def test_some_who_are_known_sign_up_twice_at_the_same_instant_or_do_more_just_behind() -> None:
    when = {one.id: step.at_s for step, _ in reversed(happenings()) for one in step.happenings}
    twins = [name.removesuffix("-twin") for name in when if name.endswith("-twin")]
    assert len(twins) > 10
    assert all(when[f"{name}-twin"] == when[f"{name}-signup"] > when[f"{name}-known"] + 1 for name in twins)
    for behind in ("-at-once", "-move"):
        those = [name.removesuffix(behind) for name in when if name.endswith(behind)]
        assert len(those) > 10
        assert all(0 < when[name + behind] - when[f"{name}-signup"] < 1.3 for name in those)


def users_of(every: list) -> set[str]:  # type: ignore[type-arg] - happenings
    return {one.user for one in every}
