"""Nothing of a rig stays behind, however it ends."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from notifier.proof.chaos import leftovers

pytestmark = [pytest.mark.database, pytest.mark.timeout(300)]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Another place for the directories of runs."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    yield tmp_path / f"notifier-chaos-{os.geteuid()}"
    for folder in (tmp_path / f"notifier-chaos-{os.geteuid()}").glob("run-*"):
        leftovers.clear(folder)


def test_a_living_rig_is_left_alone_and_so_is_what_is_to_be_kept(place: Path) -> None:
    mine, kept = leftovers.make_folder(), leftovers.make_folder()
    leftovers.clear(kept, keep=True)
    another = leftovers.make_folder()
    assert mine.is_dir()
    assert kept.is_dir()
    for folder in (mine, another):
        leftovers.clear(folder)
    assert place.is_dir()
    shutil.rmtree(kept)


def test_a_process_with_a_reused_id_is_left_alone(place: Path) -> None:
    folder = leftovers.make_folder()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as somebody:
        (folder / leftovers.STARTED).write_text(json.dumps({"pid": somebody.pid, "born": "long ago"}) + "\n{\n")
        leftovers.clear(folder)
        assert somebody.poll() is None
        somebody.communicate(b"\n")
    assert somebody.returncode == 0


def test_a_place_that_others_may_enter_is_refused(place: Path) -> None:
    place.mkdir(mode=0o755)
    with pytest.raises(Exception, match="nobody else may enter"):
        leftovers.make_folder()
    place.chmod(0o700)
