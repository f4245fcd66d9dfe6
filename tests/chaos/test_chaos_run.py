"""The chaos run as anybody starts it: short, from a fixed seed, everything broken; and gone without a trace."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from notifier.embedded.process import birth
from notifier.failpoints import Point
from notifier.proof import history
from notifier.proof.chaos.schedule import DEFAULT_FAMILIES, WORKERS
from tests.support.chaos import data_of
from tests.support.poll import eventually

pytestmark = [pytest.mark.database, pytest.mark.timeout(300)]
ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "kill_pod_mid_send.py"
WITHIN_S = 240  # on a busy machine; alone it takes about a minute


class Rig:
    """One run in a directory of its own, its files below another."""

    def __init__(self, folder: Path, *options: str, open_place: bool = False) -> None:
        self.temporary, self.cwd = folder / "temporary", folder / "cwd"
        for made in (self.temporary, self.cwd):
            made.mkdir(exist_ok=True)
        if open_place:
            (self.temporary / f"notifier-chaos-{os.geteuid()}").mkdir(mode=0o755)
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

    def start(*options: str, open_place: bool = False) -> Rig:
        rigs.append(Rig(tmp_path, *options, open_place=open_place))
        return rigs[-1]

    yield start
    for rig in rigs:
        if rig.process.poll() is None:
            rig.end(signal.SIGINT)


def test_everything_is_broken_and_every_promise_kept(begin: Callable[..., Rig], tmp_path: Path) -> None:
    file = tmp_path / "history.jsonl"
    rig = begin(
        *("--minutes", "0.75", "--users", "100", "--seed", "1"), "--faults", "all,forget", "--history", str(file)
    )
    assert rig.end() == 0, rig.said
    report = rig.report
    assert report["ok"]
    assert report["violations"] == []
    assert report["failed"] == []
    families = set(report["faults"]) | set(report["skipped"])
    assert families >= {*DEFAULT_FAMILIES, "forget"} - {"kill", "freeze"}  # of those only what was come to counts
    assert report["failpoints"]["armed"] >= 4
    assert report["failpoints"]["reached"] >= report["failpoints"]["armed"] / 2, rig.said
    assert report["totals"]["signups_acknowledged"] >= 100
    assert report["totals"]["mails_accepted"] >= 100
    assert report["quiet_after_s"] is not None
    # Whether a mail was in doubt at the very forgetting is for the clock to say; nothing else is an excuse.
    assert {excused["rule"] for excused in report["excused"]} <= {"keys forgotten"}
    assert "0 lost · 0 duplicated · 0 after a cancel" in rig.said
    lines = list(history.load(file.read_text().splitlines()))
    assert_faults_are_told_whole(lines)
    assert_signals_tell_who_it_was([line for line in lines if isinstance(line, history.Signal)])
    assert rig.leftovers() == []


def assert_faults_are_told_whole(lines: Sequence[history.Line]) -> None:
    """Each begins and ends; one with a step says whether it was come to; all is at rest soon after the last."""
    faults = [line for line in lines if isinstance(line, history.Fault)]
    begun, ended = ([line for line in faults if line.phase == phase] for phase in ("begin", "end"))
    assert {line.n for line in begun} == {line.n for line in ended}
    assert all(("reached" in line.detail) == (line.name in set(Point)) for line in ended)
    [quiet] = [line for line in lines if isinstance(line, history.Quiet)]
    assert quiet.after_s <= quiet.mono - max(line.mono for line in ended) + 0.1


def assert_signals_tell_who_it_was(signals: Sequence[history.Signal]) -> None:
    """Whoever died or froze at a step of a worker had said its id, by which the provider's record has it."""
    strikes = Counter(line.by for line in signals if line.by.startswith("failpoint "))
    assert set(strikes.values()) <= {1}, "a process that is started again has nothing armed"
    struck = [line for line in signals if line.by.startswith("failpoint worker.")]
    assert all(f"-{line.pid}-" in line.worker for line in struck if line.worker)
    assert all(line.worker for line in struck if line.signal == "STOP")
    assert {line.process for line in signals if line.role == "worker"} == {*WORKERS, "run/worker-1"}


def test_whoever_stops_it_finds_nothing_left(begin: Callable[..., Rig]) -> None:
    rig = begin("--minutes", "1", "--users", "40", "--seed", "2")
    eventually(lambda: "setting up" in rig.said and list(rig.temporary.rglob("started.jsonl")), within_s=90)
    assert rig.end(signal.SIGTERM) == 143, rig.said
    assert "Stopped" in rig.said
    assert rig.leftovers() == []


