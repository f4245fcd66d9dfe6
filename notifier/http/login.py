"""POST /v1/webhooks/login."""

from __future__ import annotations

from aiohttp import web

from notifier.domain.errors import Invalid
from notifier.http.bodies import EVENT_MAX_BYTES, answer, read_body
from notifier.http.context import CONTEXT
from notifier.http.events import REPLAYED
from notifier.http.json_body import parse_json
from notifier.http.schemas import parse_login


async def post_login(request: web.Request) -> web.Response:
    """Take a signed login and say what it stopped, what it came too late for, and what it left alone."""
    context = request.app[CONTEXT]
    raw = await read_body(request, EVENT_MAX_BYTES)
    webhook_id = await context.login_webhook.verify(request, raw)
    try:
        accepted = await context.ingest.accept(parse_login(parse_json(raw), webhook_id))
    except Invalid as error:
        if error.pointer != "/occurred_at":
            raise
        raise Invalid("timestamp is more than 5 minutes ahead of the service's clock", pointer="/timestamp") from error
    body = {name: accepted.answer[name] for name in ("user_id", "canceled", "too_late", "untouched")}
    return answer(body, headers=REPLAYED if accepted.replayed else None)
