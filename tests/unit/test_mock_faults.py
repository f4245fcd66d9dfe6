"""The mock's knobs: what may be set, and what the dice make of it."""

from __future__ import annotations

import random

import pytest

from providers.mock.faults import Dials, Faults, FaultsInvalid, SmtpFault, draw


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
        ({"smtp_at": "somewhere"}, "smtp_at"),
        ({"smtp_does": "reply"}, "smtp_reply: say what"),
        ({"smtp_does": "reply", "smtp_reply": "250 2.0.0 Ok"}, "smtp_reply"),
        ({"smtp_does": "reply", "smtp_reply": "451 a\r\n250 b"}, "smtp_reply"),
        ({"smtp_does": "reply", "smtp_reply": "451 a\n"}, "smtp_reply"),
        ({"smtp_does": "reply", "smtp_reply": "4512"}, "smtp_reply"),
        ({"smtp_does": "reply", "smtp_reply": "451 no", "smtp_at": "body"}, "smtp_does: nobody waits"),
        ({"smtp_rate": 2}, "smtp_rate"),
        ({"smtp_times": -1}, "smtp_times"),
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


def test_a_fault_meets_those_who_come_to_its_stage() -> None:
    dials = Dials(Faults())
    assert dials.smtp_fault("dot") is None
    dials.set({"smtp_at": "dot"})
    assert dials.smtp_fault("after_dot") is None
    assert dials.smtp_fault("dot") == SmtpFault("cut")
    dials.set({"smtp_does": "reply", "smtp_reply": "451 4.3.0 no"})
    assert dials.smtp_fault("dot") == SmtpFault("reply", "451 4.3.0 no")
    dials.set({"smtp_rate": 0})
    assert dials.smtp_fault("dot") is None


@pytest.mark.parametrize("named", [{"smtp_times": 2}, {"smtp_at": "dot"}])
def test_naming_the_stage_or_the_number_starts_the_count_anew(named: dict[str, object]) -> None:
    dials = Dials(Faults())
    dials.set({"smtp_at": "dot", "smtp_times": 2})
    for changes in ({}, {"smtp_does": "silence"}, named, named):
        dials.set(changes)
        met = [dials.smtp_fault("dot") is not None for _ in range(4)]
        assert met == ([True, True, False, False] if changes in ({}, named) else [False] * 4)


def test_calls_over_smtp_leave_the_luck_of_http_as_it_was() -> None:
    def luck(*, smtp: bool) -> list[bool]:
        dials = Dials(Faults())
        dials.set({"fail_rate": 0.5, "smtp_at": "dot", "smtp_rate": 0.5, "latency_ms": [0, 9], "seed": 3})
        fates = []
        for _ in range(50):
            if smtp:
                dials.smtp_fault("dot")
                dials.smtp_latency_s()
            fates.append(dials.draw().fail)
        return fates

    assert luck(smtp=True) == luck(smtp=False)


def test_the_same_seed_gives_the_same_luck_over_smtp() -> None:
    def luck(**more: object) -> list[bool]:
        dials = Dials(Faults())
        dials.set({"smtp_at": "dot", "smtp_rate": 0.3, "seed": 3, **more})
        return [dials.smtp_latency_s() >= 0 and dials.smtp_fault("dot") is not None for _ in range(200)]

    assert luck() == luck(latency_ms=[1, 9])
    assert 30 < sum(luck()) < 90
