"""The mock's knobs: what may be set, and what the dice make of it."""

from __future__ import annotations

import random

import pytest

from providers.mock.faults import Dials, Faults, FaultsInvalid, draw


def test_without_faults_nothing_happens_to_a_call() -> None:
    fate = draw(Faults(), random.Random(1))
    assert fate.latency_s == 0
    assert not (fate.reset or fate.fail or fate.drop_response or fate.error_after_accept)


def test_a_rate_of_one_is_always_and_latency_stays_in_its_range() -> None:
    faults = Faults(latency_ms=(20, 40), fail_rate=1, reset_rate=1, drop_response_rate=1, error_after_accept_rate=1)
    for seed in range(50):
        fate = draw(faults, random.Random(seed))
        assert 0.02 <= fate.latency_s <= 0.04
        assert fate.reset and fate.fail and fate.drop_response and fate.error_after_accept


def test_the_same_seed_gives_the_same_luck_whatever_else_is_turned() -> None:
    def luck(faults: Faults) -> list[bool]:
        dice = random.Random(7)
        return [draw(faults, dice).fail for _ in range(200)]

    assert luck(Faults(fail_rate=0.3)) == luck(Faults(fail_rate=0.3, reset_rate=0.5, latency_ms=(1, 9)))
    assert 30 < sum(luck(Faults(fail_rate=0.3))) < 90


def test_putting_a_seed_starts_the_dice_anew() -> None:
    dials = Dials(Faults())
    dials.set({"fail_rate": 0.5, "seed": 3})
    first = [dials.draw() for _ in range(20)]
    dials.set({"seed": 3})
    assert [dials.draw() for _ in range(20)] == first


def test_fields_given_are_replaced_and_the_others_stay() -> None:
    dials = Dials(Faults(duplicate_mode="drop"))
    dials.set({"latency_ms": [5, 10], "reject_to": ["*@bad.example"]})
    dials.set({"fail_rate": 1})
    assert dials.faults.latency_ms == (5, 10)
    assert dials.faults.fail_rate == 1
    assert dials.reset() == Faults(duplicate_mode="drop")


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"fail_rate": 1.5}, "fail_rate"),
        ({"fail_rate": "0.5"}, "fail_rate"),
        ({"fail_rate": None}, "fail_rate"),
        ({"fail_rate": float("nan")}, "fail_rate"),
        ({"fail_status": 200}, "fail_status"),
        ({"latency_ms": [5]}, "latency_ms"),
        ({"latency_ms": [9, 5]}, "latency_ms"),
        ({"latency_ms": [-1, 5]}, "latency_ms"),
        ({"duplicate_mode": "maybe"}, "duplicate_mode"),
        ({"reject_to": "*"}, "reject_to"),
        ({"key_ttl_s": -1}, "key_ttl_s"),
        ({"hang": 1}, "hang: there is no such fault"),
    ],
)
def test_a_bad_value_is_named_and_changes_nothing(changes: dict[str, object], named: str) -> None:
    dials = Dials(Faults())
    with pytest.raises(FaultsInvalid, match=named):
        dials.set({"retry_after_s": 5, **changes})
    assert dials.faults == Faults()


def test_patterns_ignore_case_and_name_the_address() -> None:
    faults = Faults(reject_to=("*@Bad.example", "eve@*"))
    assert faults.rejects(["ada@example.com", "Bob@BAD.example"]) == "Bob@BAD.example"
    assert faults.rejects(["ada@example.com"]) is None
