"""Directories of runs: each notes who it belongs to and what it started, so that the next run can clean up after it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from notifier.domain.errors import NotReady
from notifier.embedded.place import SHARED, remove
from notifier.embedded.process import birth, explained, read_note, write_private

OWNER = "rig.json"
STARTED = "started.jsonl"
DATA = "data"
QUIT_WITHIN_S = 6.0  # a PostgreSQL that is told to drop everything also lets go of its shared memory
END_WITHIN_S = 10.0
POLL_S = 0.05


def make_folder() -> Path:
    """A new directory for a run of this process, after what dead ones left has been removed.

    Raises NotReady when the place for it is somebody else's.
    """
    while True:
        parent = _parent()
        for folder in sorted(parent.iterdir()):
            if folder.is_dir() and not _is_wanted(folder):
                clear(folder)
        with explained(parent), contextlib.suppress(FileNotFoundError):  # a run that just ended took the place away
            folder = Path(tempfile.mkdtemp(prefix=f"run-{os.getpid()}-", dir=_parent()))
            write_private(folder / OWNER, json.dumps({"pid": os.getpid(), "born": birth(os.getpid())}) + "\n")
            return folder


def note_started(folder: Path, pid: int) -> None:
    """Note a process that must not outlive the run; one line, written at once."""
    line = json.dumps({"pid": pid, "born": birth(pid)}) + "\n"
    with (folder / STARTED).open("a", encoding="utf-8") as file:
        file.write(line)


def clear(folder: Path, *, keep: bool = False) -> None:
    """End what was started for a run and still lives, by process id and birth, and remove the run's files.

    Those that are to be kept are nobody's to remove any more but the user's.
    """
    _end(folder)
    for pid, _ in _noted(folder):
        forget_clock(pid)
    if keep:
        write_private(folder / OWNER, json.dumps({"kept": True}) + "\n")
        return
    remove(folder / DATA)
    remove(folder)
    with contextlib.suppress(OSError):
        folder.parent.rmdir()  # only when it is empty: another run may be going on


def forget_clock(pid: int) -> None:
    """Remove what libfaketime shares with the children of a process that had no time to do it itself."""
    for name in (f"faketime_shm_{pid}", f"sem.faketime_sem_{pid}"):
        with contextlib.suppress(OSError):
            Path("/dev/shm", name).unlink()  # noqa: S108 - that is where it is


def _parent() -> Path:
    parent = Path(tempfile.gettempdir()).resolve() / f"notifier-chaos-{os.geteuid()}"
    with explained(parent):
        parent.mkdir(mode=0o700, exist_ok=True)
        found = parent.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise NotReady(
            f"{parent} should be a directory of user {os.geteuid()} that nobody else may enter, and is "
            f"{stat.filemode(found.st_mode)} of user {found.st_uid}: remove it, or set TMPDIR to another place"
        )
    return parent


def _is_wanted(folder: Path) -> bool:
    """Whether its rig lives, or it is to be kept.

    One without a note is being made just now, or its rig died in that instant, long ago.
    """
    note = read_note(folder / OWNER)
    if not note:
        try:
            return time.time() - folder.stat().st_mtime < END_WITHIN_S
        except OSError:
            return True  # somebody else just removed it
    pid = note.get("pid")
    return note.get("kept") is True or (isinstance(pid, int) and birth(pid) == note.get("born") is not None)


def _end(folder: Path) -> None:
    postmaster = _postmaster(folder)
    if postmaster and _send(*postmaster, signal.SIGQUIT):
        _send(*postmaster, signal.SIGCONT)
        _await_end([postmaster], QUIT_WITHIN_S)
    processes = [*_noted(folder), *([postmaster] if postmaster else [])]
    for pid, born in processes:
        _send(pid, born, signal.SIGKILL)
    _await_end(processes, END_WITHIN_S)


def _noted(folder: Path) -> Iterator[tuple[int, str]]:
    """Every process of the run that was noted anywhere."""
    with contextlib.suppress(OSError):
        for line in (folder / STARTED).read_text(encoding="utf-8").splitlines():
            with contextlib.suppress(ValueError):  # the rig died while it wrote the last one
                yield from _pair(json.loads(line))
    for note in (folder / DATA).glob("*.json"):
        yield from _pair(read_note(note))
    for note in (folder / "pods").glob("*/run.json"):  # what a `notifier run` among the pods started
        for pair in _children(read_note(note)):
            yield from _pair({"pid": pair[0], "born": pair[1]})


def _children(note: dict[str, object]) -> list[list[object]]:
    children = note.get("children")
    return (
        [pair for pair in children if isinstance(pair, list) and len(pair) == 2] if isinstance(children, list) else []
    )


def _pair(note: object) -> Iterator[tuple[int, str]]:
    if isinstance(note, dict):
        pid, born = note.get("pid"), note.get("born")
        if isinstance(pid, int) and isinstance(born, str):
            yield pid, born


def _postmaster(folder: Path) -> tuple[int, str] | None:
    """The PostgreSQL that works in the run's data, noted or not: the rig may have died while it started."""
    root = read_note(folder / DATA / "postgres-place.json").get("root")
    if not isinstance(root, str) or (Path(root).parent != SHARED and folder not in Path(root).parents):
        return None
    data = Path(root) / "data"
    try:
        pid = int((data / "postmaster.pid").read_text(encoding="utf-8").partition("\n")[0])
        if not os.path.samefile(psutil.Process(pid).cwd(), data):
            return None
    except (OSError, ValueError, psutil.Error):
        return None
    born = birth(pid)
    return (pid, born) if born else None


def _send(pid: int, born: str, number: signal.Signals) -> bool:
    """Signal this very process; False when it is gone."""
    if birth(pid) != born:
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
    return True


def _await_end(processes: list[tuple[int, str]], within_s: float) -> None:
    deadline = time.monotonic() + within_s
    while any(birth(pid) == born for pid, born in processes) and time.monotonic() < deadline:
        time.sleep(POLL_S)
