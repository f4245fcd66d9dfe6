"""What surrounds the sending: reading mails and calls, turning the faults, health and metrics; JSON."""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import Awaitable, Callable
from datetime import datetime
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime

from aiohttp import web
from prometheus_client import CollectorRegistry, Counter
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from providers.mock import search, wire
from providers.mock.faults import Dials, FaultsInvalid
from providers.mock.ledger import Ledger
from providers.mock.plain import without_fetches, without_links
from providers.mock.query import QueryInvalid, parse
from providers.mock.records import MessageRecord
from providers.mock.stream import Hub
from providers.mock.tables import find_source

LIMIT_DEFAULT = 100
LIMIT_MAX = 10_000
# A mail may bring its own looks; nothing else of it runs, loads or leads anywhere.
MAIL_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; form-action 'none'; base-uri 'none'; "
    "sandbox; frame-ancestors 'self'"
)


class Api:
    """The handlers of /api, of GET /emails/{id}, /healthz and /metrics."""

    def __init__(self, ledger: Ledger, dials: Dials, hub: Hub) -> None:
        self._ledger = ledger
        self._dials = dials
        self._hub = hub
        self._registry = CollectorRegistry()
        self._calls = Counter(
            "mock_calls",
            "Calls of POST /emails and /emails/batch, and SMTP transactions",
            ["verdict"],
            registry=self._registry,
        )

    def count(self, verdict: str) -> None:
        """One more call that ended so."""
        self._calls.labels(verdict).inc()

    def routes(self) -> list[web.RouteDef]:
        """Where everything is found."""
        return [
            web.get("/emails/{id}", self.get_email),
            web.get("/api/faults", self.get_faults),
            web.put("/api/faults", self.put_faults),
            web.delete("/api/faults", self.delete_faults),
            web.get("/api/messages", self.list_messages),
            web.delete("/api/messages", self.delete_messages),
            web.get("/api/messages/{id}", self.get_message),
            web.get("/api/messages/{id}/html", self.get_html),
            web.get("/api/messages/{id}/text", self.get_text),
            web.get("/api/messages/{id}/raw", self.get_raw),
            web.delete("/api/keys", self.delete_keys),
            web.get("/api/attempts", self.list_attempts),
            web.get("/healthz", self.get_health),
            web.get("/metrics", self.get_metrics),
        ]

    async def get_email(self, request: web.Request) -> web.Response:
        """A mail as Resend shows it."""
        if refusal := wire.check_bearer(request.headers.get("Authorization")):
            return problem(refusal)
        return web.json_response((await self._message(request)).as_resend())

    async def get_faults(self, _request: web.Request) -> web.Response:
        """Every knob as it stands."""
        return self._faults()

    async def put_faults(self, request: web.Request) -> web.Response:
        """Replace the fields given and keep the others; all or none."""
        try:
            changes = json.loads(await request.read())
        except (ValueError, RecursionError):
            return problem(wire.Refusal(400, "validation_error", "The body is not JSON."))
        if not isinstance(changes, dict):
            return problem(wire.Refusal(422, "validation_error", "Faults are a JSON object, one field per knob."))
        try:
            self._dials.set(changes)
        except FaultsInvalid as error:
            return problem(wire.Refusal(422, "validation_error", str(error)))
        self._hub.changed()
        return self._faults()

    async def delete_faults(self, _request: web.Request) -> web.Response:
        """Everything back to how the process was started."""
        self._dials.reset()
        self._hub.changed()
        return self._faults()

    async def list_messages(self, request: web.Request) -> web.Response:
        """The inbox, newest first; `q` searches, see query.parse()."""
        limit, after = paging(request)
        try:
            query = parse(wire.storable(request.query.get("q", "")))
        except QueryInvalid as error:
            return problem(wire.Refusal(422, "validation_error", str(error)))
        page = await self._ledger.read(lambda connection: search.messages(connection, query, limit, after))
        return web.json_response(
            {
                "messages": [message.summary() for message in page.items],
                "total": page.total,
                "next": page.next,
            }
        )

    async def get_message(self, request: web.Request) -> web.Response:
        """One mail, whole."""
        return web.json_response((await self._message(request)).detail())

    async def get_html(self, request: web.Request) -> web.Response:
        """The HTML part, shut in: harmless in a frame and by itself; with `links=off` nothing in it leads anywhere."""
        message = await self._message(request)
        html = without_fetches(message.html or "")
        if request.query.get("links") == "off":
            html = without_links(html)
        headers = {"Content-Security-Policy": MAIL_POLICY, **SAFE_HEADERS}
        return web.Response(text=html, content_type="text/html", charset="utf-8", headers=headers)

    async def get_text(self, request: web.Request) -> web.Response:
        """The plain text part."""
        message = await self._message(request)
        return web.Response(text=message.text or "", charset="utf-8", headers=SAFE_HEADERS)

    async def get_raw(self, request: web.Request) -> web.Response:
        """The mail as it came, byte for byte, or (HTTP) as it would travel (RFC 5322)."""
        message = await self._message(request)
        headers = {"Content-Type": "text/plain; charset=utf-8", **SAFE_HEADERS}
        return web.Response(body=await source_of(self._ledger, message), headers=headers)

    async def delete_messages(self, _request: web.Request) -> web.Response:
        """Empty the inbox; keys and calls stay."""
        deleted = await self._ledger.empty_inbox()
        self._hub.changed()
        return web.json_response({"deleted": deleted})

    async def delete_keys(self, _request: web.Request) -> web.Response:
        """Forget every key; the mails stay."""
        deleted = await self._ledger.forget_keys()
        self._hub.changed()
        return web.json_response({"deleted": deleted})

    async def list_attempts(self, request: web.Request) -> web.Response:
        """Every call, newest first, of all keys or of one."""
        limit, after = paging(request)
        key = request.query.get("key")
        wanted = None if key is None else wire.storable(key)
        page = await self._ledger.read(lambda connection: search.attempts(connection, wanted, limit, after))
        return web.json_response(
            {
                "attempts": [attempt.as_json() for attempt in page.items],
                "total": page.total,
                "next": page.next,
            }
        )

    async def get_health(self, _request: web.Request) -> web.Response:
        """Alive."""
        return web.json_response({"status": "ok"})

    async def get_metrics(self, _request: web.Request) -> web.Response:
        """For Prometheus."""
        return web.Response(body=generate_latest(self._registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    def _faults(self) -> web.Response:
        return web.json_response(self._dials.faults.model_dump())

    async def _message(self, request: web.Request) -> MessageRecord:
        return await find_message(self._ledger, request.match_info["id"])


SAFE_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-DNS-Prefetch-Control": "off",  # no look-up of names that stand in a mail
    "Cache-Control": "no-store",
}


def problem(refusal: wire.Refusal) -> web.Response:
    """An error in Resend's shape."""
    content = {"statusCode": refusal.status, "name": refusal.name, "message": refusal.message}
    return web.json_response(content, status=refusal.status)


async def source_of(ledger: Ledger, message: MessageRecord) -> bytes:
    """The mail as it came, byte for byte, or (HTTP) as it would travel."""
    source = await ledger.read(functools.partial(find_source, message_id=message.id))
    return await asyncio.to_thread(raw, message) if source is None else source


async def find_message(ledger: Ledger, message_id: str) -> MessageRecord:
    """One mail; raises HTTPNotFound."""
    found = await ledger.read(functools.partial(search.message, message_id=wire.storable(message_id)))
    if found is None:
        raise web.HTTPNotFound(text="There is no mail with this id.")
    return found


def paging(request: web.Request) -> tuple[int, int | None]:
    """`limit` and `after` of a list; raises HTTPUnprocessableEntity when they make no sense."""
    limit, after = request.query.get("limit", str(LIMIT_DEFAULT)), request.query.get("after")
    if not (_is_number(limit) and 1 <= int(limit) <= LIMIT_MAX):
        raise web.HTTPUnprocessableEntity(text=f"limit must be a number from 1 to {LIMIT_MAX}.")
    if after is not None and not _is_number(after):
        raise web.HTTPUnprocessableEntity(text="after must be the `next` of an earlier page.")
    return int(limit), None if after is None else int(after)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 18


def raw(message: MessageRecord) -> bytes:
    """Build the mail as text. Headers already set, or set by MIME, are not taken from the mail."""
    mail = EmailMessage(policy=SMTP.clone(utf8=True))
    fixed = {
        "From": message.sender,
        "To": ", ".join(message.to),
        "Subject": message.subject,
        "Date": format_datetime(datetime.fromisoformat(message.created_at)),
        "Message-ID": f"<{message.id}@mock.invalid>",
    }
    for name, value in [*fixed.items(), *message.headers.items()]:
        if name not in mail and not name.lower().startswith("content-") and name.lower() != "mime-version":
            mail[name] = value
    mail.set_content(message.text or "")
    if message.html is not None:
        if message.text is None:
            mail.set_content(message.html, subtype="html")
        else:
            mail.add_alternative(message.html, subtype="html")
            mail.set_boundary(f"=_{message.id}")  # the library would draw another one for each look
    return mail.as_bytes()


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@web.middleware
async def errors_in_shape(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Give aiohttp's own errors the shape every other error has."""
    try:
        return await handler(request)
    except web.HTTPException as error:
        if error.status < 400:
            raise
        name = "_".join(error.reason.lower().split())
        answer = problem(wire.Refusal(error.status, name, error.text or error.reason))
        if "Allow" in error.headers:
            answer.headers["Allow"] = error.headers["Allow"]
        return answer
