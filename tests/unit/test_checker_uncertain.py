"""The checker takes no `uncertain` on trust: doubt must be of that very mail, and with keys a repeat must be barred."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pytest

from notifier.proof.checker import judge
from notifier.proof.history import Attempt, Line, Mail, Opinion, Signal
from tests.support.histories import CLAIM_TTL_S, Story


def called_uncertain(lines: Sequence[Line]) -> list[Line]:
    """The same, had the service ended the onboarding mail `uncertain`."""
    end = {"state": "uncertain", "reason": "timeout"}
    return [
        line.model_copy(update=end) if isinstance(line, Opinion) and line.kind == "onboarding" else line
        for line in lines
    ]


def rules(lines: Sequence[Line]) -> set[str]:
    return {found.rule for found in judge(lines).violations}


def test_with_keys_one_doubt_is_no_reason_to_give_up() -> None:
    story = Story()
    story.signup("ada")
    story.call("ada", "onboarding", verdict="hung", told=False)
    story.signal("KILL", 11)
    story.fault(1, "network", "begin", hides_answers=True)
    lines = [*called_uncertain(story.finish())]
    assert rules(lines) == {"I6"}
    never = [line for line in lines if not (isinstance(line, Mail) or (isinstance(line, Attempt) and line.seq > 1))]
    assert rules(never) == {"I1", "I6"}
    nothing = [line for line in never if not isinstance(line, Attempt)]
    assert rules(nothing) == {"I1", "I6"}


@pytest.mark.parametrize(("calls", "deaths", "lawful"), [(8, 0, True), (7, 0, False), (5, 3, True), (3, 5, False)])
def test_with_keys_all_attempts_may_be_used_up(calls: int, deaths: int, lawful: bool) -> None:
    story = Story()
    story.signup("ada")
    for _ in range(calls):
        story.call("ada", "onboarding", verdict="hung", told=False)
        story.now += 1
    for pid in range(20, 20 + deaths):
        story.signal("KILL", pid)
    story.rows["ada", "onboarding"].state = "uncertain"
    story.rows["ada", "onboarding"].reason = "attempts_exhausted"
    verdict = judge(story.finish())
    assert verdict.is_good is lawful
    assert [found.rule for found in verdict.excused] == (["uncertain"] if lawful else [])


def test_with_keys_an_erasure_bars_the_repeat() -> None:
    story = Story()
    story.signup("ada")
    story.call("ada", "onboarding", told=False)
    story.erase("ada")
    assert story.rows["ada", "onboarding"].state == "uncertain"
    assert judge(story.finish()).is_good


def test_with_keys_the_window_may_pass() -> None:
    story = Story()
    story.signup("ada")
    story.call("ada", "onboarding", told=False)
    story.rows["ada", "onboarding"].state = "uncertain"
    story.rows["ada", "onboarding"].reason = "window_passed"
    lines = list(story.finish())
    assert rules(lines) == {"I6"}
    assert judge([lines[0].model_copy(update={"window_s": 5.0}), *lines[1:]]).is_good


def keyless(trouble: str) -> list[Line]:
    """One call, answered clearly, with some trouble about it; and the service says that nobody knows."""
    story = Story(has_keys=False)
    story.signup("ada")
    if trouble == "a call on a silent wire, long before":
        story.fault(1, "network", "begin", pod="worker-11", hides_answers=True)
        story.fault(1, "network", "end", pod="worker-11", hides_answers=True)
        story.now += 2
    if "wire" in trouble and not trouble.startswith("a call"):
        name = "database_cut" if "database" in trouble else "provider_silent"
        pod = "worker-12" if trouble.startswith("another") else "worker-11"
        story.fault(1, "network", "begin", name=name, pod=pod, hides_answers=name == "provider_silent")
    if trouble == "the database":
        story.fault(1, "postgres", "begin")
    if trouble == "its worker, before it arrived":
        story.signal("KILL", 11)
        story.now += 2
    if trouble.startswith("a slow provider"):
        story.fault(1, "provider", "begin", name="slow", hides_answers=True)
    story.call("ada", "onboarding", worker="w11")
    match trouble:
        case "another worker":
            story.signal("KILL", 12)
        case "its worker":
            story.signal("KILL", 11)
        case "its worker froze":
            story.signal("STOP", 11)
        case "its worker drained":
            story.signal("TERM", 11)
            story.signal("END", 11)
        case "its worker, later":
            story.now += CLAIM_TTL_S
            story.signal("KILL", 11)
        case "its `notifier run`":
            fields = {"process": "run", "role": "supervisor", "pid": 5, "signal": "KILL"}
            story.lines.append(Signal(**story.moment(), **fields))  # type: ignore[arg-type]  # the model checks it when it is made
            story.lines = [
                line.model_copy(update={"process": "run/worker-1"})
                if isinstance(line, Signal) and line.worker == "w11"
                else line
                for line in story.lines
            ]
        case "a slow provider, too late":
            late = {"at": story.time + timedelta(seconds=0.9)}
            story.lines = [line.model_copy(update=late) if isinstance(line, Mail) else line for line in story.lines]
    return called_uncertain(story.finish())


@pytest.mark.parametrize(
    "trouble",
    [
        "none",
        "another worker",
        "another worker's wire",
        "another worker's database wire",
        "its worker drained",
        "its worker, later",
        "a slow provider, in time",
        "a call on a silent wire, long before",
    ],
)
def test_without_keys_a_clear_answer_is_no_doubt(trouble: str) -> None:
    assert rules(keyless(trouble)) == {"I6"}


@pytest.mark.parametrize(
    "trouble",
    [
        "its worker",
        "its worker froze",
        "its worker, before it arrived",
        "its `notifier run`",
        "a slow provider, too late",
        "its wire",
        "its database wire",
        "the database",
    ],
)
def test_without_keys_what_befell_its_worker_is(trouble: str) -> None:
    assert judge(keyless(trouble)).is_good


@pytest.mark.parametrize(("trouble", "lawful"), [("", False), ("KILL", True), ("wire", True), ("before", False)])
def test_without_keys_and_without_a_call(trouble: str, lawful: bool) -> None:
    story = Story(has_keys=False)
    if trouble == "before":
        story.signal("KILL", 11)
        story.now += 1
    story.signup("ada")
    if trouble == "KILL":
        story.signal("KILL", 11)
    if trouble == "wire":
        story.fault(1, "network", "begin", pod="worker-12", hides_answers=True)
    story.rows["ada", "onboarding"].state = "uncertain"
    story.rows["ada", "onboarding"].reason = "no_provider_key"
    verdict = judge(story.finish())
    assert verdict.is_good is lawful
    assert [found.rule for found in verdict.excused] == (["uncertain"] if lawful else [])


def test_its_own_word_on_when_only_narrows_what_may_have_been() -> None:
    story = Story(has_keys=False)
    story.signup("ada")
    doubt = story.time.isoformat()
    story.now += 2 * CLAIM_TTL_S
    story.signal("KILL", 11)
    story.rows["ada", "onboarding"].state = "uncertain"
    story.rows["ada", "onboarding"].reason = "no_provider_key"
    lines = list(story.finish())
    assert judge(lines).is_good
    for since in (doubt, None):
        dated = [
            line.model_copy(update={"document": {"doubt_since": since}}) if isinstance(line, Opinion) else line
            for line in lines
        ]
        assert rules(dated) == {"I1", "I6"}


def test_a_provider_that_is_being_restarted_may_swallow_a_call() -> None:
    story = Story(has_keys=False)
    story.fault(1, "provider", "begin", name="restarted", hides_answers=True)
    story.now += 1
    story.signup("ada")
    story.rows["ada", "onboarding"].state = "uncertain"
    story.rows["ada", "onboarding"].reason = "disconnected"
    story.now += 1
    story.fault(1, "provider", "end", name="restarted", hides_answers=True)
    assert judge(story.finish()).is_good