def test_dead_workers_are_taken_over_within_two_claims(begin: Callable[..., Rig]) -> None:
    rig = begin("--recovery", "4", "--seed", "3")
    assert rig.end() == 0, rig.said
    report = rig.report
    assert report["taken_over"] >= 4
    assert 0 < report["median_claims"] <= report["worst_claims"] <= 2
    assert rig.leftovers() == []


def test_what_a_killed_run_leaves_the_next_removes_and_what_never_comes_to_rest_is_a_violation(
    begin: Callable[..., Rig],
) -> None:
    killed = begin("--minutes", "1", "--users", "40", "--seed", "5", "--faults", "clocks")
    eventually(lambda: "s left" in killed.said, within_s=90)
    [noted] = killed.temporary.glob("*/run-*/started.jsonl")
    started = [(note["pid"], note["born"]) for note in map(json.loads, noted.read_text().splitlines())]
    root = data_of(noted.parent)
    os.kill(next(pid for pid, _ in started if "worker" in psutil.Process(pid).cmdline()), signal.SIGSTOP)
    assert killed.end(signal.SIGKILL) == -signal.SIGKILL
    eventually(lambda: len(alive(started)) <= 3, within_s=60)  # the pods see that the rig is gone
    assert len(alive(started)) == 3  # the two servers, and the worker that was frozen

    rig = begin("--minutes", "0.05", "--users", "5", "--seed", "4", "--faults", "none", "--patience", "1")
    assert rig.end() == 1, rig.said  # a second is too short to see that nothing moves any more
    kept = rig.cwd / "chaos-4.jsonl"
    assert [found["rule"] for found in rig.report["violations"]] == ["quiet"]
    assert rig.report["history"] == "chaos-4.jsonl"
    assert "History: chaos-4.jsonl" in rig.said
    assert "--patience 1" in rig.report["command"]
    again = subprocess.run([sys.executable, "-m", "notifier.proof.checker", str(kept)], cwd=ROOT, capture_output=True)
    assert again.returncode == 1, again.stderr
    assert rig.leftovers() == [str(kept)]
    assert alive(started) == []
    assert not root.exists()
    assert [pid for pid, _ in started if Path(f"/dev/shm/faketime_shm_{pid}").exists()] == []


def test_a_soak_goes_on_with_the_next_seed_until_it_is_stopped(begin: Callable[..., Rig]) -> None:
    rig = begin("--soak", "--minutes", "0.05", "--users", "5", "--seed", "8", "--faults", "none")
    eventually(lambda: "Seed 9:" in rig.said, within_s=WITHIN_S)
    assert rig.end(signal.SIGINT) == 130, rig.said
    assert [run["seed"] for run in rig.report["runs"]] == [8]
    assert rig.leftovers() == []


def test_a_run_that_breaks_off_is_one_that_failed_and_the_next_seed_follows(begin: Callable[..., Rig]) -> None:
    rig = begin("--seeds", "2", "--minutes", "0.05", "--seed", "6", open_place=True)
    assert rig.end() == 1, rig.said
    assert "nobody else may enter" in rig.said
    assert [(run["ok"], run["seed"]) for run in rig.report["runs"]] == [(False, 6), (False, 7)]
    assert "Seed 6 broke off" in rig.said
    assert "2 runs, 0 with violations, 2 broken off" in rig.said
    assert rig.leftovers() == [str(path) for path in rig.temporary.iterdir()]


@pytest.mark.parametrize(
    "options",
    [
        ("--faults", "redsi"),
        ("--history", "x", "--soak"),
        ("--soak", "--recovery", "2"),
        ("--soak", "--seeds", "2"),
        ("--json", "/nowhere/x.json"),
        ("--json", "/tmp"),
        ("--minutes", "nan-sense"),
    ],
)
def test_a_wrong_command_line_is_refused_before_anything_starts(begin: Callable[..., Rig], options: list[str]) -> None:
    rig = begin(*options)
    assert rig.end() == 2
    assert rig.leftovers() == []


def alive(processes: list[tuple[int, str]]) -> list[int]:
    return [pid for pid, born in processes if birth(pid) == born]


def _environ_and_arguments(process: psutil.Process) -> str:
    try:
        return " ".join([*process.cmdline(), process.environ().get("TMPDIR", "")])
    except psutil.Error:
        return ""
