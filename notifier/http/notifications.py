"""/v1/notifications: read them, and do to one what an operator may."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from uuid import UUID

from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field

from notifier.domain.notification import State
from notifier.domain.switch import check_known
from notifier.http.bodies import EVENT_MAX_BYTES, answer, read_body
from notifier.http.context import CONTEXT, Context
from notifier.http.json_body import parse_json
from notifier.http.problems import Problem
from notifier.http.queries import LIMIT, Limit, Query, if_match, notification_id, parse_query
from notifier.http.schemas import Line, UserId, check_storable, validate
from notifier.http.shapes import notification_documents, now_header
from notifier.operate import Act, Outcome
from notifier.store import notifications
from notifier.store.notifications import Notification

Reason = Annotated[Line, Field(min_length=1, max_length=500, description="why; kept in the audit")]


class NotificationsQuery(Query):
    """Which notifications; all that are given must fit."""

    user_id: UserId | None = None
    state: State | None = Field(None, description="where it stands now")
    kind: Annotated[Line, Field(max_length=320)] | None = Field(
        None, description="a kind's name, or one occurrence of it as name@occurrence"
    )
    after: UUID | None = Field(None, description="`next` of the page before")
    limit: Limit = LIMIT


class ActIn(BaseModel):
    """Why; may be left out, body and all."""

    model_config = ConfigDict(extra="forbid", strict=True)
    reason: Reason | None = None


class ResolveIn(BaseModel):
    """What became of an uncertain notification, as a person found out."""

    model_config = ConfigDict(extra="forbid", strict=True)
    outcome: Literal["sent", "not_sent"]
    reason: Reason


async def list_notifications(request: web.Request) -> web.Response:
    """One page, in the order of the ids."""
    context = request.app[CONTEXT]
    context.keys.require(request, "read")
    query = parse_query(NotificationsQuery, request)
    if query.kind is not None:
        check_known("kind", query.kind.partition("@")[0], context.runtime.journeys.kinds, pointer="/kind")
    filters: dict[str, Any] = query.model_dump(exclude={"user_id"})
    async with context.runtime.database.transaction() as conn:
        if query.user_id is not None:
            page = await notifications.page_of_user(conn, query.user_id, **filters)
        else:
            page = await notifications.page(conn, **filters)
        documents = await notification_documents(context, conn, page.notifications)
        now = await now_header(conn)
    return answer({"notifications": documents, "next": None if page.next is None else str(page.next)}, headers=now)


async def get_notification(request: web.Request) -> web.Response:
    """One notification; its ETag is what an operator act must name."""
    context = request.app[CONTEXT]
    context.keys.require(request, "read")
    wanted = notification_id(request)
    async with context.runtime.database.connection() as conn:
        found = await notifications.read(conn, wanted)
    if found is None:
        raise Problem("not-found", f"there is no notification {wanted}")
    return await _tell(context, found)


async def post_cancel(request: web.Request) -> web.Response:
    """Stop what waits, or is owed and surely was never taken."""
    context = request.app[CONTEXT]
    act = await _act(request, context)
    return await _tell(context, await context.operator.cancel(act))


async def post_retry(request: web.Request) -> web.Response:
    """Plan anew what was skipped, failed, or canceled by an operator."""
    context = request.app[CONTEXT]
    act = await _act(request, context)
    return await _tell(context, await context.operator.retry(act))


async def post_resolve(request: web.Request) -> web.Response:
    """Say what became of an uncertain notification."""
    context = request.app[CONTEXT]
    actor = context.keys.require(request, "operate")
    wanted, generation = notification_id(request), if_match(request)
    said = validate(ResolveIn, await _body(request))
    outcome: Outcome = said.outcome
    found = await context.operator.resolve(Act(wanted, generation, actor.name, said.reason), outcome)
    return await _tell(context, found)


async def _act(request: web.Request, context: Context) -> Act:
    actor = context.keys.require(request, "operate")
    wanted, generation = notification_id(request), if_match(request)
    said = validate(ActIn, await _body(request))
    return Act(wanted, generation, actor.name, said.reason)


async def _body(request: web.Request) -> Any:
    raw = await read_body(request, EVENT_MAX_BYTES)
    document = parse_json(raw) if raw.strip() else {}
    check_storable(document)
    return document


async def _tell(context: Context, found: Notification) -> web.Response:
    async with context.runtime.database.connection() as conn:
        [document] = await notification_documents(context, conn, [found])
        now = await now_header(conn)
    return answer(document, headers={"ETag": f'"{found.generation}"', **now})
