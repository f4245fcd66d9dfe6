"""What an answer is kept as, what it is given again as, and what it must not leave standing."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from notifier.domain.event import API, Event, Profile
from notifier.domain.journey import Creation
from notifier.domain.notification import NotificationRow, State
from notifier.ingest.answer import Packed, left_standing, pack_answer, unpack
from notifier.store.outbox import Decision
from notifier.store.rows import to_json

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
    answer = pack_answer(LOGIN.type, NOW, [], [], set(), [row])
    assert left_standing(answer, LOGIN, NOW, [row]) == left


def test_what_is_answered_as_canceled_is_not_left_standing() -> None:
    row = a_row(State.PENDING)
    answer = pack_answer(LOGIN.type, NOW, [], [], {row.id}, [row])
    assert left_standing(answer, LOGIN, NOW, [row]) == 0


ID = str(uuid.UUID(int=1))
EMPTY: dict[str, Any] = {
    "event": {"id": "evt_1", "type": "user.logged_in", "duplicate": False},
    "notifications": [],
    "canceled": [],
    "too_late": [],
    "untouched": [],
    "user_id": "ada",
}


def kept_and_given_again(packed: Packed) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(to_json(unpack(LOGIN, NOW, json.loads(to_json(packed)))))
    return told


def test_nothing_is_kept_of_an_event_that_did_nothing() -> None:
    packed = pack_answer(LOGIN.type, NOW, [], [], set(), [])
    assert packed == {}
    assert kept_and_given_again(packed) == EMPTY


@pytest.mark.parametrize(
    "after",
    [timedelta(0), timedelta(days=3), timedelta(days=3_660, microseconds=1), timedelta(microseconds=999_999)],
    ids=str,
)
def test_what_an_event_created_is_given_again_to_the_microsecond(after: timedelta) -> None:
    made = Creation("followup", NOW, NOW + after, (), NOW, {}, State.SCHEDULED)
    packed = pack_answer(LOGIN.type, NOW, [Decision(ID, made)], [], set(), [])
    due_at = (NOW + after).isoformat()
    assert kept_and_given_again(packed) == {
        **EMPTY,
        "notifications": [{"id": ID, "kind": "followup", "state": "scheduled", "due_at": due_at}],
    }


def test_what_existed_is_given_again_with_the_state_it_has_come_to() -> None:
    row, before = a_row(State.SENT, settled_at=NOW, due_at=NOW - HOUR), a_row(State.SENDING, due_at=NOW - HOUR)
    packed = pack_answer("user.signed_up", NOW, [], [before], set(), [row])
    item = {"id": ID, "kind": "followup", "state": "sent"}
    assert kept_and_given_again(packed) == {
        **EMPTY,
        "notifications": [{**item, "due_at": (NOW - HOUR).isoformat(), "existing": True}],
        "untouched": [item],
    }


@pytest.mark.parametrize("state", [State.SENDING, State.PENDING, State.SENT])
def test_what_was_stopped_and_what_was_too_late_is_given_again(state: State) -> None:
    late = a_row(state, in_doubt=True, settled_at=NOW)
    stopped = a_row(State.CANCELED, id=uuid.UUID(int=2), due_at=NOW + HOUR)
    packed = pack_answer(LOGIN.type, NOW, [], [], {stopped.id}, [late, stopped])
    since = NOW if state is State.SENT else NOW - HOUR
    assert kept_and_given_again(packed) == {
        **EMPTY,
        "canceled": [{"id": str(stopped.id), "kind": "followup", "due_at": (NOW + HOUR).isoformat()}],
        "too_late": [{"id": ID, "kind": "followup", "state": state.value, "since": since.isoformat()}],
    }


def test_what_an_earlier_version_kept_is_given_as_it_was() -> None:
    item = {"id": ID, "kind": "followup", "state": "sent"}
    kept: dict[str, Any] = {
        "notifications": [{**item, "due_at": "2026-11-29T12:00:00+00:00", "existing": True}],
        "canceled": [{"id": ID, "kind": "digest", "due_at": "2026-11-29T12:00:00+00:00"}],
        "too_late": [{**item, "since": "2026-11-29T11:00:00+00:00"}],
        "untouched": [item],
    }
    assert unpack(LOGIN, NOW, kept) == {**EMPTY, **kept}
