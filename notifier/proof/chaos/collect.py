"""Fetches, once all is quiet, what the provider wrote down and what the service says, into the history."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import datetime
from typing import Any

from notifier.domain.errors import NotReady
from notifier.proof.chaos.outside import Outside, Reply
from notifier.proof.chaos.recorder import Recorder

PROVIDER_PAGE = 1_000
API_PAGE = 500
TRIES = 20
AGAIN_S = 0.5
PLACES = 1_000  # more than a batch has mails
OF_A_CALL = ("key", "worker", "generation", "user", "kind", "to", "verdict", "status", "message_ids", "answered")
OF_A_MAIL = ("id", "key", "user", "kind", "to")


async def collect(outside: Outside, recorder: Recorder) -> None:
    """Write it all down. Raises NotReady when one of them does not answer.

    The service is asked first: where mails still go on, what it calls sent is then in the provider's list.
    """
    async for document in notifications(outside):
        named = {name: document[name] for name in ("id", "kind", "state", "reason")}
        recorder.opinion(user=document["user_id"], document=document, **named)
    recorder.invariants((await _read(outside.ask_api, "GET", "/v1/invariants")).body)
    for call in reversed([call async for call in _of_provider(outside, "attempts")]):
        for place, fields in enumerate(_of_each_mail(call)):
            recorder.attempt(datetime.fromisoformat(call["time"]), seq=call["id"] * PLACES + place, **fields)
    mails = [mail async for mail in _of_provider(outside, "messages")]
    for seq, mail in enumerate(reversed(mails), start=1):
        recorder.mail(datetime.fromisoformat(mail["created_at"]), seq=seq, **{name: mail[name] for name in OF_A_MAIL})


def _of_each_mail(call: dict[str, Any]) -> list[dict[str, Any]]:
    """A call as the history has it: a batch is as many as it has mails, all at one time and under one key."""
    named = {name: call[name] for name in OF_A_CALL}
    if not call["members"]:
        return [named]
    ids = call["message_ids"]
    if len(ids) != len(call["members"]):  # none, or those of the first call under the key, which had others in it
        ids = [None] * len(call["members"])
    return [
        named | member | {"to": [to], "message_ids": [message] if message else []}
        for member, to, message in zip(call["members"], call["to"], ids, strict=True)
    ]


async def notifications(outside: Outside, filters: str = "") -> AsyncIterator[dict[str, Any]]:
    """Every notification, or those that fit (`&state=…`). Raises NotReady when no api answers."""
    after = ""
    while True:
        page = await _read(outside.ask_api, "GET", f"/v1/notifications?limit={API_PAGE}{filters}{after}")
        for document in page.body["notifications"]:
            yield document
        if page.body["next"] is None:
            return
        after = f"&after={page.body['next']}"


async def _of_provider(outside: Outside, what: str) -> AsyncIterator[dict[str, Any]]:
    """Everything of one list, the newest first."""
    after = ""
    while True:
        page = await _read(outside.ask_provider, f"/api/{what}?limit={PROVIDER_PAGE}{after}")
        for item in page.body[what]:
            yield item
        if page.body["next"] is None:
            return
        after = f"&after={page.body['next']}"


async def _read(ask: Callable[..., Awaitable[Reply]], *question: str) -> Reply:
    """Ask until there is an answer."""
    for _ in range(TRIES):
        reply = await ask(*question)
        if reply.status == 200:
            return reply
        await asyncio.sleep(AGAIN_S)
    raise NotReady(f"{question[-1].partition('?')[0]} did not answer {TRIES} times in a row")
