"""What a sender is told: one answer for both doors, built from what the transaction saw."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from datetime import datetime
from typing import Any
from uuid import UUID

from notifier.domain.event import Event
from notifier.domain.journey import Plan, concerns
from notifier.domain.notification import NotificationRow
from notifier.store import outbox


def build_answer(
    event: Event,
    occurred_at: datetime,
    planned: Plan,
    created: Mapping[tuple[str, str], outbox.Decision],
    canceled: Set[UUID],
    standing: Sequence[NotificationRow],
) -> dict[str, Any]:
    """What the sender is told, for both doors: each takes the parts that its own contract names."""
    by_id = {row.id: row for row in standing}
    concerned = [row for row in standing if concerns(event.type, occurred_at, row)]
    too_late = [row for row in concerned if row.id not in canceled and row.is_too_late]
    late_ids = {row.id for row in too_late}
    new = [created[event.user_id, creation.kind] for creation in planned.create]
    existing = [by_id.get(row.id, row) for row in planned.existing]
    return {
        "event": {"id": event.id, "type": event.type, "duplicate": False},
        "notifications": [
            {
                "id": decision.id,
                "kind": decision.creation.kind,
                "state": decision.creation.state.value,
                "due_at": decision.creation.due_at.isoformat(),
            }
            for decision in new
        ]
        + [
            {
                "id": str(row.id),
                "kind": row.kind,
                "state": row.state.value,
                "due_at": row.due_at.isoformat(),
                "existing": True,
            }
            for row in existing
        ],
        **three_lists(
            [row for row in standing if row.id in canceled],
            too_late,
            [row for row in standing if row.id not in canceled and row.id not in late_ids],
        ),
        "user_id": event.user_id,
    }


_LISTS = ("notifications", "canceled", "too_late", "untouched")


def pack(answer: Mapping[str, Any]) -> dict[str, Any]:
    """What is kept of an answer: all that the event's own row does not say."""
    return {name: answer[name] for name in _LISTS if answer[name]}


def unpack(event: Event, packed: Mapping[str, Any]) -> dict[str, Any]:
    """Give the answer again that was packed for this event."""
    return {
        "event": {"id": event.id, "type": event.type, "duplicate": False},
        **{name: packed.get(name, []) for name in _LISTS},
        "user_id": event.user_id,
    }


def left_standing(
    answer: Mapping[str, Any], event: Event, occurred_at: datetime, standing: Sequence[NotificationRow]
) -> int:
    """How many notifications a built answer does not call canceled although its event could have stopped them: none.

    It does not ask how the answer came about, so that it notices when a step of that is missing.
    """
    canceled = {item["id"] for item in answer["canceled"]}
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
            {"id": str(row.id), "kind": row.kind, "state": row.state.value, "since": _iso(row.since)}
            for row in too_late
        ],
        "untouched": [{"id": str(row.id), "kind": row.kind, "state": row.state.value} for row in untouched],
    }


def _iso(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()
