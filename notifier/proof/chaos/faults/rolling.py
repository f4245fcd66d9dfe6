"""A deploy: every process of ours is replaced in order, one after the other."""

from __future__ import annotations

import time

from notifier.proof.chaos.scene import Scene
from notifier.proof.chaos.schedule import Planned

ORDER = ("api-1", "worker-1", "scheduler-1", "worker-2", "api-2", "worker-3", "scheduler-2", "run")
ALONE = ("api", "supervisor")  # two of these would want the same port or directory


async def replaced(scene: Scene, planned: Planned) -> None:
    """SIGTERM each and start another, or the other way round where two can be at once; as many as the time allows."""
    deadline = time.monotonic() + planned.for_s
    for name in ORDER:
        if time.monotonic() > deadline:
            return
        pod = scene.pods[name]
        async with pod.lock:
            await pod.replace(first="old" if pod.spec.role in ALONE else planned.parameters["first"])
