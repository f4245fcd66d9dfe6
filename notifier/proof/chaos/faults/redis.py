"""Redis away, empty, frozen, full, or lying."""

from __future__ import annotations

import asyncio

from notifier.proof.chaos.liars import Lie, denies, grants, lying_redis
from notifier.proof.chaos.scene import Scene
from notifier.proof.chaos.schedule import Planned

LATE_S = 5.0


async def stopped(scene: Scene, planned: Planned) -> None:
    """Stop it; it comes back later, empty."""
    await scene.valkey.signal("TERM")
    try:
        await asyncio.sleep(planned.for_s)
    finally:
        await scene.valkey.start()


async def restarted_empty(scene: Scene, planned: Planned) -> None:
    """Stop it and start it again at once; nothing is kept."""
    await scene.valkey.signal("TERM")
    await scene.valkey.start()
    await asyncio.sleep(planned.for_s)


async def flushed(scene: Scene, planned: Planned) -> None:
    """Delete everything in it."""
    await scene.valkey.command("FLUSHALL")
    await asyncio.sleep(planned.for_s)


async def frozen(scene: Scene, planned: Planned) -> None:
    """Let it keep its connections and say nothing."""
    await scene.valkey.signal("STOP")
    try:
        await asyncio.sleep(planned.for_s)
    finally:
        await scene.valkey.signal("CONT")


async def out_of_memory(scene: Scene, planned: Planned) -> None:
    """Let it refuse every write."""
    await scene.valkey.command("CONFIG", "SET", "maxmemory-policy", "noeviction", "maxmemory", "1")
    try:
        await asyncio.sleep(planned.for_s)
    finally:
        await scene.valkey.restore_memory()


async def grants_all(scene: Scene, planned: Planned) -> None:
    """Let it grant every lease, and say that nobody holds any."""
    await _lying(scene, planned.for_s, grants)


async def denies_all(scene: Scene, planned: Planned) -> None:
    """Let it deny every lease, and say that all are still held."""
    await _lying(scene, planned.for_s, denies)


async def answers_late(scene: Scene, planned: Planned) -> None:
    """Let it answer long after anybody listens."""
    await _lying(scene, planned.for_s, grants, after_s=LATE_S)


async def _lying(scene: Scene, seconds: float, lie: Lie, *, after_s: float = 0.0) -> None:
    async with lying_redis(lie, after_s=after_s) as port:
        await scene.redis.retarget(port)
        try:
            await asyncio.sleep(seconds)
        finally:
            await scene.redis.retarget(scene.valkey.port)
