"""POST /v1/events and /v1/events/batch."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import orjson
from aiohttp import web
from multidict import CIMultiDict

from notifier import observe
from notifier.domain.errors import Busy
from notifier.domain.event import Event
from notifier.http.bodies import BATCH_MAX_BYTES, EVENT_MAX_BYTES, JSON_HEADERS, answer_written, read_body
from notifier.http.context import CONTEXT
from notifier.http.json_body import parse_json
from notifier.http.problems import Problem, problem_of
from notifier.http.schemas import parse_event, pointer
from notifier.ingest import Accepted, Ingest
from notifier.json_text import to_json
from notifier.store import switches

BATCH_MAX = 1_000
BATCH_BUDGET_S = 20.0
CHECKED_AT_ONCE = 25  # events of a batch: so long nothing else is answered
NDJSON = "application/x-ndjson"
REPLAYED = {"Idempotent-Replayed": "true"}
_REPLAYED = CIMultiDict({**JSON_HEADERS, **REPLAYED})


async def post_event(request: web.Request) -> web.Response:
    """Accept one event: 202 when decided now, 200 when it had been."""
    context = request.app[CONTEXT]
    context.keys.require(request, "events")
    raw = await read_body(request, EVENT_MAX_BYTES)
    event = read_event(raw, request.headers.get("Idempotency-Key"))
    status, headers, body = told(await context.ingest.accept(event))
    return web.Response(status=status, body=body, headers=headers)


def read_event(raw: bytes, header: str | None) -> Event:
    """Read the event of a request; `header`: its Idempotency-Key. Raises a Problem that says what is wrong."""
    return parse_event(parse_json(raw), _header_id(header))


def told(accepted: Accepted) -> tuple[int, Mapping[str, str], bytes]:
    """Give status, headers and body of the answer."""
    status, body = _told(accepted)
    return status, _REPLAYED if accepted.replayed else JSON_HEADERS, to_json(body)


def _header_id(value: str | None) -> str | None:
    if value is None:
        return None
    value = value.strip()
    if len(value) >= 2 and value[0] == value[-1] == '"':
        value = value[1:-1]
    if not 1 <= len(value) <= 255 or not all("!" <= character <= "~" for character in value):
        raise Problem("bad-request", "Idempotency-Key must be 1 to 255 visible ASCII characters, bare or in quotes")
    return value


def _told(accepted: Accepted) -> tuple[int, dict[str, Any]]:
    stored = accepted.answer
    body = {name: stored[name] for name in ("event", "notifications", "canceled", "too_late")}
    if not accepted.replayed:
        return 202, body
    return 200, {**body, "event": {**stored["event"], "duplicate": True}}


async def post_batch(request: web.Request) -> web.Response:
    """Accept up to 1000 events, each by itself: 207 with one result per item, in order."""
    context = request.app[CONTEXT]
    context.keys.require(request, "events")
    raw = await read_body(request, BATCH_MAX_BYTES)
    items = _lines(raw) if request.content_type == NDJSON else _listed(raw)
    async with context.runtime.database.connection() as conn:
        if await switches.find(conn, "maintenance"):
            raise Busy("closed for maintenance; repeat the batch later", retry_after_s=10)
    results = await _accept_all(context.ingest, items)
    return answer_written(b'{"results":[' + b",".join(results) + b"]}", status=207)


def _listed(raw: bytes) -> Sequence[Any]:
    document = parse_json(raw)
    if not isinstance(document, dict) or not isinstance(document.get("events"), list):
        raise Problem("invalid", 'a batch is {"events": [ … ]}', [("/events", "must be a list")])
    if unknown := [name for name in document if name != "events"]:
        raise Problem("invalid", 'a batch is {"events": [ … ]}', [(pointer(unknown[0]), "is not a field of a batch")])
    events: list[Any] = document["events"]
    _check_number(len(events))
    if len(raw) <= EVENT_MAX_BYTES:
        return events
    return [_too_large() if _is_too_large(item) else item for item in events]


def _is_too_large(item: Any) -> bool:
    """Whether it would be over the limit as a request of its own, with the blanks that writers put in."""
    try:
        if 3 * len(orjson.dumps(item)) <= EVENT_MAX_BYTES:  # its shortest form: no other is three times as long
            return False
    except orjson.JSONEncodeError:
        pass  # a huge number, for one
    return len(json.dumps(item, ensure_ascii=False).encode("utf-8", "surrogatepass")) > EVENT_MAX_BYTES


def _lines(raw: bytes) -> list[Any]:
    lines = [line for line in raw.split(b"\n") if line.strip()]
    _check_number(len(lines))  # before any is parsed: eight million bytes may be four million lines
    return [_parsed(line) for line in lines]


def _parsed(line: bytes) -> Any:
    if len(line) > EVENT_MAX_BYTES:
        return _too_large()
    try:
        return parse_json(line)
    except Problem as problem:
        return problem


def _check_number(number: int) -> None:
    if number > BATCH_MAX:
        raise Problem("too-large", f"a batch holds at most {BATCH_MAX} events; this one has {number}")


def _too_large() -> Problem:
    return Problem("too-large", f"an event is at most {EVENT_MAX_BYTES // 1024} KiB")


async def _accept_all(ingest: Ingest, items: Sequence[Any]) -> list[bytes]:
    """Accept all of them; one result each, in order, as JSON."""
    batch = _Batch(ingest, len(items))
    try:
        for index, item in enumerate(items):
            if index % CHECKED_AT_ONCE == 0:
                await asyncio.sleep(0)  # those that are parsed are taken meanwhile
            batch.add(index, item)
        return await batch.ended()
    finally:
        batch.chains.clear()  # when the request was given up, nothing more of it goes in


@dataclass(slots=True)
class _Batch:
    """One chain per user, in array order; chains run side by side and meet in the groups of the ingest."""

    ingest: Ingest
    number: int
    chains: dict[str, list[tuple[int, Event]]] = field(default_factory=dict)  # what waits for the user's event in hand
    results: dict[int, bytes] = field(default_factory=dict)  # written as they come: a thousand at the end take long
    deadline: float = field(default_factory=lambda: time.monotonic() + BATCH_BUDGET_S)
    _all: asyncio.Event = field(default_factory=asyncio.Event)

    def add(self, index: int, item: Any) -> None:
        """Take one item, behind those of the same user."""
        try:
            if isinstance(item, Problem):
                raise item
            event = parse_event(item, None)
        except Problem as problem:
            self._end(index, _failed(problem))
            return
        if (chain := self.chains.get(event.user_id)) is not None:
            chain.append((index, event))
        else:
            self.chains[event.user_id] = []
            if not self._hand_in(index, event):
                self._go_on(event.user_id)

    async def ended(self) -> list[bytes]:
        """Give all results, in order."""
        if self.number:
            await self._all.wait()
        return [self.results[index] for index in range(self.number)]

    def _hand_in(self, index: int, event: Event) -> bool:
        """Give one event to the ingest; False: it has ended already."""
        try:
            if time.monotonic() >= self.deadline:
                raise Busy("the batch ran out of time before this event; repeat it")
            self.ingest.put(event, partial(self._hear, index, event.user_id))
        except Busy as busy:
            self._end(index, _failed(busy))
            return False
        return True

    def _go_on(self, user_id: str) -> None:
        """Hand in the user's next event, when there is one."""
        while chain := self.chains.get(user_id):
            if self._hand_in(*chain.pop(0)):
                return
        self.chains.pop(user_id, None)

    def _hear(self, index: int, user_id: str, outcome: Accepted | Exception) -> None:
        if isinstance(outcome, Exception):
            self._end(index, _failed(outcome))
        else:
            status, body = _told(outcome)
            self._end(index, {"status": status, **body})
        self._go_on(user_id)

    def _end(self, index: int, result: dict[str, Any]) -> None:
        self.results[index] = to_json(result)
        if len(self.results) == self.number:
            self._all.set()


def _failed(error: Exception) -> dict[str, Any]:
    problem = problem_of(error)
    if problem.slug == "internal":
        observe.log().error("batch_item_failed", exc_info=error)
    return problem.body()
