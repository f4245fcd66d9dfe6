"""One call from arrival to answer: the faults, the key, the acceptance."""

from __future__ import annotations

import asyncio
import contextlib
import math
import socket
import struct
import uuid
from dataclasses import dataclass, replace

from aiohttp import web

from providers.mock import wire
from providers.mock.desk import Desk, verdict_on_repeat
from providers.mock.faults import Dials, DuplicateMode, Fate
from providers.mock.records import AttemptRecord, MessageRecord, timestamp
from providers.mock.tables import KeyRecord

HANG_LOOK_S = 0.05
FAIL_NAMES = {429: "rate_limit_exceeded", 500: "application_error", 503: "service_unavailable"}


class Intake:
    """Everything a call meets on its way into the inbox."""

    def __init__(self, desk: Desk, dials: Dials) -> None:
        self._desk = desk
        self._dials = dials
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """End the calls that hang."""
        self._stopping.set()

    async def post_one(self, request: web.Request) -> web.StreamResponse:
        """POST /emails."""
        return await self._post(request, batch=False)

    async def post_batch(self, request: web.Request) -> web.StreamResponse:
        """POST /emails/batch: up to a hundred mails under one key, taken together or not at all."""
        return await self._post(request, batch=True)

    async def _post(self, request: web.Request, *, batch: bool) -> web.StreamResponse:
        raw = await request.read()  # first of all: from here on the client may hang up and nothing changes
        with self._desk.calling():
            return await self._answer(request, raw, batch=batch)

    async def _answer(self, request: web.Request, raw: bytes, *, batch: bool) -> web.StreamResponse:
        header = request.headers.get("Idempotency-Key")
        key = None if header is None else wire.storable(header)
        attempt = AttemptRecord(key, wire.caller(request.headers), (), timestamp(), "rejected", None)
        if refusal := wire.check_bearer(request.headers.get("Authorization")):
            return await self._refuse(replace(attempt, verdict="unauthorized"), refusal)
        mode = self._dials.faults.duplicate_mode
        if mode != "none" and (refusal := wire.check_key(key)):
            return await self._refuse(attempt, refusal)
        asked = wire.parse(raw, batch=batch)
        if isinstance(asked, wire.Refusal):
            return await self._refuse(attempt, asked)
        of_each = wire.members(asked.mails, request.headers) if batch else ()
        attempt = replace(attempt, to=asked.to, members=of_each)
        used_key = None if mode == "none" else key
        if self._desk.is_busy(used_key):
            busy = wire.Refusal(409, "concurrent_idempotent_requests", "The first call with this key is still running.")
            return await self._refuse(replace(attempt, verdict="in_flight"), busy, retry_after_s=1)
        with self._desk.holding(used_key):
            return await self._work(_Call(request, asked, used_key, mode, attempt, batch))

    async def _work(self, call: _Call) -> web.StreamResponse:
        faults, fate = self._dials.faults, self._dials.draw()
        if faults.hang_s:
            return await self._hang(call, faults.hang_s)
        if fate.latency_s:
            await asyncio.sleep(fate.latency_s)
        if fate.reset:
            await self._desk.note(replace(call.attempt, verdict="reset", answered=False))
            return _cut(call.request, reset=True)
        if fate.fail:
            name = FAIL_NAMES.get(faults.fail_status, "application_error")
            failure = wire.Refusal(faults.fail_status, name, "A fault was asked for; nothing was taken.")
            return await self._refuse(replace(call.attempt, verdict="failed"), failure, faults.retry_after_s)
        if address := faults.rejects(map(wire.address_of, call.attempt.to)):
            if (known := await self._desk.known(call.key, faults.key_ttl_s)) is not None:
                return await self._repeat(call, known)  # taken before the pattern was set, and still true
            refusal = wire.Refusal(422, "validation_error", f"The `to` field holds {address}, which is turned away.")
            return await self._refuse(call.attempt, refusal)
        # Shielded, so that the mail is in the inbox page's stream even when the server stops at this moment.
        return await asyncio.shield(self._take(call, fate, faults.key_ttl_s))

    async def _take(self, call: _Call, fate: Fate, ttl_s: float) -> web.StreamResponse:
        messages = call.messages()
        attempt = replace(
            call.attempt,
            verdict="accepted",
            message_ids=tuple(message.id for message in messages),
            status=None if fate.drop_response else 500 if fate.error_after_accept else 200,
            answered=not fate.drop_response,
        )
        known = await self._desk.take(call.key, call.asked.fingerprint, ttl_s, messages, attempt)
        if known is not None:
            return await self._repeat(call, known)
        if fate.drop_response:
            return _cut(call.request, reset=False)
        if fate.error_after_accept:
            return _error(wire.Refusal(500, "application_error", "Something broke, and the mail was taken before."))
        return call.answer(attempt.message_ids)

    async def _repeat(self, call: _Call, known: KeyRecord) -> web.StreamResponse:
        """Answer the second call under a remembered key, as the duplicate mode says."""
        verdict = verdict_on_repeat(known, call.asked.fingerprint, call.mode)
        attempt = replace(call.attempt, verdict=verdict, status=200, message_ids=known.message_ids)
        match verdict:
            case "body_mismatch":
                other = wire.Refusal(409, "invalid_idempotent_request", "This key was used before, with another body.")
                return await self._refuse(attempt, other)
            case "replayed":
                await self._desk.note(attempt)
                return call.answer(known.message_ids, {"Idempotent-Replayed": "true"})
            case "dropped":
                unseen = tuple(str(uuid.uuid4()) for _ in known.message_ids)
                await self._desk.note(replace(attempt, message_ids=unseen))
                return call.answer(unseen)
            case "duplicate":
                had = wire.Refusal(409, "duplicate_idempotency_key", "A mail was already accepted under this key.")
                extra: dict[str, object] = {"original_id": known.message_ids[0]}
                if call.batch:
                    extra["original_ids"] = list(known.message_ids)
                return await self._refuse(attempt, had, extra=extra)

    async def _hang(self, call: _Call, seconds: float) -> web.StreamResponse:
        """Say nothing for so long, then close; at once if nobody listens: the key is in flight until then."""
        await self._desk.note(replace(call.attempt, verdict="hung", answered=False))
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while (left := deadline - loop.time()) > 0 and not self._stopping.is_set() and _listening(call.request):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), min(left, HANG_LOOK_S))
        return _cut(call.request, reset=False)

    async def _refuse(
        self,
        attempt: AttemptRecord,
        refusal: wire.Refusal,
        retry_after_s: float | None = None,
        extra: dict[str, object] | None = None,
    ) -> web.Response:
        await self._desk.note(replace(attempt, status=refusal.status))
        return _error(refusal, retry_after_s, extra)


