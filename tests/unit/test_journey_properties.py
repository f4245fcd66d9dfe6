"""plan() over whole lives of a user: what comes out depends on when things occurred, never on when they arrived."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from notifier.domain.event import Event, Profile
from notifier.domain.journey import Journeys, Kind, Seen, UserState, cancel_reason, concerns, plan
from notifier.domain.notification import NotificationRow, State

NOW = datetime(2026, 11, 29, 10, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
SIGNUP, LOGIN, UNSUBSCRIBED, OTHER = "user.signed_up", "user.logged_in", "user.unsubscribed", "user.renamed"


def a_kind(name: str, delay: timedelta, cancel_on: tuple[str, ...] = (), grace: timedelta = timedelta(0)) -> Kind:
    return Kind(name, SIGNUP, name, delay, cancel_on, grace, 7 * DAY)


JOURNEYS = Journeys(
    {
        "onboarding": a_kind("onboarding", timedelta(0)),
        "followup": a_kind("followup", 3 * DAY, (LOGIN,)),
        "digest": a_kind("digest", 5 * DAY, (LOGIN, UNSUBSCRIBED), HOUR),
    }
)


@dataclass(frozen=True)
class Happened:
    """One event as it arrives."""

    id: str
    type: str
    at: datetime


def live(events: Sequence[Happened], email: str | None = "ada@example.com") -> dict[str, NotificationRow]:
    """Apply events in this order of arrival, as the ingest does; none of it is sent meanwhile."""
    rows: dict[str, NotificationRow] = {}
    seen: dict[str, Seen] = {}
    for happened in events:
        event = Event("api", happened.id, happened.type, "ada", happened.at, b"f" * 32, Profile(), {})
        user = UserState("ada", email, None, None, None, {}, list(rows.values()), dict(seen))
        planned = plan(event, happened.at, user, JOURNEYS, NOW)
        for row in planned.cancel:
            if row.can_still_be_canceled:
                rows[row.kind] = replace(row, state=State.CANCELED, reason=cancel_reason(happened.type))
        for new in planned.create:
            assert new.kind not in rows, "decided once"
            fields = (new.state, new.reason, new.decided_at, new.due_at, new.cancel_on, new.cancel_from)
            rows[new.kind] = NotificationRow(
                uuid.uuid5(uuid.NAMESPACE_OID, new.kind), "ada", new.kind, *fields, *[None] * 3
            )
        if happened.type in JOURNEYS.event_types and (
            happened.type not in seen or happened.at >= seen[happened.type].at
        ):
            seen[happened.type] = Seen(happened.at, event.ref)
    return rows


moments = st.integers(0, 6 * 24).map(lambda hours: NOW - hours * HOUR)
cancels = st.lists(st.tuples(st.sampled_from([LOGIN, UNSUBSCRIBED, OTHER]), moments), max_size=5)


def happenings(signups: Sequence[datetime], others: Sequence[tuple[str, datetime]]) -> list[Happened]:
    told = [Happened(f"s{number}", SIGNUP, at) for number, at in enumerate(signups)]
    return told + [Happened(f"o{number}", event_type, at) for number, (event_type, at) in enumerate(others)]


@given(signup=moments, others=cancels, draw=st.data())
def test_any_order_of_arrival_comes_to_the_same(
    signup: datetime, others: list[tuple[str, datetime]], draw: st.DataObject
) -> None:
    events = happenings([signup], others)
    told = live(events)
    other = live(draw.draw(st.permutations(events)))
    # Where two events each would have stopped it, the first to arrive gives the reason; that is all.
    assert {kind: replace(row, reason=None) for kind, row in other.items()} == {
        kind: replace(row, reason=None) for kind, row in told.items()
    }
    for row in told.values():
        stopped = [kind for kind, at in others if concerns(kind, at, row)]
        assert (row.state is State.CANCELED) == bool(stopped)
        assert row.decided_at == signup


@given(signups=st.lists(moments, min_size=2, max_size=4), others=cancels)
def test_the_first_signup_to_arrive_decides_and_later_ones_change_nothing(
    signups: list[datetime], others: list[tuple[str, datetime]]
) -> None:
    events = happenings(signups, others)
    first, rest = events[0], events[len(signups) :]
    told = live(events)
    assert told == live([first, *rest])
    assert all(row.decided_at == first.at for row in told.values())


@given(signup=moments, others=cancels, draw=st.data())
def test_an_event_that_arrives_twice_changes_nothing(
    signup: datetime, others: list[tuple[str, datetime]], draw: st.DataObject
) -> None:
    events = happenings([signup], others)
    again = draw.draw(st.lists(st.sampled_from(events), max_size=4))
    assert live([*events, *again]) == live(events)


@given(signup=moments, others=cancels)
def test_what_is_stopped_never_comes_back_by_an_event(signup: datetime, others: list[tuple[str, datetime]]) -> None:
    events = happenings([signup], others)
    stopped: set[str] = set()
    for count in range(1, len(events) + 1):
        now = {kind for kind, row in live(events[:count]).items() if row.state is State.CANCELED}
        assert stopped <= now
        stopped = now


@given(signup=moments, others=cancels, email=st.sampled_from([None, "ada@example.com"]))
def test_nothing_is_owed_before_it_is_due_or_to_nobody(
    signup: datetime, others: list[tuple[str, datetime]], email: str | None
) -> None:
    for row in live(happenings([signup], others), email).values():
        if row.state is State.PENDING:
            assert row.due_at <= NOW
            assert email is not None
        elif row.state is State.SCHEDULED:
            assert row.due_at > NOW
        else:
            assert row.reason is not None
