"""What there is to break: the pods, the servers, the wires between them, and the provider's own knobs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp

from notifier.proof.chaos.note import Note
from notifier.proof.chaos.pods import Pod
from notifier.proof.chaos.proxy import Proxy
from notifier.proof.chaos.servers import Postgres, Valkey

MOCK_ANSWERS_WITHIN_S = 30.0
LOOK_S = 0.1


@dataclass(slots=True)
class Scene:
    """The parts of a stage. Wires are named by the pod at their near end; `redis` is one for all."""

    note: Note
    pods: Mapping[str, Pod]
    postgres: Postgres
    valkey: Valkey
    database: Mapping[str, Proxy]
    provider: Mapping[str, Proxy]
    redis: Proxy
    mock_url: str
    http: aiohttp.ClientSession

    @property
    def wires(self) -> list[Proxy]:
        """All of them."""
        return [*self.database.values(), *self.provider.values(), self.redis]

    async def turn(self, **knobs: Any) -> None:
        """Turn some of the provider's knobs; the others stay as they are."""
        await self._ask("PUT", "/api/faults", json=knobs)

    async def turn_back(self) -> None:
        """Every knob back to how the provider was started."""
        await self._ask("DELETE", "/api/faults")

    async def forget_keys(self) -> None:
        """Have the provider forget every key."""
        self.note.keys_forgotten()
        await self._ask("DELETE", "/api/keys")

    async def _ask(self, method: str, path: str, **arguments: Any) -> None:
        """Ask the provider, directly, until it answers. Raises TimeoutError, or ClientResponseError for a refusal."""
        async with asyncio.timeout(MOCK_ANSWERS_WITHIN_S):
            while True:
                with contextlib.suppress(aiohttp.ClientConnectionError):
                    async with self.http.request(method, self.mock_url + path, **arguments) as response:
                        response.raise_for_status()
                        return
                await asyncio.sleep(LOOK_S)
