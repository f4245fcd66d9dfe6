"""A deploy: every process of ours is replaced in order, one after the other."""

from __future__ import annotations

import time

from notifier.proof.chaos.pods import order
from notifier.proof.chaos.scene import Scene
from notifier.proof.chaos.schedule import OF_A_DEPLOY, Planned


async def replaced(scene: Scene, planned: Planned) -> None:
    """SIGTERM each and start another, or the other way round where two can be at once; as many as the time allows."""
    deadline = time.monotonic() + planned.for_s
    start = OF_A_DEPLOY.index(planned.parameters["beginning_with"])
    for name in (*OF_A_DEPLOY[start:], *OF_A_DEPLOY[:start]):
        if time.monotonic() > deadline:
            return
        pod = scene.pods[name]
        async with pod.lock:
            await pod.replace(first=order(pod, planned.parameters["first"]))
