"""SIGKILL: at every step that has a name, and at any moment."""

from __future__ import annotations

import asyncio
import signal
import time

from notifier.proof.chaos.pods import order, within
from notifier.proof.chaos.scene import Scene
from notifier.proof.chaos.schedule import Planned


async def at_failpoint(scene: Scene, planned: Planned) -> bool:
    """Replace a pod by one that kills itself at the step; whether it did, within `for_s` of its first answer.

    Where it was long in coming, everything is: it has that time on top. One that does not come there in time is killed
    anyway.
    """
    pod = scene.pods[planned.parameters["pod"]]
    async with pod.lock:
        began = time.monotonic()
        life = await pod.replace(failpoints=f"{planned.name}=kill*1", first=order(pod))
        came_after_s = time.monotonic() - began
        if not await within(life.ended, planned.for_s + came_after_s) and pod.life is life:
            pod.signal(signal.SIGKILL)
            await life.ended.wait()
        return life.struck_itself


async def at_any_moment(scene: Scene, planned: Planned) -> None:
    """Kill a worker wherever it is."""
    pod = scene.pods[planned.parameters["pod"]]
    async with pod.lock:
        await asyncio.sleep(planned.parameters["after_s"])
        pod.signal(signal.SIGKILL)
