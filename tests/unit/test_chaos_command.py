"""Where the history of a chaos run lies, and when it stays."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import pytest

from notifier.domain.errors import NotReady
from notifier.proof.chaos import leftovers
from notifier.proof.chaos.command import _history_file


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Another place for the directories of runs, and to work in."""
    for made in ("temporary", "cwd"):
        (tmp_path / made).mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.chdir(tmp_path / "cwd")
    return tmp_path


def write_and_raise(error: BaseException) -> None:
    with _history_file(None, 7) as file:
        file.write_text("seen")
        raise error


def files(place: Path) -> list[str]:
    return [path.name for path in place.rglob("*") if path.is_file()]


def test_a_run_that_breaks_off_keeps_its_history_and_says_where(place: Path) -> None:
    with pytest.raises(NotReady) as raised:
        write_and_raise(NotReady("the api hangs"))
    assert raised.value.__notes__ == ["History: chaos-7.jsonl"]
    assert Path("chaos-7.jsonl").read_text() == "seen"
    assert files(place) == ["chaos-7.jsonl"]


@pytest.mark.parametrize("stop", [asyncio.CancelledError, KeyboardInterrupt])
def test_a_run_that_is_stopped_keeps_nothing(place: Path, stop: type[BaseException]) -> None:
    with pytest.raises(stop):
        write_and_raise(stop())
    assert files(place) == []


def test_what_a_killed_run_wrote_is_in_a_directory_of_runs() -> None:
    with _history_file(None, 7) as file:
        assert (file.parent / leftovers.OWNER).exists()
        assert file.parent.parent == leftovers._parent()
