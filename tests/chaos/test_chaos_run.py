"""The chaos run as anybody starts it: short, from a fixed seed, everything broken; and gone without a trace."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from notifier.proof.chaos.schedule import DEFAULT_FAMILIES
from tests.support.poll import eventually

pytestmark = [pytest.mark.database, pytest.mark.timeout(300)]
ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "kill_pod_mid_send.py"
WITHIN_S = 240  # on a busy machine; alone it takes about a minute


class Rig:
    """One run in a directory of its own, its files below another."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.temporary, self.cwd = folder / "temporary", folder / "cwd"
        for made in (self.temporary, self.cwd):
            made.mkdir()
        self.output, self.json = folder / "output.txt", folder / "report.json"
        env = os.environ | {
            "TMPDIR": str(self.temporary),
            "NOTIFIER_CLAIM_TTL_S": "1",
            "FORCE_COLOR": "",
            "COLUMNS": "100",
        }
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, str(SCRIPT), "--json", str(self.json), *options],
                cwd=self.cwd,
                env=env,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    @property
    def said(self) -> str:
        return self.output.read_text()

    @property
    def report(self) -> dict[str, Any]:
        report: dict[str, Any] = json.loads(self.json.read_text())
        return report

    def end(self, number: signal.Signals | None = None) -> int:
        if number is not None:
            self.process.send_signal(number)
        return self.process.wait(timeout=WITHIN_S)

    def leftovers(self) -> list[str]:
        """Files, and processes that were started for it."""
        files = [str(path) for folder in (self.temporary, self.cwd) for path in folder.rglob("*")]
        processes = [
            f"{process.pid} {' '.join(process.cmdline())}"
            for process in psutil.process_iter()
            if str(self.temporary) in _environ_and_arguments(process)
        ]
        return files + processes


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Callable[..., Rig]]:
    """Start a run; one that a failed test leaves is ended as Ctrl-C ends it."""
    rigs: list[Rig] = []

    def start(*options: str) -> Rig:
        rigs.append(Rig(tmp_path, *options))
        return rigs[-1]

    yield start
    for rig in rigs:
        if rig.process.poll() is None:
            rig.end(signal.SIGINT)


def test_everything_is_broken_and_every_promise_kept(begin: Callable[..., Rig]) -> None:
    rig = begin("--minutes", "0.5", "--users", "80", "--seed", "1")
    assert rig.end() == 0, rig.said
    report = rig.report
    assert report["ok"]
    assert report["violations"] == []
    assert report["failed"] == []
    assert set(report["faults"]) | set(report["skipped"]) == set(DEFAULT_FAMILIES)
    assert report["totals"]["signups_acknowledged"] >= 80
    assert report["totals"]["mails_accepted"] >= 80
    assert report["quiet_after_s"] is not None
    assert "0 lost · 0 duplicated · 0 after a cancel" in rig.said
    assert rig.leftovers() == []


@pytest.mark.parametrize(
    ("number", "code", "once"), [(signal.SIGTERM, 143, "setting up"), (signal.SIGINT, 130, "s left")]
)
def test_whoever_stops_it_finds_nothing_left(
    begin: Callable[..., Rig], number: signal.Signals, code: int, once: str
) -> None:
    rig = begin("--minutes", "1", "--users", "40", "--seed", "2")
    eventually(lambda: once in rig.said and any(rig.temporary.iterdir()), within_s=90)
    assert rig.end(number) == code, rig.said
    assert "Stopped" in rig.said
    assert rig.leftovers() == []


def test_dead_workers_are_taken_over_within_two_claims(begin: Callable[..., Rig]) -> None:
    rig = begin("--recovery", "6", "--seed", "3")
    assert rig.end() == 0, rig.said
    report = rig.report
    assert report["taken_over"] >= 6
    assert 0 < report["median_claims"] <= report["worst_claims"] <= 2
    assert rig.leftovers() == []


def test_what_never_comes_to_rest_is_a_violation_and_its_history_is_kept(begin: Callable[..., Rig]) -> None:
    rig = begin("--minutes", "0.05", "--users", "5", "--seed", "4", "--faults", "none", "--patience", "1")
    assert rig.end() == 1, rig.said  # a second is too short to see that nothing moves any more
    kept = rig.cwd / "chaos-4.jsonl"
    assert [found["rule"] for found in rig.report["violations"]] == ["quiet"]
    assert rig.report["history"] == "chaos-4.jsonl"
    assert "History: chaos-4.jsonl" in rig.said
    again = subprocess.run([sys.executable, "-m", "notifier.proof.checker", str(kept)], cwd=ROOT, capture_output=True)
    assert again.returncode == 1, again.stderr
    assert rig.leftovers() == [str(kept)]


def test_a_soak_goes_on_with_the_next_seed_until_it_is_stopped(begin: Callable[..., Rig]) -> None:
    rig = begin("--soak", "--minutes", "0.05", "--users", "5", "--seed", "8", "--faults", "none")
    eventually(lambda: "Seed 10:" in rig.said, within_s=WITHIN_S)
    assert rig.end(signal.SIGINT) == 130, rig.said
    assert [run["seed"] for run in rig.report["runs"]] == [8, 9]
    assert "2 runs, 0 with violations" in rig.said
    assert rig.leftovers() == []


@pytest.mark.parametrize(
    "options",
    [("--faults", "redsi"), ("--history", "x", "--soak"), ("--json", "/nowhere/x.json"), ("--minutes", "nan-sense")],
)
def test_a_wrong_command_line_is_refused_before_anything_starts(begin: Callable[..., Rig], options: list[str]) -> None:
    rig = begin(*options)
    assert rig.end() == 2
    assert rig.leftovers() == []


def _environ_and_arguments(process: psutil.Process) -> str:
    try:
        return " ".join([*process.cmdline(), process.environ().get("TMPDIR", "")])
    except psutil.Error:
        return ""
