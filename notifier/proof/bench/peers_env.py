"""The environments the sides run in: made once from a lock file, with hashes, and made anew when that changes."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from notifier.domain.errors import NotReady
from notifier.proof.bench.processes import SOURCE

LOCK = SOURCE / "requirements-bench.lock"
OWN_LOCK = SOURCE / "requirements.lock"
OBAN_NEEDS = (3, 12)
NAMES = ("python3.14", "python3.13", "python3.12", "python3")
STAMP = "made-from"


def find_python() -> tuple[str, tuple[int, int]]:
    """The newest Python that can make environments, 3.13 before all; ours where there is no newer one."""
    found = {path: version for path in _candidates() if (version := _version(path)) and version >= (3, 11)}
    if not found:
        return sys.executable, sys.version_info[:2]
    best = max(found, key=lambda path: (found[path] == (3, 13), found[path]))
    return best, found[best]


def _candidates() -> Iterator[str]:
    for name in NAMES:
        if path := shutil.which(name):
            yield path
    yield from map(str, sorted((Path.home() / ".pyenv" / "versions").glob("3.*/bin/python")))


def _version(python: str) -> tuple[int, int] | None:
    """Its version, if it runs and has venv and pip; a stand-in that starts nothing has none."""
    asked = "import sys, venv, ensurepip; print(*sys.version_info[:2])"
    try:
        done = subprocess.run([python, "-c", asked], capture_output=True, text=True, timeout=20, check=True)  # noqa: S603 - what is found on PATH
        major, minor = map(int, done.stdout.split())
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
    return major, minor


def make(data_dir: Path, say: Callable[[str], None]) -> tuple[str, str, tuple[int, int]]:
    """Answer the Python of the peers, ours, and the version of both; raises NotReady with what pip said.

    Where the bench itself runs on that version, ours is its own.
    """
    base, version = find_python()
    peers = _make(data_dir / "peers", LOCK, "the peers", base, version, say)
    if version == sys.version_info[:2]:
        return peers, sys.executable, version
    return peers, _make(data_dir / "own", OWN_LOCK, "what we need ourselves", base, version, say), version


def _make(place: Path, lock: Path, what: str, base: str, version: tuple[int, int], say: Callable[[str], None]) -> str:
    if not lock.is_file():
        raise NotReady(
            f"there is no {lock}: {what} can be installed from a checkout; or leave the peers out: --sides ours,floor"
        )
    python, stamp = place / "bin" / "python", place / STAMP
    wanted = hashlib.sha256(lock.read_bytes() + f"{base} {version}".encode()).hexdigest()
    if stamp.is_file() and stamp.read_text("ascii") == wanted and python.exists():
        return str(python)
    say(f"installing {what} into {place}, with {base}")
    shutil.rmtree(place, ignore_errors=True)
    place.parent.mkdir(parents=True, exist_ok=True)
    _run([base, "-m", "venv", str(place)], what)
    pip = [str(python), "-m", "pip", "--quiet", "--disable-pip-version-check", "--no-input"]
    _run([*pip, "install", "--require-hashes", "-r", str(lock)], what)
    stamp.write_text(wanted, "ascii")
    return str(python)


def _run(argv: list[str], what: str) -> None:
    around = {name: value for name, value in os.environ.items() if not name.startswith(("NOTIFIER_", "PYTHON"))}
    done = subprocess.run(argv, capture_output=True, text=True, env=around, check=False)  # noqa: S603 - ours, as above
    if done.returncode:
        said = (done.stderr or done.stdout).strip()[-1_500:]
        raise NotReady(f"{what} cannot be installed; without peers: --sides ours,floor. It said:\n{said}")
