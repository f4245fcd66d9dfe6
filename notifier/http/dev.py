"""POST /dev/clock: move business time, so that three days pass in one call. Only under CLOCK=virtual."""

from __future__ import annotations

from typing import Annotated

from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field

from notifier.http.bodies import EVENT_MAX_BYTES, answer, read_body
from notifier.http.context import CONTEXT
from notifier.http.json_body import parse_json
from notifier.http.schemas import validate
from notifier.store import installation

ADVANCE_MAX_S = 315_360_000  # ten years


class ClockIn(BaseModel):
    """How far to move, in seconds; never back."""

    model_config = ConfigDict(extra="forbid")
    advance_s: Annotated[float, Field(ge=0, le=ADVANCE_MAX_S, allow_inf_nan=False, strict=True)]


async def post_clock(request: web.Request) -> web.Response:
    """Move business time for every process, and wake them all."""
    context = request.app[CONTEXT]
    context.keys.require(request, "operate")
    wanted = validate(ClockIn, parse_json(await read_body(request, EVENT_MAX_BYTES)))
    async with context.runtime.database.connection() as conn:
        await installation.advance(conn, wanted.advance_s)
        now = await installation.business_now(conn)
    context.runtime.wakeup.nudge()
    return answer({"now": now.isoformat()})
