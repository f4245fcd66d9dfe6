"""Hosts whose clocks are ten minutes off, for the whole run: some pods are started with another clock in front."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

from notifier.proof.chaos.scene import Scene
from notifier.proof.chaos.schedule import Planned

OFFSETS = {"api-2": "-10m", "worker-2": "+10m", "scheduler-2": "+10m"}
LIBRARY = "libfaketime.so.1"
PLACES = ("/usr/lib/*/faketime", "/usr/lib/faketime", "/usr/lib64/faketime", "/usr/local/lib/faketime")
ABSENT = f"there is no {LIBRARY} on this machine (Debian and Ubuntu: apt-get install libfaketime)"


def find_library() -> Path | None:
    """Where libfaketime usually is, if it is there."""
    root = Path("/")
    found = (path / LIBRARY for place in PLACES for path in sorted(root.glob(place.lstrip("/"))))
    return next((path for path in found if path.is_file()), None)


def environment(pod: str, library: Path | None) -> Mapping[str, str]:
    """What makes a pod's wall clock another one. Its monotonic clocks stay true, as on a host that is set wrong."""
    if library is None or pod not in OFFSETS:
        return {}
    return {
        "LD_PRELOAD": str(library),
        "FAKETIME": OFFSETS[pod],
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "NO_FAKE_STAT": "1",
    }


async def ten_minutes_apart(_scene: Scene, planned: Planned) -> None:
    """Nothing to do but to last."""
    await asyncio.sleep(planned.for_s)
