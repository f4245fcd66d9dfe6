"""A copy of the project to take guards out of, and what its own tests, or a chaos run, say there."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from notifier.embedded import place
from notifier.proof.guards.guard import Chaos, Guard, without

CHAOS = "scripts/kill_pod_mid_send.py"
NONE = "no violation"
TESTS_MAX_S = 900  # each test has a time-out of its own; this one is for what hangs around them
STOP_MAX_S = 30  # how long a run that was interrupted may clean up
_NOT_COPIED = shutil.ignore_patterns(".git", ".venv*", ".notifier*", "*cache*", ".env", "*.egg-info", "build")
_NOT_INHERITED = ("NOTIFIER_", "PYTEST_", "COV_", "COVERAGE_")


@dataclass(frozen=True, slots=True)
class Said:
    """What became of one test. `state`: failed, passed, or broke (it came to no verdict); `words`: its own."""

    state: str
    words: str


class Scratch:
    """A copy in a directory of its own, run by the Python that runs this."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._reports = folder.with_name(folder.name + "-reports")
        self._reports.mkdir()
        self._test_data = self._reports / "tmp"

    @contextmanager
    def without(self, guard: Guard) -> Iterator[None]:
        """Take one guard out for the length of a block; raises Moved when its text is not there."""
        whole = {path: (self.folder / path).read_text(encoding="utf-8") for path in guard.files}
        try:
            for path, text in without(guard, whole).items():
                (self.folder / path).write_text(text, encoding="utf-8")
            yield
        finally:
            for path, text in whole.items():
                (self.folder / path).write_text(text, encoding="utf-8")

    def ask(self, tests: Sequence[str]) -> dict[str, Said]:
        """Run tests named `path::function`; one with parameters fails when one of its cases does."""
        report = self._reports / "tests.xml"
        report.unlink(missing_ok=True)
        own = ["-p", "no:cacheprovider", f"--basetemp={self._test_data}", f"--junitxml={report}"]
        argv = ["-m", "pytest", "-q", "--tb=short", *own, *tests]
        code, output = self._run(argv)
        cases = ET.parse(report).getroot().iter("testcase") if report.exists() else iter(())  # noqa: S314 - our own
        found = _by_test(cases)
        broke = Said("broke", f"pytest ended with {code}: {_last(output)}")
        return {test: found.get(test, broke) for test in tests}

    def run_chaos(self, chaos: Chaos, tries: int = 1) -> Said:
        """A chaos run, again while it finds nothing, up to so many times; `failed`: it judged, and found a violation.

        One run is one throw of the dice: on a busy machine fewer things meet.
        """
        said = self._run_chaos(chaos)
        return self.run_chaos(chaos, tries - 1) if said.state == "passed" and tries > 1 else said

    def _run_chaos(self, chaos: Chaos) -> Said:
        report = self._reports / "chaos.json"
        report.unlink(missing_ok=True)
        if not (self.folder / CHAOS).exists():
            return Said("broke", f"{CHAOS} is not there")
        code, output = self._run([CHAOS, *chaos.arguments, "--json", str(report)])
        if code not in (0, 1) or not report.exists():  # a traceback ends with 1, too, but judges nothing
            return Said("broke", f"{CHAOS} ended with {code}: {_last(output)}")
        found = _violations(report.read_text(encoding="utf-8"))
        if code == 1 and found == NONE:  # the rig could not do what was asked of it
            return Said("broke", f"{CHAOS} ended with {code} and {NONE}: {_last(output)}")
        return Said("failed" if code == 1 else "passed", found)

    def clean(self) -> None:
        """Remove what tests that were interrupted left outside the copy: as root, a half-made PostgreSQL."""
        for data_dir in self._test_data.glob("postgres*"):
            place.remove(data_dir)

    def _run(self, argv: Sequence[str]) -> tuple[int, str]:
        environ = {name: value for name, value in os.environ.items() if not name.startswith(_NOT_INHERITED)}
        # No compiled files: two versions of one file within a second would pass for each other.
        environ |= {"PYTHONPATH": str(self.folder), "PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "120"}
        child = subprocess.Popen(  # noqa: S603 - our own argv, no shell
            [sys.executable, *argv],
            cwd=self.folder,
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,  # it hears Ctrl-C from us, once, and so has time to clean up
        )
        try:
            output, _ = child.communicate(timeout=TESTS_MAX_S)
        except subprocess.TimeoutExpired:
            return _end(child), f"still at it after {TESTS_MAX_S} s"
        except BaseException:
            _end(child)
            raise
        return child.returncode, output


def _end(child: subprocess.Popen[str]) -> int:
    child.send_signal(signal.SIGINT)
    try:
        child.communicate(timeout=STOP_MAX_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.communicate()
    return child.returncode


def _by_test(cases: Iterator[ET.Element]) -> dict[str, Said]:
    found: dict[str, Said] = {}
    for case in cases:
        name = case.get("classname", "").replace(".", "/") + ".py::" + case.get("name", "").partition("[")[0]
        said = _said(case)
        worst = {"broke": 2, "failed": 1, "passed": 0}
        if name not in found or worst[said.state] > worst[found[name].state]:
            found[name] = said
    return found


def _said(case: ET.Element) -> Said:
    if (failure := case.find("failure")) is not None:
        return Said("failed", _first(failure.get("message", "")))
    if (error := case.find("error")) is not None:
        return Said("broke", _first(error.get("message", "")))
    if (skipped := case.find("skipped")) is not None:
        return Said("broke", "skipped: " + _first(skipped.get("message", "")))
    return Said("passed", "")


def _violations(report: str) -> str:
    """How often each rule was broken, as the run's own figures have it."""
    rules = Counter(str(found.get("rule")) for found in json.loads(report).get("violations", []))
    return ", ".join(f"{rule}: {times}" for rule, times in sorted(rules.items())) or NONE


def _first(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def _last(text: str) -> str:
    return _first("\n".join(reversed(text.splitlines())))


@contextmanager
def open_scratch(project: Path, parent: Path) -> Iterator[Scratch]:
    """Copy what is the project's own (tracked, or new and not ignored) below `parent`; removed at the end."""
    folder = parent / "project"
    try:
        copy_project(project, folder)
        scratch = Scratch(folder)
        try:
            yield scratch
        finally:
            scratch.clean()
    finally:
        shutil.rmtree(parent, ignore_errors=True)


def copy_project(project: Path, target: Path) -> None:
    """Copy a project as git has it; without git everything but data, caches and environments."""
    git = shutil.which("git")
    if git is None or not (project / ".git").exists():
        shutil.copytree(project, target, ignore=_NOT_COPIED)
        return
    listed = subprocess.run(  # noqa: S603 - our own argv, no shell
        [git, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=project,
        check=True,
        capture_output=True,
    ).stdout
    for name in filter(None, os.fsdecode(listed).split("\0")):
        if (project / name).is_file():  # not one that was deleted and not yet committed
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(project / name, target / name)
