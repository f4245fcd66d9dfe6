"""The bench's command line: what it refuses, and in which words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from notifier.proof.bench.main import main


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--works", "noop,nope"], "nope: there are ingest"),
        (["--sides", "celery"], "celery: there are ours"),
        (["--works", ","], "name at least one"),
        (["--workers", "1,two"], "no list of whole"),
        (["--growth", "0"], "at least 1"),
        (["--json", "/nowhere/at/all.json"], "cannot be a file"),
        (["--pictures", "/nowhere/at/all"], "there is no directory"),
    ],
)
def test_a_wrong_command_line_is_refused_before_anything_starts(
    given: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(given) == 2
    assert said in " ".join(capsys.readouterr().err.replace("│", " ").split())


def test_help_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    said = capsys.readouterr().out
    for word in ("--quick", "--compare", "--seed", "median"):
        assert word in said


def test_two_runs_are_not_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = []
    for run in ("a", "b"):
        path = tmp_path / f"{run}.json"
        path.write_text(json.dumps({"run": run, "date": "2026", "medians": []}))
        files.append(str(path))
    assert main(["--compare", *files]) == 1
    assert "these are two runs" in capsys.readouterr().err
    assert main(["--compare", files[0], files[0]]) == 0
    assert main(["--compare", files[0], str(tmp_path / "none.json")]) == 1
    assert "cannot be read" in capsys.readouterr().err
