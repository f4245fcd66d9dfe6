"""Whoever stands outside: one request at a time over HTTP to the apis and to the provider, and what came back."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from notifier.proof.chaos.recorder import Door, Recorder
from notifier.proof.history import Act

ANSWER_WITHIN_S = 10.0
CONNECTIONS_MAX = 200
JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back, read whole. `status` is None where nothing did."""

    status: int | None
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def wait_s(self) -> float:
        """How long the service asks to be left alone."""
        try:
            return float(self.headers.get("Retry-After", 0))
        except ValueError:
            return 0.0

    @property
    def is_replayed(self) -> bool:
        """Whether the service says that it had this before."""
        return self.headers.get("Idempotent-Replayed") == "true"


class Outside:
    """Asks the apis in turn, and the provider's own pages. Only what goes through `ask` stands in the history."""

    def __init__(
        self, http: aiohttp.ClientSession, recorder: Recorder, api_urls: Sequence[str], mock_url: str, api_key: str
    ) -> None:
        self._http = http
        self._recorder = recorder
        self._api_urls = api_urls
        self._mock_url = mock_url
        self._key = {"Authorization": f"Bearer {api_key}"}
        self._turn = 0

    async def ask(
        self,
        act: Act,
        door: Door,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        **fields: Any,
    ) -> Reply:
        """Ask the next api and put both down; `fields` are the request's line's."""
        n = self._recorder.request(act, door, **fields)
        reply = await self.ask_api(method, path, body=body, headers=headers)
        self._recorder.answer(n, reply.status, reply.body, replayed=reply.is_replayed)
        return reply

    async def ask_api(
        self, method: str, path: str, *, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Reply:
        """Ask the next api."""
        self._turn += 1
        url = self._api_urls[self._turn % len(self._api_urls)] + path
        return await self._ask(method, url, body, {"Content-Type": JSON, **self._key, **(headers or {})})

    async def ask_provider(self, path: str) -> Reply:
        """Read one of the provider's own pages."""
        return await self._ask("GET", self._mock_url + path, None, {})

    async def _ask(self, method: str, url: str, body: bytes | None, headers: Mapping[str, str]) -> Reply:
        try:
            async with self._http.request(method, url, data=body, headers=headers) as response:
                raw = await response.read()
                return Reply(response.status, json.loads(raw) if raw else {}, response.headers)
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError):  # ValueError: what came is no JSON
            return Reply(None)


@asynccontextmanager
async def open_outside(
    recorder: Recorder, api_urls: Sequence[str], mock_url: str, api_key: str
) -> AsyncIterator[Outside]:
    """Have connections of its own, which are closed in the end."""
    connector = aiohttp.TCPConnector(limit=CONNECTIONS_MAX)
    timeout = aiohttp.ClientTimeout(total=ANSWER_WITHIN_S)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as http:
        yield Outside(http, recorder, api_urls, mock_url, api_key)
