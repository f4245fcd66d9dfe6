"""One child of `run`, as a real process: when it is given up, and when it never is."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from notifier.supervisor import children
from notifier.supervisor.children import Child, ChildFailed, ChildSpec
from tests.support.stack import until

# A process that answers, or ends at once with the code that a file holds.
SCRIPT = """
import json, os, pathlib, sys, time
folder, file = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[3])
with (folder / "lives").open("a") as lives:
    lives.write("x")
if (folder / "code").exists():
    sys.stderr.write("notifier: it will not do\\n")
    sys.exit(int((folder / "code").read_text()))
new = file.with_suffix(".new")
new.write_text(json.dumps({"pid": os.getpid(), "url": "http://127.0.0.1:1", "metrics": None}))
new.replace(file)
time.sleep(60)
"""


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(children, "BACKOFF_FIRST_S", 0.01)
    monkeypatch.setattr(children, "BACKOFF_MAX_S", 0.02)


@asynccontextmanager
async def child_in(
    folder: Path, program: Path | str = sys.executable
) -> AsyncIterator[tuple[Child, asyncio.Task[None]]]:
    """A kept child; ended by its own id afterwards."""
    ours, theirs = os.pipe()
    spec = ChildSpec("api", [str(program), "-c", SCRIPT, str(folder)], {})
    child = Child(spec, run_dir=folder, log_dir=folder, parent_fd=ours, changed=lambda: None)
    keeping = asyncio.create_task(child.keep())
    try:
        yield child, keeping
    finally:
        await child.end(patience_s=5, hurry=asyncio.Event())
        with contextlib.suppress(ChildFailed):
            await keeping
        os.close(ours)
        os.close(theirs)


def lives(folder: Path) -> int:
    return len((folder / "lives").read_text())


@pytest.mark.parametrize("code", [1, 2])
async def test_one_that_once_answered_is_started_again_for_ever(tmp_path: Path, code: int) -> None:
    async with child_in(tmp_path) as (child, keeping):
        await until(child.answers.is_set, "it answers")
        (tmp_path / "code").write_text(str(code))
        os.kill(child.pid or 0, signal.SIGKILL)
        await until(lambda: lives(tmp_path) > children.START_ATTEMPTS + 3, "it was tried more often than at first")
        assert not keeping.done()
        (tmp_path / "code").unlink()
        await until(child.answers.is_set, "it answers again")


@pytest.mark.parametrize(("code", "tries"), [(1, children.START_ATTEMPTS), (2, 1)])
async def test_one_that_never_answered_is_given_up_with_its_words(tmp_path: Path, code: int, tries: int) -> None:
    (tmp_path / "code").write_text(str(code))
    async with child_in(tmp_path) as (_, keeping):
        with pytest.raises(ChildFailed, match=f"exit code {code}.: it will not do") as caught:
            await asyncio.wait_for(asyncio.shield(keeping), 20)
        assert caught.value.refused == (code == 2)
    assert lives(tmp_path) == tries


async def test_a_program_that_cannot_be_started_is_no_traceback(tmp_path: Path) -> None:
    async with child_in(tmp_path, tmp_path / "gone") as (_, keeping):
        with pytest.raises(ChildFailed, match=r"api does not start .not started.: .*No such file"):
            await asyncio.wait_for(asyncio.shield(keeping), 20)
