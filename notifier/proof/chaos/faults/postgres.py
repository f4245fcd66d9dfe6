"""PostgreSQL crashing, stopping, and taking nothing."""

from __future__ import annotations

import asyncio

from notifier.proof.chaos.note import SignalName
from notifier.proof.chaos.scene import Scene
from notifier.proof.chaos.schedule import Planned


async def backend_killed(scene: Scene, planned: Planned) -> None:
    """Kill -9 one session: PostgreSQL ends all the others and recovers."""
    await scene.postgres.answers()
    await scene.postgres.kill_backend(planned.parameters["pick"])
    await asyncio.sleep(planned.for_s)
    await scene.postgres.answers()


async def postmaster_killed(scene: Scene, planned: Planned) -> None:
    """Kill -9 the server itself."""
    await _away(scene, planned.for_s, "KILL")


async def stopped_at_once(scene: Scene, planned: Planned) -> None:
    """An immediate stop: no session ends in order, and the next start has to recover."""
    await _away(scene, planned.for_s, "QUIT")


async def read_only(scene: Scene, planned: Planned) -> None:
    """Refuse every write, as after a failover to a stand-by."""
    await scene.postgres.answers()
    await scene.postgres.set_read_only(True)
    try:
        await asyncio.sleep(planned.for_s)
    finally:
        await scene.postgres.answers()
        await scene.postgres.set_read_only(False)


async def _away(scene: Scene, seconds: float, how: SignalName) -> None:
    await scene.postgres.signal(how)
    try:
        await asyncio.sleep(seconds)
    finally:
        await scene.postgres.start()
