"""/v1/switches and /v1/audit: what is held back, by whom and until when; and what operators did."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any

from aiohttp import web
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

import providers
from notifier.domain.switch import check_name, check_target
from notifier.http.bodies import EVENT_MAX_BYTES, answer, read_body
from notifier.http.context import CONTEXT
from notifier.http.json_body import parse_json
from notifier.http.problems import Problem
from notifier.http.queries import LIMIT, Limit, Query, Whole, parse_query
from notifier.http.schemas import Line, check_storable, validate
from notifier.http.shapes import audit_document, now_header, switch_document
from notifier.store import audit, switches
from notifier.store.database import Connection
from notifier.store.repeat import until_committed
from notifier.store.switches import Switch

TTL_MIN_S = 0.001
TTL_MAX_S = 30 * 86_400


def _says_something(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be blank")
    return text


class SwitchIn(BaseModel):
    """Who holds something back, why, and for how long: no switch stays on by being forgotten."""

    model_config = ConfigDict(extra="forbid", strict=True)
    owner: Annotated[Line, Field(min_length=1, max_length=255), AfterValidator(_says_something)]
    reason: Annotated[Line, Field(min_length=1, max_length=500), AfterValidator(_says_something)]
    ttl_s: Annotated[float, Field(ge=TTL_MIN_S, le=TTL_MAX_S, allow_inf_nan=False, description="at most 30 days")]


class AuditQuery(Query):
    """Which acts."""

    after: Whole | None = Field(None, ge=1, le=2**53, description="`next` of the page before")
    limit: Limit = LIMIT


async def list_switches(request: web.Request) -> web.Response:
    """All that are on."""
    context = request.app[CONTEXT]
    context.keys.require(request, "read", "operate")
    async with context.runtime.database.connection() as conn:
        found = await switches.standing(conn)
        now = await now_header(conn)
    return answer({"switches": [switch_document(switch) for switch in found]}, headers=now)


async def get_switch(request: web.Request) -> web.Response:
    """One, if it is on."""
    context = request.app[CONTEXT]
    context.keys.require(request, "read", "operate")
    name = check_name(request.match_info["name"])
    async with context.runtime.database.connection() as conn:
        found = _on(name, await switches.find(conn, name))
        return answer(switch_document(found), headers=await now_header(conn))


async def put_switch(request: web.Request) -> web.Response:
    """Turn one on, or on for longer."""
    context = request.app[CONTEXT]
    actor = context.keys.require(request, "operate")
    name = check_name(request.match_info["name"])
    check_target(name, context.runtime.journeys.kinds, providers.NAMES)
    document = parse_json(await read_body(request, EVENT_MAX_BYTES))
    check_storable(document)
    wanted = validate(SwitchIn, document)

    async def act(conn: Connection) -> Switch:
        made = await switches.put(conn, name, wanted.owner, wanted.reason, timedelta(seconds=wanted.ttl_s))
        await _record(conn, actor.name, "switch.put", made)
        return made

    return answer(switch_document(await until_committed(context.runtime.database, act)))


async def delete_switch(request: web.Request) -> web.Response:
    """Turn one off, and wake the workers."""
    context = request.app[CONTEXT]
    actor = context.keys.require(request, "operate")
    name = check_name(request.match_info["name"])

    async def act(conn: Connection) -> None:
        gone = _on(name, await switches.remove(conn, name))
        await _record(conn, actor.name, "switch.delete", gone)

    await until_committed(context.runtime.database, act)
    context.runtime.wakeup.nudge()
    return web.Response(status=204)


async def list_audit(request: web.Request) -> web.Response:
    """What operators did, the newest first."""
    context = request.app[CONTEXT]
    context.keys.require(request, "read", "operate")
    query = parse_query(AuditQuery, request)
    async with context.runtime.database.connection() as conn:
        entries, further = await audit.page(conn, after=query.after, limit=query.limit)
    return answer({"audit": [audit_document(entry) for entry in entries], "next": further})


def _on(name: str, found: Switch | None) -> Switch:
    if found is None:
        raise Problem("not-found", f"the switch {name} is not on")
    return found


async def _record(conn: Connection, actor: str, act: str, switch: Switch) -> None:
    detail: dict[str, Any] = switch_document(switch)
    await audit.write(conn, actor=actor, act=act, target=detail.pop("name"), user_id=None, detail=detail)
