"""Waits, once load and faults are over, until everything has come to rest, as far as that can be seen from outside."""

from __future__ import annotations

import asyncio
import time
from datetime import datetime

from notifier.domain.errors import NotReady
from notifier.proof.chaos.collect import notifications
from notifier.proof.chaos.outside import Outside

LOOK_EVERY_S = 0.5
STILL_FOR_S = 2.0  # no call for longer than one may take


async def await_quiet(outside: Outside, patience_s: float) -> bool:
    """Whether it all came to rest within `patience_s`: nothing under way or due, and no call for a while."""
    deadline = time.monotonic() + patience_s
    calls, still_since = -1, time.monotonic()
    while time.monotonic() < deadline:
        seen = await _calls(outside)
        if seen is None or seen != calls or not await _is_at_rest(outside):
            calls, still_since = (calls if seen is None else seen), time.monotonic()
        elif time.monotonic() - still_since >= STILL_FOR_S:
            return True
        await asyncio.sleep(LOOK_EVERY_S)
    return False


async def _calls(outside: Outside) -> int | None:
    """How many calls the provider has had; None when it does not answer."""
    reply = await outside.ask_provider("/api/attempts?limit=1")
    return int(reply.body["total"]) if reply.status == 200 else None


async def _is_at_rest(outside: Outside) -> bool:
    for state in ("sending", "pending"):
        reply = await outside.ask_api("GET", f"/v1/notifications?state={state}&limit=1")
        if reply.status != 200 or reply.body["notifications"]:
            return False
    now = datetime.fromisoformat(reply.headers["Notifier-Now"])
    try:
        return not [
            one
            async for one in notifications(outside, "&state=scheduled")
            if datetime.fromisoformat(one["due_at"]) <= now
        ]
    except NotReady:
        return False