@dataclass(frozen=True, slots=True)
class _Call:
    """A call that may be accepted. `key` is None where keys do not count; the attempt has it all the same."""

    request: web.Request
    asked: wire.Request
    key: str | None
    mode: DuplicateMode
    attempt: AttemptRecord
    batch: bool

    def messages(self) -> list[MessageRecord]:
        now = timestamp()
        return [
            MessageRecord(
                id=str(uuid.uuid4()),
                key=self.attempt.key,
                sender=mail.sender,
                to=mail.to,
                subject=mail.subject,
                html=mail.html,
                text=mail.text,
                headers=mail.headers,
                body=mail.body,
                caller=caller,
                created_at=now,
            )
            for mail, caller in zip(self.asked.mails, self.attempt.members or [self.attempt.caller], strict=True)
        ]

    def answer(self, ids: tuple[str, ...], headers: dict[str, str] | None = None) -> web.Response:
        content = {"data": [{"id": message_id} for message_id in ids]} if self.batch else {"id": ids[0]}
        return web.json_response(content, headers=headers)


def _error(
    refusal: wire.Refusal, retry_after_s: float | None = None, extra: dict[str, object] | None = None
) -> web.Response:
    content = {
        "statusCode": refusal.status,
        "name": refusal.name,
        "message": refusal.message,
        **(extra or {}),
    }
    headers = {} if retry_after_s is None else {"Retry-After": str(math.ceil(retry_after_s))}
    return web.json_response(content, status=refusal.status, headers=headers)


def _listening(request: web.Request) -> bool:
    return request.transport is not None and not request.transport.is_closing()


def _cut(request: web.Request, *, reset: bool) -> web.Response:
    """Close the connection under the client's feet, `reset` with an RST; what is returned goes nowhere."""
    if (transport := request.transport) is not None:
        connection = transport.get_extra_info("socket")
        if reset and connection is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        transport.abort()
    return web.Response(status=500)
