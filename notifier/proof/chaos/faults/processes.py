"""A whole process gone for a moment: an api, a scheduler, a `notifier run` with all that it started."""

from __future__ import annotations

import asyncio
import signal

from notifier.proof.chaos.scene import Scene
from notifier.proof.chaos.schedule import Planned


async def killed(scene: Scene, planned: Planned) -> None:
    """Kill it, and start it again a little later. What a `notifier run` had started ends by itself meanwhile."""
    pod = scene.pods[planned.parameters["pod"]]
    async with pod.lock:
        with pod.down():
            pod.signal(signal.SIGKILL)
            await asyncio.sleep(planned.for_s)
