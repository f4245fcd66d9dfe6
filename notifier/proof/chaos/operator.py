"""The operator of the load: cancels, retries, resolves, erases and pauses, each time on what was read just before."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any
from urllib.parse import quote, urlencode

from notifier.proof.chaos.load_plan import Operate
from notifier.proof.chaos.outside import Outside, Reply

ROUNDS_MAX = 5
AGAIN_S = 0.5
UNCERTAIN_MAX = 500
MOVED = 412


class Operator:
    """Acts through the apis; looks at the provider before saying what became of an uncertain mail."""

    def __init__(self, outside: Outside) -> None:
        self._outside = outside

    async def act(self, step: Operate, give_up: float) -> None:
        """Do one thing; a few tries, none of them after `give_up` (monotonic)."""
        match step.act:
            case "switch":
                await self._pause(step, give_up)
            case "erase":
                await self._until_settled(give_up, "erase", "DELETE", f"/v1/users/{_quoted(step.user)}", user=step.user)
            case "resolve":
                await self._resolve()
            case "cancel" | "retry":
                await self._cancel_or_retry(step, give_up)

    async def _cancel_or_retry(self, step: Operate, give_up: float) -> None:
        for _ in range(ROUNDS_MAX):
            found = await self._find(user_id=step.user, kind=step.kind)
            if found == [] or (found and step.act == "retry" and found[0]["state"] != "canceled"):
                return
            if found and not _again(await self._on(found[0]["id"], step.act, {"kind": step.kind})):
                return
            if time.monotonic() + AGAIN_S >= give_up:
                return
            await asyncio.sleep(AGAIN_S)

    async def _resolve(self) -> None:
        for document in await self._find(state="uncertain", limit=UNCERTAIN_MAX) or []:
            outcome = await self._outcome(document)
            if outcome is not None:
                detail = {"kind": document["kind"], "outcome": outcome}
                await self._on(document["id"], "resolve", detail, outcome=outcome, reason="looked at the provider")

    async def _outcome(self, document: dict[str, Any]) -> str | None:
        """What the provider's inbox says; None when it does not answer."""
        wanted = urlencode({"q": f'user:"{document["user_id"]}" kind:"{document["kind"]}"', "limit": 1})
        reply = await self._outside.ask_provider(f"/api/messages?{wanted}")
        if reply.status != 200:
            return None
        return "sent" if reply.body["total"] else "not_sent"

    async def _find(self, **filters: Any) -> list[dict[str, Any]] | None:
        reply = await self._outside.ask(
            "read", "operate", "GET", f"/v1/notifications?{urlencode(filters)}", user=filters.get("user_id")
        )
        return reply.body["notifications"] if reply.status == 200 else None

    async def _on(self, id_: str, act: Any, detail: dict[str, Any], **body: str) -> Reply:
        """Read it, and act on what was read."""
        path = f"/v1/notifications/{id_}"
        read = await self._outside.ask("read", "operate", "GET", path, notification=id_)
        if read.status != 200:
            return read
        return await self._outside.ask(
            act,
            "operate",
            "POST",
            f"{path}/{act}",
            body=json.dumps(body).encode(),
            headers={"If-Match": read.headers["ETag"]},
            user=read.body["user_id"],
            notification=id_,
            detail={**detail, "if_match": read.headers["ETag"]},
        )

    async def _pause(self, step: Operate, give_up: float) -> None:
        """Hold a kind back for a while; should nobody hear that it is over, it ends by itself."""
        name, ttl_s = f"pause:{step.kind}", round(2 * step.for_s, 1)
        body = json.dumps({"owner": "chaos", "reason": "to see that nothing is lost", "ttl_s": ttl_s}).encode()
        for method in ("PUT", "DELETE"):
            detail = {"name": name, "method": method, "kind": step.kind, "ttl_s": ttl_s}
            sent = body if method == "PUT" else None
            await self._until_settled(give_up, "switch", method, f"/v1/switches/{name}", body=sent, detail=detail)
            if method == "PUT":
                await asyncio.sleep(step.for_s)

    async def _until_settled(self, give_up: float, act: Any, method: str, path: str, **fields: Any) -> None:
        """Repeat what may be repeated."""
        while _again(await self._outside.ask(act, "operate", method, path, **fields)):
            if time.monotonic() + AGAIN_S >= give_up:
                return
            await asyncio.sleep(AGAIN_S)


def _again(reply: Reply) -> bool:
    return reply.status is None or reply.status == MOVED or reply.status >= 500


def _quoted(text: str | None) -> str:
    return quote(text or "", safe="")
