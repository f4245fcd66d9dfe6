"""What a sender is told: one answer for both doors, made of what is kept of it, the first time as at a repeat."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from notifier.domain.event import Event
from notifier.domain.journey import concerns
from notifier.domain.notification import NotificationRow
from notifier.store.outbox import Decision

Packed = Mapping[str, Sequence[Sequence[Any]]]


def pack_answer(
    event_type: str,
    occurred_at: datetime,
    new: Iterable[Decision],
    existing: Iterable[NotificationRow],
    canceled: Set[UUID],
    standing: Sequence[NotificationRow],
) -> Packed:
    """What an event did, as its row keeps it: all that the rest of the row does not say, and no empty list.

    `new` and `existing`: what the event asks for; `standing`: all the user had, and where it stands now.
    """
    notifications: list[list[Any]] = [
        [id_, made.kind, made.state.value, (made.due_at - occurred_at).total_seconds()] for id_, made in new
    ]
    if not standing:
        return {"notifications": notifications} if notifications else {}
    by_id = {row.id: row for row in standing}
    notifications += [
        [str(row.id), row.kind, row.state.value, (row.due_at - occurred_at).total_seconds(), True]
        for row in (by_id.get(row.id, row) for row in existing)
    ]
    stopped = [row for row in standing if row.id in canceled]
    too_late = [
        row for row in standing if row.id not in canceled and row.is_too_late and concerns(event_type, occurred_at, row)
    ]
    late_ids = {row.id for row in too_late}
    packed: dict[str, list[list[Any]]] = {
        "notifications": notifications,
        "canceled": [[str(row.id), row.kind, (row.due_at - occurred_at).total_seconds()] for row in stopped],
        "too_late": [[str(row.id), row.kind, row.state.value, _text(row.since)] for row in too_late],
        "untouched": [
            [str(row.id), row.kind, row.state.value]
            for row in standing
            if row.id not in canceled and row.id not in late_ids
        ],
    }
    return {name: items for name, items in packed.items() if items}


def unpack(event: Event, occurred_at: datetime, packed: Packed) -> dict[str, Any]:
    """Give the whole answer, for both doors: each takes the parts that its own contract names.

    What it reckons is a datetime: whoever writes the JSON writes that faster than anybody here.
    """
    kept = packed.get
    return {
        "event": {"id": event.id, "type": event.type, "duplicate": False},
        "notifications": [_notification(item, occurred_at) for item in kept("notifications", ())],
        "canceled": [_canceled(item, occurred_at) for item in kept("canceled", ())],
        "too_late": [_late(item) for item in kept("too_late", ())],
        "untouched": [_untouched(item) for item in kept("untouched", ())],
        "user_id": event.user_id,
    }


def left_standing(packed: Packed, event: Event, occurred_at: datetime, standing: Sequence[NotificationRow]) -> int:
    """How many notifications an answer does not call canceled although its event could have stopped them: none.

    It does not ask how the answer came about, so that it notices when a step of that is missing.
    """
    if not standing:
        return 0
    canceled = {item[0] for item in packed.get("canceled", ())}
    return sum(
        row.can_still_be_canceled and str(row.id) not in canceled and concerns(event.type, occurred_at, row)
        for row in standing
    )


def three_lists(
    canceled: Sequence[NotificationRow], too_late: Sequence[NotificationRow], untouched: Sequence[NotificationRow]
) -> dict[str, list[dict[str, Any]]]:
    """Where all notifications of a user stand after something came to stop them."""
    return {
        "canceled": [{"id": str(row.id), "kind": row.kind, "due_at": row.due_at.isoformat()} for row in canceled],
        "too_late": [
            {"id": str(row.id), "kind": row.kind, "state": row.state.value, "since": _text(row.since)}
            for row in too_late
        ],
        "untouched": [{"id": str(row.id), "kind": row.kind, "state": row.state.value} for row in untouched],
    }


# Earlier versions kept the items as they are told; those are given as they are.


def _notification(item: Any, occurred_at: datetime) -> dict[str, Any]:
    if isinstance(item, dict):
        return item
    told = {"id": item[0], "kind": item[1], "state": item[2], "due_at": _later(occurred_at, item[3])}
    if len(item) > 4:
        told["existing"] = item[4]
    return told


def _canceled(item: Any, occurred_at: datetime) -> dict[str, Any]:
    if isinstance(item, dict):
        return item
    return {"id": item[0], "kind": item[1], "due_at": _later(occurred_at, item[2])}


def _late(item: Any) -> dict[str, Any]:
    return item if isinstance(item, dict) else {"id": item[0], "kind": item[1], "state": item[2], "since": item[3]}


def _untouched(item: Any) -> dict[str, Any]:
    return item if isinstance(item, dict) else {"id": item[0], "kind": item[1], "state": item[2]}


def _later(occurred_at: datetime, seconds: float) -> datetime:
    return occurred_at + timedelta(seconds=seconds) if seconds else occurred_at


def _text(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()
