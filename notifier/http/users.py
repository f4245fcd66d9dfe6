"""/v1/users: what is known of a user, and what happened, in order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from aiohttp import web

from notifier.domain.notification import State
from notifier.domain.timeline import Entry, in_order
from notifier.erasure import erase
from notifier.http.bodies import answer
from notifier.http.context import CONTEXT
from notifier.http.problems import Problem
from notifier.http.queries import user_id
from notifier.http.shapes import iso, notification_documents
from notifier.ingest.answer import three_lists
from notifier.store import attempts, audit, events, notifications, users
from notifier.store.attempts import Attempt
from notifier.store.database import Connection
from notifier.store.events import Taken
from notifier.store.notifications import Notification

NOTIFICATIONS_MAX = 1_000


async def get_user(request: web.Request) -> web.Response:
    """Profile, the latest event of each type that means something, and all notifications."""
    context = request.app[CONTEXT]
    context.keys.require(request, "read")
    wanted = user_id(request)
    async with context.runtime.database.connection() as conn:
        profile = await _known(conn, wanted)
        seen = (await users.last_seen(conn, [wanted]))[wanted]
        page = await notifications.page_of_user(conn, wanted, limit=NOTIFICATIONS_MAX)
        documents = await notification_documents(context, conn, page.notifications)
    return answer(
        {
            "id": profile.user_id,
            "email": profile.email,
            "name": profile.name,
            "timezone": profile.timezone,
            "locale": profile.locale,
            "attributes": profile.attributes,
            "created_at": iso(profile.created_at),
            "erased_at": iso(profile.erased_at),
            "last_seen": {kind: {"at": iso(item.at), "event": item.ref} for kind, item in seen.items()},
            "notifications": documents,
        }
    )


async def delete_user(request: web.Request) -> web.Response:
    """Erase what is personal, stop what is open, keep the guards."""
    context = request.app[CONTEXT]
    actor = context.keys.require(request, "operate")
    wanted = user_id(request)
    erased = await erase(context.runtime.database, context.runtime.wakeup, wanted, actor.name)
    return answer({"user_id": wanted, **three_lists(erased.canceled, erased.too_late, erased.untouched)})


async def get_timeline(request: web.Request) -> web.Response:
    """Everything that happened to a user, the oldest first."""
    context = request.app[CONTEXT]
    context.keys.require(request, "read")
    wanted = user_id(request)
    async with context.runtime.database.connection() as conn:
        await _known(conn, wanted)
        rows = (await notifications.page_of_user(conn, wanted, limit=NOTIFICATIONS_MAX)).notifications
        calls = await attempts.of_notifications(conn, [row.id for row in rows])
        acts = await audit.of_user(conn, wanted)
        taken = await events.of_user(conn, wanted)  # last: what the rows tell of is in it
    entries = [_event(event) for event in taken] + [_operator(act) for act in acts]
    for row in rows:
        entries += _of_notification(row, calls[row.id])
    return answer(
        {"timeline": [{"at": iso(entry.at), "what": entry.what, **entry.fields} for entry in in_order(entries)]}
    )


async def _known(conn: Connection, wanted: str) -> users.UserRow:
    profile = (await users.read(conn, [wanted])).get(wanted)
    if profile is None:
        raise Problem("not-found", "there is no user of this id")
    return profile


def _event(event: Taken) -> Entry:
    moved = {} if event.at == event.taken_at else {"business_at": iso(event.taken_at)}
    fields = {"event": event.ref, "type": event.type, "occurred_at": iso(event.occurred_at), **moved}
    return Entry(event.at, "event", fields)


def _operator(act: audit.Entry) -> Entry:
    fields = {"act": act.act, "actor": act.actor, "notification": act.target, "detail": act.detail}
    return Entry(act.at, "operator", fields)


def _of_notification(row: Notification, calls: Sequence[Attempt]) -> Iterator[Entry]:
    about: dict[str, Any] = {"notification": str(row.id), "kind": row.kind}
    yield Entry(
        row.taken_at,
        "decision",
        {**about, "event": row.created_by, "decided_at": iso(row.decided_at), "due_at": iso(row.due_at)},
    )
    # A claim is on record while it is held, where it ended the notification, and with each call it made.
    claims = {(call.claimed_at, call.worker): call.generation for call in calls}
    if row.claimed_at is not None and row.claimed_by is not None:
        claims.setdefault((row.claimed_at, row.claimed_by), row.generation)
    for (claimed_at, worker), generation in claims.items():
        yield Entry(claimed_at, "claim", {**about, "worker": worker, "generation": generation})
    if row.doubt_since is not None:
        yield Entry(row.doubt_since, "doubt", about)
    for call in calls:
        yield Entry(call.started_at, "attempt", {**about, **_call(call)})
    if row.settled_at is not None:
        ended = {"state": row.state.value, "reason": row.reason, "decided_by": row.decided_by, "evidence": row.evidence}
        yield Entry(row.settled_at, "cancel" if row.state is State.CANCELED else "settled", {**about, **ended})


def _call(call: Attempt) -> dict[str, Any]:
    return {
        "worker": call.worker,
        "generation": call.generation,
        "outcome": call.outcome,
        "reason": call.reason,
        "provider_message_id": call.provider_message_id,
        "finished_at": iso(call.finished_at),
    }
