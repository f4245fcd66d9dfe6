"""A provider that is slow, refuses, loses its answers, or dies."""

from __future__ import annotations

import asyncio
import signal
from typing import Any

from notifier.proof.chaos.scene import Scene
from notifier.proof.chaos.schedule import Planned


async def slow(scene: Scene, planned: Planned) -> None:
    """Answer late, some calls later than anybody waits."""
    await _turned(scene, planned, latency_ms=list(planned.parameters["latency_ms"]))


async def failing(scene: Scene, planned: Planned) -> None:
    """Answer 503 and take nothing."""
    await _turned(scene, planned, fail_rate=1, fail_status=503)


async def too_many(scene: Scene, planned: Planned) -> None:
    """Answer 429, and say when to come back."""
    await _turned(
        scene, planned, fail_rate=1, fail_status=429, retry_after_s=float(planned.parameters["retry_after_s"])
    )


async def answer_dropped(scene: Scene, planned: Planned) -> None:
    """Take the mail and cut the connection."""
    await _turned(scene, planned, drop_response_rate=planned.parameters["rate"])


async def error_after_accept(scene: Scene, planned: Planned) -> None:
    """Take the mail and answer 500."""
    await _turned(scene, planned, error_after_accept_rate=planned.parameters["rate"])


async def reset(scene: Scene, planned: Planned) -> None:
    """Cut the connection before anything is taken."""
    await _turned(scene, planned, reset_rate=planned.parameters["rate"])


async def hanging(scene: Scene, planned: Planned) -> None:
    """Read the call, take nothing, and say nothing."""
    await _turned(scene, planned, hang_s=planned.parameters["hang_s"])


async def refusing(scene: Scene, planned: Planned) -> None:
    """Refuse some addresses for good and take them again a moment later; take the others, and answer 500."""
    await _turned(scene, planned, reject_to=[planned.parameters["to"]], error_after_accept_rate=1)


async def restarted(scene: Scene, planned: Planned) -> None:
    """Kill -9 it and start it again with what it had committed."""
    pod = scene.pods["mock"]
    async with pod.lock:
        with pod.down():
            pod.signal(signal.SIGKILL)
            await asyncio.sleep(planned.for_s)
        await pod.up()


async def keys_forgotten(scene: Scene, planned: Planned) -> None:
    """Lose every answer for a while, then forget every key: a repeat is a second mail, and nobody can know."""
    await scene.turn(drop_response_rate=1)
    try:
        await asyncio.sleep(planned.for_s)
        await scene.forget_keys()
    finally:
        await scene.turn_back()


async def _turned(scene: Scene, planned: Planned, **knobs: Any) -> None:
    await scene.turn(**knobs)
    try:
        await asyncio.sleep(planned.for_s)
    finally:
        await scene.turn_back()
