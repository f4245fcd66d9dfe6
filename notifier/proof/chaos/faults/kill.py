"""SIGKILL: at every step that has a name, and at any moment."""

from __future__ import annotations

import asyncio
import signal

from notifier.proof.chaos.scene import Scene
from notifier.proof.chaos.schedule import Planned


async def at_failpoint(scene: Scene, planned: Planned) -> bool:
    """Replace a pod by one that kills itself at the step; whether it did. If not, it is killed anyway."""
    pod = scene.pods[planned.parameters["pod"]]
    async with pod.lock:
        life = await pod.arm(f"{planned.name}=kill*1", planned.for_s)
        if not life.ended.is_set() and pod.life is life:
            pod.signal(signal.SIGKILL)
            await life.ended.wait()
        return life.struck_itself


async def at_any_moment(scene: Scene, planned: Planned) -> None:
    """Kill a worker wherever it is."""
    pod = scene.pods[planned.parameters["pod"]]
    async with pod.lock:
        await asyncio.sleep(planned.parameters["after_s"])
        pod.signal(signal.SIGKILL)
