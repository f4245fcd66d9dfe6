"""Plays the planned load: a sender that repeats until it is heard, through every door, whatever is broken meanwhile."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from standardwebhooks import Webhook

from notifier.proof.chaos.load_plan import Happening, Operate, Say, Step
from notifier.proof.chaos.operator import Operator
from notifier.proof.chaos.outside import JSON, Outside, Reply
from notifier.proof.chaos.recorder import Door, Recorder

AGAIN_FIRST_S, AGAIN_MAX_S = 0.2, 3.0
NDJSON = "application/x-ndjson"
TO_BE_REPEATED = frozenset({None, 408, 409, 425, 429})  # and what begins with a 5


class Load:
    """One sender and one operator. `heard` are the users whose signup was acknowledged."""

    def __init__(self, outside: Outside, recorder: Recorder, webhook_secret: str, seed: int) -> None:
        self._outside = outside
        self._recorder = recorder
        self._webhook = Webhook(webhook_secret)
        self._operator = Operator(outside)
        self._chance = random.Random(f"pauses {seed}")
        self._first: dict[tuple[bool, str], int] = {}
        self._began_at = datetime.now(UTC)
        self._give_up = 0.0
        self.heard: set[str] = set()

    async def play(self, steps: Sequence[Step], started: float, give_up: float) -> None:
        """Do each step at its time after `started`; what is not heard by `give_up` never is (both monotonic)."""
        self._began_at, self._give_up = self._recorder.at_of(started), give_up
        async with asyncio.TaskGroup() as group:
            for step in steps:
                await asyncio.sleep(started + step.at_s - time.monotonic())
                group.create_task(self._do(step))

    async def _do(self, step: Step) -> None:
        if isinstance(step, Operate):
            await self._operator.act(step, self._give_up)
        elif step.form in ("batch", "ndjson"):
            await self._say_together(step)
        else:
            await asyncio.gather(*(self._say(step.happenings[0], step.form) for _ in range(step.copies)))

    async def _say(self, happening: Happening, form: str) -> None:
        """Repeat the same request until it is acknowledged or refused, or the time is over."""
        document = self._document(happening)
        for wait_s in self._pauses():
            reply = await (self._post_login if form == "webhook" else self._post_event)(happening, document)
            if not _again(reply.status):
                self._heard(happening, reply.status)
                return
            if not await self._pause(max(wait_s, reply.wait_s)):
                return

    async def _post_event(self, happening: Happening, document: Mapping[str, Any]) -> Reply:
        n = self._note(happening, "events")
        return self._answered(n, await self._outside.ask_api("POST", "/v1/events", body=_packed(document)))

    async def _post_login(self, happening: Happening, _document: Mapping[str, Any]) -> Reply:
        """Each try has a signature of its own, and the same id and body."""
        body: dict[str, Any] = {"type": happening.type, "data": {"user_id": happening.user}}
        if (occurred_at := self._occurred_at(happening)) is not None:
            body["timestamp"] = occurred_at.isoformat()
        raw, now = _packed(body), datetime.now(UTC)
        headers = {
            "webhook-id": happening.id,
            "webhook-timestamp": str(int(now.timestamp())),
            "webhook-signature": self._webhook.sign(happening.id, now, raw.decode()),
        }
        n = self._note(happening, "webhook")
        return self._answered(n, await self._outside.ask_api("POST", "/v1/webhooks/login", body=raw, headers=headers))

    async def _say_together(self, say: Say) -> None:
        """A batch; what it did not take goes into the next one."""
        left = list(say.happenings)
        for wait_s in self._pauses():
            numbers = [self._note(happening, "batch") for happening in left]
            reply = await self._post_batch(left, as_lines=say.form == "ndjson")
            results = reply.body["results"] if reply.status == 207 else [{"status": reply.status}] * len(left)
            not_taken = []
            for happening, n, result in zip(left, numbers, results, strict=True):
                status, body = result["status"], {name: result[name] for name in result if name != "status"}
                self._recorder.answer(n, status, body, replayed=bool(body.get("event", {}).get("duplicate")))
                if _again(status):
                    not_taken.append(happening)
                else:
                    self._heard(happening, status)
            left = not_taken
            if not left or not await self._pause(max(wait_s, reply.wait_s)):
                return

    async def _post_batch(self, happenings: Sequence[Happening], *, as_lines: bool) -> Reply:
        documents = [self._document(happening) for happening in happenings]
        raw = b"\n".join(map(_packed, documents)) if as_lines else _packed({"events": documents})
        headers = {"Content-Type": NDJSON if as_lines else JSON}
        return await self._outside.ask_api("POST", "/v1/events/batch", body=raw, headers=headers)

    # -------------------------------------------------------------------------------------------- what is said

    def _document(self, happening: Happening) -> dict[str, Any]:
        profile = {"email": happening.email, "name": happening.name}
        user = {"id": happening.user} | {name: value for name, value in profile.items() if value is not None}
        document: dict[str, Any] = {"id": happening.id, "type": happening.type, "user": user}
        if (occurred_at := self._occurred_at(happening)) is not None:
            document["occurred_at"] = occurred_at.isoformat()
        return document

    def _occurred_at(self, happening: Happening) -> datetime | None:
        if happening.occurred_s is None:
            return None
        return self._began_at + timedelta(seconds=happening.occurred_s)

    def _note(self, happening: Happening, door: Door) -> int:
        """Put the request down; one that was made before under this id says which."""
        known_by = (door == "webhook", happening.id)
        n = self._recorder.request(
            happening.act,
            door,
            user=happening.user,
            id=happening.id,
            occurred_at=self._occurred_at(happening),
            email=happening.email,
            resends=self._first.get(known_by),
        )
        self._first.setdefault(known_by, n)
        return n

    def _answered(self, n: int, reply: Reply) -> Reply:
        self._recorder.answer(n, reply.status, reply.body, replayed=reply.is_replayed)
        return reply

    def _heard(self, happening: Happening, status: int | None) -> None:
        if happening.act == "signup" and status in (200, 202):
            self.heard.add(happening.user)

    # -------------------------------------------------------------------------------------------- patience

    def _pauses(self) -> Iterator[float]:
        """Without end: each up to twice as long as the one before."""
        most_s = AGAIN_FIRST_S
        while True:
            yield self._chance.uniform(most_s / 2, most_s)
            most_s = min(2 * most_s, AGAIN_MAX_S)

    async def _pause(self, wait_s: float) -> bool:
        """Wait, unless that is longer than there is time."""
        if time.monotonic() + wait_s >= self._give_up:
            return False
        await asyncio.sleep(wait_s)
        return True


def _again(status: int | None) -> bool:
    return status in TO_BE_REPEATED or (status or 0) >= 500


def _packed(document: Any) -> bytes:
    return json.dumps(document).encode()
