"""The machine we are on: DATA_DIR, the space it has, and the ports a `run` would need."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from notifier.doctor.finding import Finding, failed, ok, warning
from notifier.embedded.process import port_is_free, read_note
from notifier.settings import Settings

SPACE_LOW = 1024**3
SPACE_OUT = 100 * 1024**2


def check(settings: Settings, *, is_running: bool, is_ours: bool) -> Iterator[Finding]:
    """Look at what a `run` here stands on. `is_ours`: no other database is named."""
    if not (is_ours or settings.data_dir.exists()):
        return
    yield from _data_dir(settings.data_dir)
    if is_running:
        yield ok("ports", f"held by the `notifier run` in {settings.data_dir}")
    elif is_ours:
        yield _ports(settings)


def _data_dir(data_dir: Path) -> Iterator[Finding]:
    try:
        if data_dir.exists() and data_dir.stat().st_mode & 0o022:
            yield failed("data", f"others may write in {data_dir}", f"chmod go-w {data_dir}")
        root = read_note(data_dir / "postgres-place.json").get("root")
        for place in [data_dir, *([Path(root)] if isinstance(root, str) and root != str(data_dir) else [])]:
            yield space(place, shutil.disk_usage(_there(place)).free)
    except OSError as error:
        yield failed("data", f"cannot look at {data_dir}: {error.strerror}", "set NOTIFIER_DATA_DIR to one of yours")


def _there(path: Path) -> Path:
    """The path, or what is there of it."""
    path = path.absolute()
    return next(place for place in (path, *path.parents) if place.exists())


def space(place: Path, free: int) -> Finding:
    """Whether what grows there can grow."""
    text = f"{free / 1024**3:.1f} GiB are free for {place}"
    todo = "make room there, or set NOTIFIER_DATA_DIR to a larger disk"
    if free < SPACE_OUT:
        return failed("space", text, todo)
    return warning("space", text, todo) if free < SPACE_LOW else ok("space", text)


def _ports(settings: Settings) -> Finding:
    wanted = settings.ports_of_run
    taken = []
    for name, port in wanted.items():
        try:
            if port and not port_is_free(port, settings.host or "127.0.0.1"):
                taken.append((name, port))
        except OSError as error:
            return warning("ports", f"{name}={port}: {error.strerror or error}", "set NOTIFIER_HOST to 127.0.0.1")
    if not taken:
        return ok("ports", f"free for a `notifier run`: {', '.join(str(port) for port in wanted.values())}")
    names = ", ".join(f"{port} ({name})" for name, port in taken)
    return warning("ports", f"taken by something else: {names}", "a `notifier run` needs others there, or 0 for any")
