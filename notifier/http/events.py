"""POST /v1/events and /v1/events/batch."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from typing import Any

from aiohttp import web

from notifier import observe
from notifier.domain.errors import Busy
from notifier.domain.event import Event
from notifier.http.bodies import BATCH_MAX_BYTES, EVENT_MAX_BYTES, answer, read_body
from notifier.http.context import CONTEXT
from notifier.http.problems import Problem, problem_of
from notifier.http.schemas import parse_event, parse_json, pointer
from notifier.ingest import Accepted, Ingest
from notifier.store import switches

BATCH_MAX = 1_000
BATCH_BUDGET_S = 20.0
NDJSON = "application/x-ndjson"
REPLAYED = {"Idempotent-Replayed": "true"}


async def post_event(request: web.Request) -> web.Response:
    """Accept one event: 202 when decided now, 200 when it had been."""
    context = request.app[CONTEXT]
    context.keys.require(request, "events")
    raw = await read_body(request, EVENT_MAX_BYTES)
    event = parse_event(parse_json(raw), _header_id(request))
    accepted = await context.ingest.accept(event)
    status, body = _told(accepted)
    return answer(body, status=status, headers=REPLAYED if accepted.replayed else None)


def _header_id(request: web.Request) -> str | None:
    value = request.headers.get("Idempotency-Key")
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
    return answer({"results": await _accept_all(context.ingest, items)}, status=207)


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
    return [
        _too_large()
        if len(json.dumps(item, ensure_ascii=False).encode("utf-8", "surrogatepass")) > EVENT_MAX_BYTES
        else item
        for item in events
    ]


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


async def _accept_all(ingest: Ingest, items: Sequence[Any]) -> list[dict[str, Any]]:
    """One chain per user, in array order; chains run side by side and meet in the groups of the ingest."""
    results: list[dict[str, Any] | None] = [None] * len(items)
    chains: dict[str, list[tuple[int, Event]]] = {}
    for index, item in enumerate(items):
        if isinstance(item, Problem):
            results[index] = _failed(item)
            continue
        try:
            event = parse_event(item, None)
        except Problem as problem:
            results[index] = _failed(problem)
        else:
            chains.setdefault(event.user_id, []).append((index, event))
    deadline = time.monotonic() + BATCH_BUDGET_S
    await asyncio.gather(*(_chain(ingest, chain, results, deadline) for chain in chains.values()))
    assert all(result is not None for result in results)
    return [result for result in results if result is not None]


async def _chain(
    ingest: Ingest, chain: Sequence[tuple[int, Event]], results: list[dict[str, Any] | None], deadline: float
) -> None:
    for index, event in chain:
        if time.monotonic() >= deadline:
            results[index] = _failed(Busy("the batch ran out of time before this event; repeat it"))
            continue
        try:
            status, body = _told(await ingest.accept(event))
        except Exception as error:  # noqa: BLE001 - one item never harms another; its own result says what happened
            results[index] = _failed(error)
        else:
            results[index] = {"status": status, **body}


def _failed(error: Exception) -> dict[str, Any]:
    problem = problem_of(error)
    if problem.slug == "internal":
        observe.log().error("batch_item_failed", exc_info=error)
    return problem.body()
