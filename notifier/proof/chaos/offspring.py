"""What a `notifier run` among the pods has started itself, followed from outside for the record."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

from notifier.embedded.process import birth, read_note
from notifier.proof.chaos.note import Note, Role
from notifier.proof.chaos.pods import Pod

LOOK_S = 0.2
ROLES: dict[str, Role] = {"api": "api", "scheduler": "scheduler", "worker": "worker"}


async def follow(run: Pod, note: Note) -> None:
    """Note every start and end of its children, for ever."""
    known: dict[tuple[int, str], tuple[str, Role, str | None]] = {}
    while True:
        for pid, born in [key for key in known if birth(key[0]) != key[1]]:
            name, role, worker = known.pop((pid, born))
            note.signal(process=name, role=role, pid=pid, signal="END", worker=worker)
        for name, role, pid, worker in _children(run.home / "run"):
            key = (pid, birth(pid) or "")
            if key[1] and key not in known:
                known[key] = (name, role, worker)
                note.signal(process=name, role=role, pid=pid, signal="START", worker=worker)
        await asyncio.sleep(LOOK_S)


def _children(ready_files: Path) -> Iterator[tuple[str, Role, int, str | None]]:
    for file in sorted(ready_files.glob("*.json")):
        ready = read_note(file)
        pid, worker, role = ready.get("pid"), ready.get("process"), ROLES.get(file.stem.partition("-")[0])
        if isinstance(pid, int) and role is not None:
            yield f"run/{file.stem}", role, pid, worker if isinstance(worker, str) else None
