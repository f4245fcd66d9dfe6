"""The script that takes guards out: it says caught only where a test failed, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from notifier.proof.guards.guard import Change, Chaos, Guard
from notifier.proof.guards.scratch import CHAOS, Scratch, open_scratch
from tests.support.poll import eventually

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "take_guards_out.py"
CODE = "def door(known):\n    return 'in' if known else 'out'\n"
TESTS = """
import pytest
from door import door

@pytest.mark.parametrize("who", [False, None])
def test_strangers_stay_out(who):
    assert door(who) == "out"

def test_friends_come_in():
    assert door(True) == "in"
"""
STRANGERS, FRIENDS = "tests/test_door.py::test_strangers_stay_out", "tests/test_door.py::test_friends_come_in"


def a_guard(new: str) -> Guard:
    return Guard("door", "a stranger inside", (Change("door.py", "'in' if known else 'out'", new),), (STRANGERS,))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "small"
    (folder / "tests").mkdir(parents=True)
    (folder / "door.py").write_text(CODE)
    (folder / "tests" / "test_door.py").write_text(TESTS)
    return folder


@pytest.fixture
def scratch(project: Path, tmp_path: Path) -> Iterator[Scratch]:
    parent = tmp_path / "scratch"
    parent.mkdir()
    with open_scratch(project, parent) as opened:
        yield opened
    assert not parent.exists(), "a scratch copy does not outlive its block"


def test_a_guard_that_is_out_is_noticed_by_its_own_test_and_put_back(project: Path, scratch: Scratch) -> None:
    with scratch.without(a_guard("'in'")):
        said = scratch.ask([STRANGERS, FRIENDS])
    assert {test: one.state for test, one in said.items()} == {STRANGERS: "failed", FRIENDS: "passed"}
    assert "'in' == 'out'" in said[STRANGERS].words
    assert {one.state for one in scratch.ask([STRANGERS, FRIENDS]).values()} == {"passed"}
    assert (project / "door.py").read_text() == CODE, "the project itself is never touched"


@pytest.mark.parametrize(
    ("new", "state"),
    [("'in' if known else 'out'  # the same", "passed"), ("'in' if known else", "broke"), ("nobody", "failed")],
    ids=["no-difference", "no-python", "an-error-in-the-test"],
)
def test_what_a_change_leads_to_is_told_apart(scratch: Scratch, new: str, state: str) -> None:
    with scratch.without(a_guard(new)):
        assert scratch.ask([STRANGERS])[STRANGERS].state == state


def test_a_test_that_is_not_there_has_not_failed(scratch: Scratch) -> None:
    said = scratch.ask(["tests/test_door.py::test_gone"])
    assert said["tests/test_door.py::test_gone"].state == "broke"


JUDGED = "import sys; open(sys.argv[-1], 'w').write('{\"violations\": [%s]}'); sys.exit(%d)"


@pytest.mark.parametrize(
    ("script", "state", "words"),
    [
        (None, "broke", "is not there"),
        (JUDGED % ('{"rule": "I2"}, {"rule": "I3"}, {"rule": "I2"}', 1), "failed", "I2: 2, I3: 1"),
        (JUDGED % ("", 0), "passed", "no violation"),
        (JUDGED % ("", 1), "broke", "ended with 1 and no violation: "),
        ("raise RuntimeError('no judge came')", "broke", "ended with 1: RuntimeError: no judge came"),
    ],
    ids=["not-there", "violation", "nothing-found", "rig-fell-short", "traceback"],
)
def test_a_chaos_run_notices_only_what_it_judged(scratch: Scratch, script: str | None, state: str, words: str) -> None:
    if script is not None:
        (scratch.folder / "scripts").mkdir()
        (scratch.folder / CHAOS).write_text(script)
    said = scratch.run_chaos(Chaos(seed=1, faults="kill"))
    assert said.state == state
    assert said.words.endswith(words)


def test_a_chaos_run_that_finds_nothing_is_made_again(scratch: Scratch) -> None:
    (scratch.folder / "scripts").mkdir()
    third = "import sys; runs = open('runs', 'a+'); runs.write('x'); runs.seek(0); found = len(runs.read()) == 3; "
    judged = "open(sys.argv[-1], 'w').write('{\"violations\": [%s]}' % ('{\"rule\": \"I2\"}' * found)); sys.exit(found)"
    (scratch.folder / CHAOS).write_text(third + judged)
    chaos = Chaos(seed=1, faults="kill")
    assert scratch.run_chaos(chaos, 2).state == "passed"
    assert scratch.run_chaos(chaos, 3).state == "failed"
    assert (scratch.folder / "runs").read_text() == "xxx", "it is not made again once it has found something"


def run(tmp_path: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    environ = os.environ | {"TMPDIR": str(tmp_path), "COLUMNS": "200"}
    return subprocess.run([sys.executable, SCRIPT, *argv], env=environ, capture_output=True, text=True, timeout=280)


@pytest.mark.timeout(300)  # two runs of the project's own tests, on a machine that may be busy
def test_one_guard_of_the_house_from_end_to_end(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    ended = run(tmp_path, "--only", "evidence on record", "--baseline", "--json", str(report))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "1 guards taken out one by one, 1 caught" in ended.stdout
    document = json.loads(report.read_text())
    [trial] = document["guards"]
    assert (trial["guard"], trial["caught"]) == ("evidence on record: its own key", True)
    assert document["baseline_failed"] == []
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"], "nothing is left behind"


def test_stopped_half_way_it_leaves_nothing(tmp_path: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, SCRIPT, "--only", "evidence on record"],
        env=os.environ | {"TMPDIR": str(tmp_path)},
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    eventually(lambda: list(tmp_path.glob("notifier-guards-*/project/tests/conftest.py")))
    child.send_signal(signal.SIGTERM)
    assert child.wait(60) == 130
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("argv", [["--only", "the moat"], ["--only", "fingerprint", "--chaos"], ["--olny", "doubt"]])
def test_a_typing_error_is_exit_code_2(tmp_path: Path, argv: list[str]) -> None:
    ended = run(tmp_path, *argv)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.strip()


def test_it_lists_what_it_knows(tmp_path: Path) -> None:
    ended = run(tmp_path, "--list")
    assert ended.returncode == 0
    assert "unique index" in ended.stdout
    assert "notifier/store/acceptance.py" in ended.stdout
