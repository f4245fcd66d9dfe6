"""python -m notifier.proof.checker: what it prints and how it exits; how a finding reads; and that it is quick."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from notifier.proof.checker import NotAHistory, describe, explain, judge
from notifier.proof.history import Line, Mail, dump, load
from tests.support.histories import DUE_IN_5_S, Story, a_history


def judged(tmp_path: Path, lines: Iterable[str]) -> subprocess.CompletedProcess[str]:
    file = tmp_path / "history.jsonl"
    file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return subprocess.run(
        [sys.executable, "-m", "notifier.proof.checker", str(file)], capture_output=True, text=True, check=False
    )


def test_a_good_history(tmp_path: Path) -> None:
    done = judged(tmp_path, map(dump, a_history()))
    assert (done.returncode, done.stderr) == (0, "")
    assert "mails accepted: 4" in done.stdout
    assert "takeovers: 1, median 3.0 s, worst 3.0 s" in done.stdout
    assert done.stdout.endswith("0 violations, 0 excused\n")


def test_a_bad_history(tmp_path: Path) -> None:
    done = judged(tmp_path, (dump(line) for line in a_history() if not isinstance(line, Mail) or line.user != "bob"))
    assert done.returncode == 1
    assert "violation: I6 · bob · onboarding: called sent, and the provider never accepted it" in done.stdout


def test_what_is_no_history(tmp_path: Path) -> None:
    lines = [dump(line) for line in a_history()]
    for wrong, told in ((["{}"], "line 1"), (lines[1:], "one line `run`"), ([*lines, "x"], f"line {len(lines) + 1}")):
        done = judged(tmp_path, wrong)
        assert done.returncode == 2
        assert told in done.stderr
    with pytest.raises(NotAHistory):
        judge([])


def test_how_a_finding_reads() -> None:
    story = Story()
    story.signup("ada", ago=DUE_IN_5_S)
    story.fault(1, "provider", "begin")
    story.call("ada", "onboarding", told=False)
    story.login("ada", lost="after")
    lines: list[Line] = list(story.finish())
    mail = next(line for line in lines if isinstance(line, Mail))
    [twice, _] = judge([*lines, mail.model_copy(update={"id": "copy"})]).violations
    assert explain(twice)[0] == "I2 · ada · onboarding: accepted twice under one key"
    assert explain(twice)[1].startswith("     +10.030 s  ")
    assert all(line.strip() for line in explain(twice))


def test_each_kind_of_line_reads_as_something() -> None:
    story = Story()
    story.signup("ada")
    story.fault(1, "provider", "begin")
    story.forget_keys()
    story.operate("cancel", "ada", "onboarding", reason="why")
    story.login("ada", lost="after")
    first = story.login("bob", lost="after")
    story.again(first)
    finding = judge([*story.finish()]).violations
    assert finding == ()
    shown = Story().finish()
    told = [describe(line) for line in (*story.lines, *shown)]
    assert all(told)
    assert not any("=" in line for line in told), "a sentence, not a dump"


def test_a_long_run_is_judged_in_a_moment() -> None:
    story = Story()
    for number in range(400):
        user = f"u{number}"
        signup = story.signup(user, ago=DUE_IN_5_S)
        for _ in range(4):
            story.again(signup)
        story.call(user, "onboarding")
        story.login(user)
    for number in range(100):
        story.fault(number, "network", "begin", hides_answers=True)
        story.signal("STOP", 11)
        story.signal("CONT", 11)
        story.fault(number, "network", "end")
    lines = list(load(map(dump, story.finish())))
    assert len(lines) > 6_000
    began = time.process_time()
    assert judge(lines).is_good
    assert time.process_time() - began < 4, "it grows faster than its lines"
