"""A worker in the test's process, with a real database, and the real mock to send to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from notifier.domain.provider_key import provider_key
from notifier.runtime import Runtime, open_runtime, way_out
from notifier.settings import Settings
from notifier.store import deliveries
from notifier.store.deliveries import Claim, Claimant
from notifier.worker.loop import Worker
from providers.base import Provider
from tests.support.mock_server import Mock, running_mock
from tests.support.rig import Rig, open_rig
from tests.support.stack import until

QUICK: dict[str, Any] = {
    "redis_url": "",
    "claim_ttl_s": 3,
    "provider_timeout_s": 1,
    "poll_s": 0.1,
    "backoff_first_s": 0.05,
    "backoff_max_s": 0.2,
    "stop_grace_s": 5,
    "worker_concurrency": 20,
}


@dataclass(frozen=True)
class Bench:
    """Events go in by the rig; the runtime and the provider are a worker's."""

    rig: Rig
    mock: Mock
    runtime: Runtime
    provider: Provider

    def claimant(
        self, worker: str, ttl_s: float = 0, account: str | None = None, batch_max: int | None = None
    ) -> Claimant:
        traits = self.provider.traits
        hashes = {kind: template.hash for kind, template in self.runtime.templates.items()}
        ttl = timedelta(seconds=ttl_s)
        size = batch_max or self.runtime.settings.batch_max
        return Claimant(worker, ttl, hashes, traits.name, account or traits.account, traits.has_keys, size)

    async def claim(self, worker: str = "ghost", ttl_s: float = 0, **claimant: Any) -> list[Claim]:
        """Claim all there is as another worker would; by default it is dead at once and leaves its rows in doubt."""
        who = self.claimant(worker, ttl_s, **claimant)
        async with self.runtime.database.connection() as conn:
            return await deliveries.claim(conn, who, list(who.templates), 100)

    @asynccontextmanager
    async def working(self) -> AsyncIterator[Worker]:
        """A worker that runs beside the block and is stopped in order after it."""
        stop = asyncio.Event()
        worker = Worker(self.runtime, self.provider, stop)
        task = asyncio.create_task(worker.run())
        try:
            yield worker
        finally:
            stop.set()
            await task

    async def ended(self, number: int = 1, deadline_s: float = 15) -> list[dict[str, Any]]:
        """All that is closed, once it is so many; by user and kind."""

        async def enough() -> bool:
            return await self.rig.value("SELECT count(*) FROM settlements") >= number

        await until(enough, f"{number} are closed", deadline_s=deadline_s)
        return await self.rig.rows("SELECT * FROM settlements ORDER BY user_id, kind")

    async def work_off(self, number: int = 1) -> list[dict[str, Any]]:
        async with self.working():
            return await self.ended(number)

    async def calls(self) -> list[dict[str, Any]]:
        """What the mock was asked, in all."""
        return (await self.mock.get("/api/attempts", limit=100))["attempts"]

    async def until_claimed(self, number: int = 1) -> None:
        async def claimed() -> bool:
            found = await self.rig.value("SELECT count(*) FROM deliveries WHERE claimed_by IS NOT NULL")
            return bool(found == number)

        await until(claimed, f"{number} are claimed", deadline_s=10)

    async def until_taken(self, number: int = 1) -> None:
        async def taken() -> bool:
            return len(await self.mock.inbox()) == number

        await until(taken, f"the provider has {number}", deadline_s=10)

    def key(self, user: str, kind: str = "onboarding") -> str:
        return provider_key(self.runtime.namespace, user, kind)


@asynccontextmanager
async def a_bench(database_url: str, folder: Path, **settings: Any) -> AsyncIterator[Bench]:
    async with running_mock(folder / "mock") as mock, open_rig(database_url, redis_url="") as rig:
        made = Settings(database_url=database_url, **{**QUICK, "mock_url": mock.url, **settings})
        provider = way_out(made)
        try:
            async with open_runtime(made, "worker") as runtime:
                yield Bench(rig, mock, runtime, provider)
        finally:
            await provider.close()


def told(row: dict[str, Any]) -> tuple[str, str | None, int]:
    """How a row ended: state, reason, generation."""
    return row["state"], row["reason"], row["generation"]
