"""A pod that lives and is slow at one step, every time: everything that may come in between does."""

from __future__ import annotations

import asyncio

from notifier.proof.chaos.scene import Scene
from notifier.proof.chaos.schedule import Planned


async def at_failpoint(scene: Scene, planned: Planned) -> None:
    """Replace a pod by one that waits at the step, and that one by an ordinary one when the time is over."""
    pod = scene.pods[planned.parameters["pod"]]
    async with pod.lock:
        life = await pod.replace(failpoints=f"{planned.name}=pause:{planned.parameters['pause_s']}")
        try:
            await asyncio.sleep(planned.for_s)
        finally:
            if pod.life is life and not life.ended.is_set():
                await pod.replace()
