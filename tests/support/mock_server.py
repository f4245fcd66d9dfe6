"""The mock provider inside a test: a free port, a data directory, and the few questions tests ask of it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import aiohttp

import providers
from providers.base import Family, Message, Provider
from providers.mock.app import serve

T = TypeVar("T")

MAIL = Message(
    sender="Notifier <hello@example.com>",
    to="ada@example.com",
    subject="Welcome, Ada",
    html="<p>Welcome</p>",
    text="Welcome",
    headers={"Auto-Submitted": "auto-generated"},
    tags={"kind": "onboarding"},
    dated=datetime(2026, 11, 29, 10, 0, tzinfo=UTC).timestamp(),
)
CONTEXT = {"worker": "w-1", "generation": "3", "user": "u 1 % ü", "kind": "onboarding"}


@dataclass(frozen=True)
class Mock:
    """A running mock and a plain HTTP session to look at it with."""

    url: str
    http: aiohttp.ClientSession
    smtp: str = ""

    async def faults(self, **fields: object) -> dict[str, Any]:
        async with self.http.put(f"{self.url}/api/faults", json=fields) as answer:
            assert answer.status == 200, await answer.text()
            return await answer.json()

    async def get(self, path: str, **params: object) -> Any:
        async with self.http.get(self.url + path, params={k: str(v) for k, v in params.items()}) as answer:
            assert answer.status == 200, await answer.text()
            return await answer.json()

    async def delete(self, path: str) -> int:
        async with self.http.delete(self.url + path) as answer:
            return answer.status

    async def post(
        self, path: str, json: object, key: str | None = None, **headers: str
    ) -> tuple[int, dict[str, Any], Any]:
        headers = {"Authorization": "Bearer re_test", **headers}
        if key is not None:
            headers["Idempotency-Key"] = key
        async with self.http.post(self.url + path, json=json, headers=headers) as answer:
            return answer.status, await answer.json(), answer.headers

    async def inbox(self) -> list[dict[str, Any]]:
        return (await self.get("/api/messages"))["messages"]

    async def verdicts(self, key: str) -> list[str]:
        """What became of each call under the key, oldest first."""
        found = (await self.get("/api/attempts", key=key))["attempts"]
        return [attempt["verdict"] for attempt in reversed(found)]


@contextlib.asynccontextmanager
async def running_mock(data_dir: Path, port: int = 0, **options: Any) -> AsyncIterator[Mock]:
    stop = asyncio.Event()
    urls: asyncio.Future[tuple[str, str]] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(
        serve(
            host="127.0.0.1",
            port=port,
            data_dir=data_dir,
            stop=stop,
            ready=lambda *both: urls.set_result(both),
            **options,
        )
    )
    await asyncio.wait({task, urls}, return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        await task
    try:
        async with aiohttp.ClientSession() as http:
            url, smtp = urls.result()
            yield Mock(url, http, smtp)
    finally:
        stop.set()
        await task


@contextlib.asynccontextmanager
async def a_provider(
    url: str, family: Family = Family.REJECT, timeout_s: float = 5, concurrency: int = 10
) -> AsyncIterator[Provider]:
    provider = providers.mock_provider(
        base_url=url,
        api_key="re_test",
        family=family,
        window=timedelta(days=1),
        timeout_s=timeout_s,
        concurrency=concurrency,
    )
    try:
        yield provider
    finally:
        await provider.close()


async def until(question: Callable[[], Awaitable[T]], seconds: float = 10) -> T:
    """Ask until the answer is yes; fails the test after so long."""
    async with asyncio.timeout(seconds):
        while not (answer := await question()):  # noqa: ASYNC110 - another process has no event to set
            await asyncio.sleep(0.01)
    return answer
