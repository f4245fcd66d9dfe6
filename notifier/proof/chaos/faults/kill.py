"""SIGKILL: at every step that has a name, and at any moment."""

from __future__ import annotations

import asyncio
import signal
import time

from notifier.proof.chaos.pods import within
from notifier.proof.chaos.scene import Scene
from notifier.proof.chaos.schedule import Planned


async def at_failpoint(scene: Scene, planned: Planned) -> None:
    """Replace a pod by one that kills itself at the step. One that does not come there in time is killed anyway."""
    deadline = time.monotonic() + planned.for_s
    pod = scene.pods[planned.parameters["pod"]]
    async with pod.lock:
        life = await pod.replace(failpoints=f"{planned.name}=kill*1")
        if not await within(life.ended, deadline - time.monotonic()) and pod.life is life:
            pod.signal(signal.SIGKILL)
            await life.ended.wait()


async def at_any_moment(scene: Scene, planned: Planned) -> None:
    """Kill a worker wherever it is."""
    pod = scene.pods[planned.parameters["pod"]]
    async with pod.lock:
        await asyncio.sleep(planned.parameters["after_s"])
        pod.signal(signal.SIGKILL)
