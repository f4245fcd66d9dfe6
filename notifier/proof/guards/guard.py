"""What a guard is here: exact pieces of text without which it is gone, and who has to notice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


class Moved(Exception):
    """The text that holds a guard is not in its file exactly once; the message names guard and file."""


@dataclass(frozen=True, slots=True)
class Change:
    """In the file `path`, `old` becomes `new`; `old` must stand there exactly once."""

    path: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Chaos:
    """A run of scripts/kill_pod_mid_send.py that sees from outside that the guard is gone."""

    seed: int
    faults: str
    minutes: float = 0.7
    users: int = 150
    keyless: bool = False
    window_s: float | None = None
    batch: int = 1

    @property
    def arguments(self) -> tuple[str, ...]:
        """For the command line."""
        given = {"minutes": self.minutes, "users": self.users, "seed": self.seed, "faults": self.faults}
        words = [word for name, value in given.items() for word in (f"--{name}", str(value))]
        if self.window_s is not None:
            words += ["--window", f"{self.window_s:g}"]
        if self.batch > 1:
            words += ["--batch", str(self.batch)]
        return tuple(words + ["--keyless"] * self.keyless)


@dataclass(frozen=True, slots=True)
class Guard:
    """One guard. `holds`: what it keeps from happening. `tests`: each fails once the guard is out.

    `unseen`: why nobody notices from outside, where no `chaos` does.
    """

    name: str
    holds: str
    changes: tuple[Change, ...]
    tests: tuple[str, ...]
    chaos: Chaos | None = None
    unseen: str = ""

    @property
    def files(self) -> tuple[str, ...]:
        """The files it stands in."""
        return tuple(dict.fromkeys(change.path for change in self.changes))


def without(guard: Guard, read: Mapping[str, str]) -> dict[str, str]:
    """The files of `guard` as they are without it. `read`: path → text as it is. Raises Moved."""
    changed: dict[str, str] = {path: read[path] for path in guard.files}
    for change in guard.changes:
        times = changed[change.path].count(change.old)
        if times != 1:
            raise Moved(
                f"guard {guard.name}: the text that holds it stands {times} times in {change.path}, not once; "
                f"the code has moved, so mend its entry in {Path(__file__).parent.name}/ (notifier/proof)"
            )
        changed[change.path] = changed[change.path].replace(change.old, change.new)
    return changed
