"""What the tests of the rig share."""

from __future__ import annotations

from pathlib import Path

from notifier.embedded.process import read_note
from notifier.proof.chaos import leftovers


def data_of(folder: Path) -> Path:
    """Where a run's PostgreSQL has its data."""
    return Path(str(read_note(folder / leftovers.DATA / "postgres-place.json")["root"]))
