"""Somebody outside: an application that sends events and logins, and a person who reads the provider's record."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import aiohttp
from standardwebhooks import Webhook

from notifier.demo.judge import Record
from notifier.domain.errors import NotReady

ANSWER_WITHIN_S = 15.0
AGAIN_AFTER_S = 0.1

Answer = dict[str, Any]


def new_event_id() -> str:
    """An event id nobody has used."""
    return f"evt_{uuid.uuid4().hex}"


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody who signs up; `event_id` is the id of that signup, whenever it is sent."""

    id: str
    name: str
    event_id: str = field(default_factory=new_event_id)

    @property
    def email(self) -> str:
        """Where the mails go."""
        return f"{self.id}@example.com"


@dataclass(frozen=True, slots=True)
class Outsider:
    """HTTP and nothing else; `facts` is the ready file of the `run`."""

    http: aiohttp.ClientSession
    facts: dict[str, Any]

    async def sign_up(self, person: Person, *, event_id: str = "") -> Answer:
        """Send somebody's signup, the same one or with an `event_id` a second one."""
        user = {"id": person.id, "email": person.email, "name": person.name}
        event = {"id": event_id or person.event_id, "type": "user.signed_up", "user": user}
        return await self._post("/v1/events", json.dumps(event), self._key())

    async def log_in(self, person: Person) -> Answer:
        """Send a signed login webhook."""
        body = json.dumps({"type": "user.logged_in", "data": {"user_id": person.id}})
        webhook_id, now = f"msg_{uuid.uuid4().hex}", datetime.now(UTC)
        headers = {
            "webhook-id": webhook_id,
            "webhook-timestamp": str(int(now.timestamp())),
            "webhook-signature": Webhook(self.facts["login_webhook_secret"]).sign(webhook_id, now, body),
        }
        return await self._post("/v1/webhooks/login", body, headers)

    async def advance(self, seconds: float) -> None:
        """Move business time."""
        await self._post("/dev/clock", json.dumps({"advance_s": seconds}), self._key())

    async def under_way(self) -> int:
        """How many notifications have not ended yet (of each state 500 are counted at most)."""
        states = ("scheduled", "pending", "sending")
        urls = [f"{self.facts['api']}/v1/notifications?limit=500&state={state}" for state in states]
        return sum([len((await self._get(url, self._key()))["notifications"]) for url in urls])

    async def set_latency(self, least_ms: int, most_ms: int) -> None:
        """Have the provider take its time over each call."""
        faults = {"latency_ms": [least_ms, most_ms]}
        async with self.http.put(self.facts["mock"] + "/api/faults", json=faults) as response:
            response.raise_for_status()

    async def record(self) -> Record:
        """Everything the provider wrote down."""
        messages = await self._get(self.facts["mock"] + "/api/messages?limit=10000")
        attempts = await self._get(self.facts["mock"] + "/api/attempts?limit=10000")
        return Record(messages["messages"], attempts["attempts"])

    async def metric(self, url: str, name: str) -> float:
        """One metric without labels."""
        async with self.http.get(url) as response:
            lines = (await response.text()).splitlines()
        return next((float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"{name} ")), 0.0)

    def _key(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.facts['api_key']}", "Content-Type": "application/json"}

    async def _get(self, url: str, headers: dict[str, str] | None = None) -> Answer:
        async with self.http.get(url, headers=headers) as response:
            response.raise_for_status()
            return dict(await response.json())

    async def _post(self, path: str, body: str, headers: dict[str, str]) -> Answer:
        """Repeat until it is accepted, as a client should. Raises NotReady for a refusal, or after 15 s without."""
        deadline, seen = time.monotonic() + ANSWER_WITHIN_S, ""
        while time.monotonic() < deadline:
            try:
                async with self.http.post(self.facts["api"] + path, data=body, headers=headers) as response:
                    seen = f"{response.status} {await response.text()}"
                    if response.status in (200, 202):
                        return dict(json.loads(await response.read()))
                    if response.status not in (409, 503):
                        break
            except (aiohttp.ClientError, TimeoutError) as error:
                seen = type(error).__name__
            await asyncio.sleep(AGAIN_AFTER_S)
        raise NotReady(f"POST {path} was not accepted: {seen}")
