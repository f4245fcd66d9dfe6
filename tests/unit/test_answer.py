"""What an answer must not leave standing."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from notifier.domain.event import API, Event, Profile
from notifier.domain.journey import Plan
from notifier.domain.notification import NotificationRow, State
from notifier.ingest.answer import build_answer, left_standing

NOW = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)
LOGIN = Event(API, "evt_1", "user.logged_in", "ada", NOW, b"\0" * 32, Profile(), {})


def a_row(state: State, *, in_doubt: bool = False, **fields: Any) -> NotificationRow:
    made: dict[str, Any] = {
        "id": uuid.UUID(int=1),
        "user_id": "ada",
        "kind": "followup",
        "reason": None,
        "decided_at": NOW - HOUR,
        "due_at": NOW,
        "cancel_on": ("user.logged_in",),
        "cancel_from": NOW - HOUR,
        "claimed_at": None,
        "doubt_since": NOW - HOUR if in_doubt else None,
        "settled_at": None,
    }
    return NotificationRow(state=state, **{**made, **fields})


@pytest.mark.parametrize(
    ("row", "left"),
    [
        (a_row(State.PENDING), 1),
        (a_row(State.SCHEDULED), 1),
        (a_row(State.PENDING, in_doubt=True), 0),
        (a_row(State.SENDING, claimed_at=NOW), 0),
        (a_row(State.SENT, settled_at=NOW), 0),
        (a_row(State.PENDING, cancel_on=()), 0),
        (a_row(State.PENDING, cancel_from=NOW + HOUR), 0),
    ],
)
def test_what_the_event_could_have_stopped_is_counted(row: NotificationRow, left: int) -> None:
    answer = build_answer(LOGIN, NOW, Plan((), (), ()), {}, set(), [row])
    assert left_standing(answer, LOGIN, NOW, [row]) == left


def test_what_is_answered_as_canceled_is_not_left_standing() -> None:
    row = a_row(State.PENDING)
    answer = build_answer(LOGIN, NOW, Plan((), (), ()), {}, {row.id}, [row])
    assert left_standing(answer, LOGIN, NOW, [row]) == 0
