"""What is said of a run: the figures, the verdict, and how to see it again; readable in a narrow terminal."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from rich.console import Console

from notifier.proof.chaos.command import command_line
from notifier.proof.chaos.report import document, report, sentence, summary
from notifier.proof.chaos.run import Outcome, Wish
from notifier.proof.chaos.schedule import DEFAULT_FAMILIES
from notifier.proof.checker import judge
from notifier.proof.history import Line, Mail
from tests.support.histories import a_history

WISH = Wish(seed=7, seconds=120, users=400, families=DEFAULT_FAMILIES)
FAULTS = {("kill", "worker.mid_send"): 3, ("kill", "at_any_moment"): 1, ("redis", "answers_late"): 2}
CALLS = {"accepted": 4, "duplicate": 1}


def outcome(lines: Sequence[Line], *, quiet_after_s: float | None = 2.1, wish: Wish = WISH) -> Outcome:
    skipped = {"clocks": "libfaketime is not installed"}
    failed = ("fault 3 (network provider_cut): TimeoutError: it was away",)
    return Outcome(wish, judge(lines), FAULTS, skipped, failed, quiet_after_s, 131.0, CALLS)


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
    assert "The rig itself could not do fault 3" in text
    assert "1 calls of dead or frozen workers came again" in text
    assert "0 lost · 0 duplicated · 0 after a cancel\n" in text
    assert 'Again: make chaos ARGS="--minutes 2 --users 400 --seed 7"\n' in text
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
    assert document(good(), "again", None)["ok"]


def test_several_runs_are_a_line_each() -> None:
    out = io.StringIO()
    summary(Console(file=out, width=80), [good(), with_a_copy(), outcome(a_history(), quiet_after_s=None)])
    text = out.getvalue()
    assert "3 runs, 1 with violations" in text
    assert "never" in text
    assert text.count("held") == 2


def test_the_command_names_what_differs_from_what_is_usual() -> None:
    wish = Wish(seed=1, seconds=30, users=5, families=("kill", "forget"), has_keys=False, window_s=2.5)
    said = "--minutes 0.5 --users 5 --seed 1 --faults kill,forget --keyless --window 2.5"
    assert command_line(wish) == f'make chaos ARGS="{said}"'
