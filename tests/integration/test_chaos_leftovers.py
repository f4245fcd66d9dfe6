"""Nothing of a rig stays behind, however it ends."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from notifier.embedded.process import birth
from notifier.proof.chaos import leftovers
from tests.support.chaos import data_of
from tests.support.poll import eventually

pytestmark = [pytest.mark.database, pytest.mark.timeout(300)]

DRIVER = """
import asyncio, signal, sys, time
from notifier.proof.chaos.schedule import Planned
from notifier.proof.chaos.stage import open_stage

class Deaf:
    def signal(self, **line): pass
    def fault(self, **line): pass
    def keys_forgotten(self): pass

async def main():
    async with open_stage(Deaf(), families=("freeze", "clocks"), seed=1) as stage:
        stage.scene.pods["worker-2"].signal(signal.SIGSTOP)
        print("up", flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Another place for the directories of runs."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    yield tmp_path / f"notifier-chaos-{os.geteuid()}"
    for folder in (tmp_path / f"notifier-chaos-{os.geteuid()}").glob("run-*"):
        leftovers.clear(folder)


@dataclass
class Driver:
    """A rig in a process of its own."""

    process: subprocess.Popen[bytes]
    parent: Path

    @property
    def folder(self) -> Path:
        return eventually(lambda: next(iter(self.parent.glob("run-*")), None))

    def started(self) -> list[tuple[int, str]]:
        """What it noted as started."""
        return [
            (note["pid"], note["born"])
            for line in (self.folder / leftovers.STARTED).read_text().splitlines()
            if (note := json.loads(line))
        ]

    def is_up(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line == b"up\n":
                return
        raise AssertionError("it never came up")


@pytest.fixture
def driver(place: Path) -> Iterator[Driver]:
    process = subprocess.Popen(
        [sys.executable, "-c", DRIVER],
        env=os.environ | {"TMPDIR": str(place.parent)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    yield Driver(process, place)
    process.kill()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


def alive(processes: list[tuple[int, str]]) -> list[int]:
    return [pid for pid, born in processes if birth(pid) == born]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, -signal.SIGINT), (signal.SIGTERM, 143)])
def test_a_rig_that_is_told_to_stop_leaves_nothing(driver: Driver, number: signal.Signals, code: int) -> None:
    driver.is_up()
    folder, started = driver.folder, driver.started()
    root = data_of(folder)
    assert len(alive(started)) >= 11  # two servers, nine pods
    driver.process.send_signal(number)
    assert driver.process.wait(60) in (code, 128 + number)
    assert alive(started) == []
    assert not folder.exists()
    assert not root.exists()
    assert not [pid for pid, _ in started if Path(f"/dev/shm/faketime_shm_{pid}").exists()]


def test_a_rig_that_is_told_to_stop_while_it_starts_leaves_nothing(driver: Driver) -> None:
    folder = driver.folder
    eventually(lambda: (folder / "started.jsonl").exists())
    started = driver.started()
    driver.process.send_signal(signal.SIGTERM)
    assert driver.process.wait(60) == 143
    assert alive(started) == []
    assert not folder.exists()


def test_what_a_killed_rig_leaves_the_next_one_removes(driver: Driver, place: Path) -> None:
    driver.is_up()
    folder, started = driver.folder, driver.started()
    root = data_of(folder)
    driver.process.kill()
    driver.process.wait()
    left = eventually(lambda: len(alive(started)) <= 3 and alive(started))  # the pods see that the rig is gone
    assert len(left) == 3  # the two servers, and the worker that was frozen
    mine = leftovers.make_folder()
    try:
        assert alive(started) == []
        assert not folder.exists()
        assert not root.exists()
        assert not [pid for pid, _ in started if Path(f"/dev/shm/faketime_shm_{pid}").exists()]
    finally:
        leftovers.clear(mine)
    assert not place.exists()


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
