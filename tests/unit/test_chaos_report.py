"""What is said of a run: the figures, the verdict, and how to see it again; readable in a narrow terminal."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from notifier.proof.chaos.command import command_line
from notifier.proof.chaos.report import document, report, sentence, summary
from notifier.proof.chaos.run import Outcome, Wish
from notifier.proof.chaos.schedule import DEFAULT_FAMILIES
from notifier.proof.checker import judge
from notifier.proof.history import Line, Mail
from tests.support.histories import a_history

WISH = Wish(seed=7, seconds=120, users=2, families=DEFAULT_FAMILIES)
FAULTS = {("kill", "worker.mid_send"): 3, ("kill", "at_any_moment"): 1, ("redis", "answers_late"): 2}
CALLS = {"accepted": 4, "duplicate": 1}


SKIPPED = {"clocks": "libfaketime is not installed"}
FAILED = ("fault 3 (network provider_cut): TimeoutError: it was away",)


def outcome(lines: Sequence[Line], *, quiet_after_s: float | None = 2.1, wish: Wish = WISH) -> Outcome:
    return Outcome(wish, judge(lines), FAULTS, FAULTS, 5, 4, SKIPPED, (), quiet_after_s, 131.0, CALLS)


def good() -> Outcome:
    return outcome(a_history())


def with_a_copy() -> Outcome:
    lines = list(a_history())
    mail = next(line for line in lines if isinstance(line, Mail))
    lines.append(mail.model_copy(update={"seq": 99, "id": "again"}))
    return outcome(lines)


def printed(of: Outcome, width: int, kept: Path | None = None) -> str:
    out = io.StringIO()
    report(Console(file=out, width=width), of, command_line(of.wish), kept)
    return out.getvalue()


@pytest.mark.parametrize("width", [80, 120])
def test_a_good_run_says_what_was_broken_and_that_it_held(width: int) -> None:
    text = printed(good(), width)
    assert "at any moment, worker.mid send ×3" in text
    assert "NOT DONE: libfaketime is not installed" in text
    assert "Armed steps: reached 4 of 5" in text
    assert "The rig could not" not in text
    assert "1 calls of dead or frozen workers came again" in text
    assert "0 lost · 0 duplicated · 0 after a cancel\n" in text
    assert 'Again: make chaos ARGS="--minutes 2 --users 2 --seed 7"\n' in text
    assert "History" not in text
    assert max(map(len, text.splitlines())) <= width


@pytest.mark.parametrize("width", [80, 120])
def test_a_violation_is_explained_and_the_history_named(width: int) -> None:
    text = printed(with_a_copy(), width, Path("chaos-7.jsonl"))
    assert "I2 · " in text
    assert "1 duplicated" in sentence(with_a_copy().verdict)
    assert "History: chaos-7.jsonl" in text


def test_the_same_for_programs() -> None:
    bad = json.loads(json.dumps(document(with_a_copy(), "again", Path("chaos-7.jsonl"))))
    assert (bad["ok"], bad["seed"], bad["history"], bad["command"]) == (False, 7, "chaos-7.jsonl", "again")
    assert bad["faults"] == {"kill": {"at_any_moment": 1, "worker.mid_send": 3}, "redis": {"answers_late": 2}}
    assert {found["rule"] for found in bad["violations"]} >= {"I2"}
    assert all(found["explanation"] for found in bad["violations"])
    assert bad["takeovers"]["number"] == 1
    assert bad["failpoints"] == {"armed": 5, "reached": 4}
    assert document(good(), "again", None)["ok"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"failed": FAILED}, "The rig could not do fault 3 (network provider_cut): TimeoutError: it was away"),
        ({"wish": replace(WISH, by_name=("clocks",))}, "The rig could not do clocks: libfaketime is not installed"),
        ({"reached": 0}, "The rig could not do any of the 5 steps that were armed"),
        ({"faults": {}}, "The rig could not do a single fault"),
        (
            {"wish": replace(WISH, users=400)},
            "The rig could not do enough: only 2 signups of 400 users were ever acknowledged",
        ),
    ],
    ids=["failed", "skipped", "unreached", "idle", "unheard"],
)
def test_a_rig_that_could_not_break_what_it_was_to_is_not_good(changes: dict[str, Any], words: str) -> None:
    short = replace(good(), **changes)
    assert short.verdict.is_good
    assert words in printed(short, 120)
    assert not document(short, "again", None)["ok"]
    out = io.StringIO()
    summary(Console(file=out, width=80), [good(), short], broken_off=[9])
    assert "rig fell short" in out.getvalue()
    assert "3 runs, 0 with violations, 1 of a rig that fell short, 1 broken off" in out.getvalue()


def test_several_runs_are_a_line_each() -> None:
    out = io.StringIO()
    summary(Console(file=out, width=80), [good(), with_a_copy(), outcome(a_history(), quiet_after_s=None)])
    text = out.getvalue()
    assert "3 runs, 1 with violations" in text
    assert "never" in text
    assert text.count("held") == 2


def test_the_command_names_what_differs_from_what_is_usual() -> None:
    wish = Wish(1, 30, 5, families=("kill", "forget"), has_keys=False, window_s=2.5, patience_s=90, keep=True)
    said = "--minutes 0.5 --users 5 --seed 1 --faults kill,forget --keyless --window 2.5 --patience 90 --keep"
    assert command_line(wish) == f'make chaos ARGS="{said}"'


def test_the_command_asks_for_the_same_run() -> None:
    wish = Wish(seed=1, seconds=60 * 0.7654321, users=5, families=DEFAULT_FAMILIES)
    minutes = command_line(wish).partition("--minutes ")[2].split()[0]
    assert 60 * float(minutes) == wish.seconds


def test_a_fault_or_two_that_a_busy_machine_was_late_for_are_told_and_do_not_spoil_the_run() -> None:
    many = {("network", "provider_cut"): 20}
    short = replace(good(), failed=FAILED, planned=many, faults={("network", "provider_cut"): 19})
    assert "The rig could not do fault 3" in printed(short, 120)
    assert short.is_good
    assert not replace(short, failed=FAILED * 3).is_good
    assert not replace(short, planned={**many, ("redis", "frozen"): 1}).is_good  # the only one of its family
