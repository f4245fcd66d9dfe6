"""SIGSTOP for longer than a claim lasts, then SIGCONT: between two steps, or anywhere."""

from __future__ import annotations

import asyncio
import signal

from notifier.proof.chaos.scene import Scene
from notifier.proof.chaos.schedule import Planned


async def at_failpoint(scene: Scene, planned: Planned) -> bool:
    """Replace a pod by one that stops itself at the step, and wake it; whether it came there.

    `for_s` is the time it has for that and the time it is frozen. One that does not come there is replaced.
    """
    pod, frozen_s = scene.pods[planned.parameters["pod"]], planned.parameters["frozen_s"]
    async with pod.lock:
        life = await pod.arm(f"{planned.name}=freeze*1", planned.for_s - frozen_s)
        reached = life.frozen.is_set()
        if reached:
            try:
                await asyncio.sleep(frozen_s)
            finally:
                if pod.life is life:
                    pod.signal(signal.SIGCONT)
                    life.armed = ""  # it was to happen once
        elif pod.life is life and not life.ended.is_set():
            await pod.replace()
        return reached


async def at_any_moment(scene: Scene, planned: Planned) -> None:
    """Freeze a worker wherever it is."""
    pod = scene.pods[planned.parameters["pod"]]
    async with pod.lock:
        pod.signal(signal.SIGSTOP)
        try:
            await asyncio.sleep(planned.for_s)
        finally:
            pod.signal(signal.SIGCONT)
