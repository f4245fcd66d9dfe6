"""A worker cut off from the database or the provider, noticed by both sides or by neither."""

from __future__ import annotations

import asyncio

from notifier.proof.chaos.proxy import Cut, Proxy
from notifier.proof.chaos.scene import Scene
from notifier.proof.chaos.schedule import Planned


async def database_cut(scene: Scene, planned: Planned) -> None:
    """Sever a worker's sessions and refuse new ones."""
    await _cut(scene.database[planned.parameters["pod"]], planned.for_s, Cut.RESET)


async def database_silent(scene: Scene, planned: Planned) -> None:
    """Let nothing pass between a worker and the database, without a word to either."""
    await _cut(scene.database[planned.parameters["pod"]], planned.for_s, Cut.SILENT)


async def provider_cut(scene: Scene, planned: Planned) -> None:
    """Sever a worker's calls and refuse new ones."""
    await _cut(scene.provider[planned.parameters["pod"]], planned.for_s, Cut.RESET)


async def provider_silent(scene: Scene, planned: Planned) -> None:
    """Let nothing pass between a worker and the provider; what was written arrives when it heals."""
    await _cut(scene.provider[planned.parameters["pod"]], planned.for_s, Cut.SILENT)


async def provider_answers_lost(scene: Scene, planned: Planned) -> None:
    """Let a worker's calls arrive and no answer come back."""
    await _cut(scene.provider[planned.parameters["pod"]], planned.for_s, Cut.DEAF)


async def _cut(wire: Proxy, seconds: float, how: Cut) -> None:
    await wire.cut(how)
    try:
        await asyncio.sleep(seconds)
    finally:
        await wire.heal()
