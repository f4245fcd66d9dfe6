"""plan(): what an event means for a user; and the journeys file, whose mistakes are named by kind and key."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from notifier.domain.errors import SettingsError
from notifier.domain.event import Event, Profile
from notifier.domain.journey import (
    Creation,
    Journeys,
    Kind,
    Plan,
    Seen,
    UserState,
    cancel_reason,
    concerns,
    parse_journeys,
    plan,
    template_values,
)
from notifier.domain.notification import NotificationRow, State
from notifier.journeys import load_journeys
from notifier.settings import Settings

NOW = datetime(2026, 11, 29, 10, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
MICROSECOND = timedelta(microseconds=1)
SIGNUP, LOGIN, UNSUBSCRIBED = "user.signed_up", "user.logged_in", "user.unsubscribed"


def a_kind(name: str = "followup", **fields: Any) -> Kind:
    made = {
        "on": SIGNUP,
        "template": name,
        "delay": 3 * DAY,
        "cancel_on": (LOGIN,),
        "cancel_grace": timedelta(0),
        "max_age": 7 * DAY,
    }
    return Kind(name=name, **{**made, **fields})


def journeys(*kinds: Kind) -> Journeys:
    return Journeys({kind.name: kind for kind in kinds})


def an_event(type_: str = SIGNUP, data: Mapping[str, Any] | None = None) -> Event:
    return Event("api", "evt_1", type_, "ada", None, b"f" * 32, Profile(), data or {})


def a_user(
    *notifications: NotificationRow, last_seen: Mapping[str, Seen] | None = None, email: str | None = "ada@example.com"
) -> UserState:
    return UserState("ada", email, "Ada", "en", "Europe/London", {"plan": "free"}, notifications, last_seen or {})


def a_row(kind: str = "followup", state: State = State.SCHEDULED, **fields: Any) -> NotificationRow:
    made = {
        "id": uuid.UUID(int=1),
        "user_id": "ada",
        "reason": None,
        "decided_at": NOW - HOUR,
        "due_at": NOW + 3 * DAY,
        "cancel_on": (LOGIN,),
        "cancel_from": NOW - HOUR,
        "claimed_at": None,
        "doubt_since": None,
        "settled_at": None,
    }
    return NotificationRow(kind=kind, state=state, **{**made, **fields})


def planned(kind: Kind, at: datetime = NOW, **user: Any) -> Creation:
    """The one creation a signup at `at` leads to."""
    found = plan(an_event(), at, a_user(**user), journeys(kind), NOW)
    assert (found.existing, found.cancel) == ((), ())
    [creation] = found.create
    return creation


def ending(creation: Creation) -> tuple[State, str | None, str | None]:
    return creation.state, creation.reason, creation.decided_by


# ---------------------------------------------------------------------------------------------- where it begins


def test_what_is_due_later_is_scheduled() -> None:
    creation = planned(a_kind(cancel_grace=HOUR))
    assert ending(creation) == (State.SCHEDULED, None, None)
    assert (creation.decided_at, creation.due_at, creation.cancel_from) == (NOW, NOW + 3 * DAY, NOW + HOUR)
    assert (creation.kind, creation.cancel_on) == ("followup", (LOGIN,))


@pytest.mark.parametrize(
    ("after", "state"), [(-MICROSECOND, State.PENDING), (timedelta(0), State.PENDING), (MICROSECOND, State.SCHEDULED)]
)
def test_what_is_due_by_now_is_owed(after: timedelta, state: State) -> None:
    assert planned(a_kind(delay=DAY), NOW - DAY + after).state is state


def test_what_is_due_and_has_nobody_to_go_to_is_skipped() -> None:
    kind = a_kind(delay=timedelta(0))
    assert ending(planned(kind, email=None)) == (State.SKIPPED, "no_recipient", "rule:no_recipient")


def test_an_address_may_still_come_while_it_waits() -> None:
    assert planned(a_kind(), email=None).state is State.SCHEDULED


@pytest.mark.parametrize(
    ("age", "ended"),
    [
        (7 * DAY, (State.PENDING, None, None)),
        (7 * DAY + MICROSECOND, (State.SKIPPED, "too_old", "rule:max_age")),
    ],
)
def test_max_age_is_still_young_enough(age: timedelta, ended: tuple[State, str | None, str | None]) -> None:
    assert ending(planned(a_kind(), NOW - age)) == ended


def test_too_old_comes_before_no_recipient_and_canceled_before_both() -> None:
    at = NOW - 8 * DAY
    assert planned(a_kind(), at, email=None).reason == "too_old"
    seen = {LOGIN: Seen(NOW, "api/evt_0")}
    assert ending(planned(a_kind(), at, email=None, last_seen=seen)) == (
        State.CANCELED,
        "login",
        "event:api/evt_0",
    )


@pytest.mark.parametrize("grace", [timedelta(0), HOUR])
@pytest.mark.parametrize(
    ("after", "state"),
    [(-MICROSECOND, State.SCHEDULED), (timedelta(0), State.CANCELED), (MICROSECOND, State.CANCELED)],
    ids=["before", "tie", "after"],
)
def test_a_login_seen_earlier_counts_from_the_grace_on(grace: timedelta, after: timedelta, state: State) -> None:
    seen = {LOGIN: Seen(NOW + grace + after, "login_webhook/msg_1")}
    creation = planned(a_kind(cancel_grace=grace), last_seen=seen)
    assert creation.state is state
    assert creation.decided_by == ("event:login_webhook/msg_1" if state is State.CANCELED else None)


def test_of_several_canceling_types_the_first_named_that_counts_gives_the_reason() -> None:
    kind = a_kind(cancel_on=(LOGIN, UNSUBSCRIBED))
    late, early = Seen(NOW + HOUR, "api/late"), Seen(NOW - HOUR, "api/early")
    assert planned(kind, last_seen={LOGIN: early, UNSUBSCRIBED: late}).reason == UNSUBSCRIBED
    assert planned(kind, last_seen={LOGIN: late, UNSUBSCRIBED: late}).reason == "login"
    assert planned(kind, last_seen={LOGIN: early, UNSUBSCRIBED: early}).reason is None
    assert planned(kind, last_seen={"cart.filled": late}).reason is None


def test_the_template_may_use_what_is_known_at_the_decision() -> None:
    found = plan(an_event(data={"plan": "pro"}), NOW, a_user(), journeys(a_kind()), NOW)
    assert template_values("ada", found.create[0].data) == {
        "user": {
            "id": "ada",
            "name": "Ada",
            "locale": "en",
            "timezone": "Europe/London",
            "attributes": {"plan": "free"},
        },
        "data": {"plan": "pro"},
    }


def test_what_is_not_known_is_not_kept_and_is_null_to_the_template() -> None:
    nobody = a_user()._replace(name=None, locale=None, timezone=None, attributes={})
    found = plan(an_event(data={}), NOW, nobody, journeys(a_kind()), NOW)
    assert found.create[0].data == {}
    assert template_values("ada", {}) == {
        "user": {"id": "ada", "name": None, "locale": None, "timezone": None, "attributes": {}},
        "data": {},
    }


# ---------------------------------------------------------------------------------------------- several kinds at once


def test_each_kind_is_created_or_named_as_existing() -> None:
    kinds = journeys(a_kind("onboarding", delay=timedelta(0), cancel_on=()), a_kind(), a_kind("other", on="cart.left"))
    there = a_row("onboarding", State.SENT, cancel_on=())
    found = plan(an_event(), NOW, a_user(there), kinds, NOW)
    assert [creation.kind for creation in found.create] == ["followup"]
    assert found.existing == (there,)
    assert found.cancel == ()


def test_an_unknown_type_means_nothing() -> None:
    found = plan(an_event("cart.filled"), NOW, a_user(a_row()), journeys(a_kind()), NOW)
    assert found == Plan((), (), ())


def test_an_event_may_ask_for_one_mail_and_stop_another() -> None:
    kinds = journeys(a_kind(), a_kind("welcome_back", on=LOGIN, delay=timedelta(0), cancel_on=()))
    waiting = a_row()
    found = plan(an_event(LOGIN), NOW, a_user(waiting), kinds, NOW)
    assert [creation.kind for creation in found.create] == ["welcome_back"]
    assert found.cancel == (waiting,)


@pytest.mark.parametrize("state", list(State))
def test_all_that_an_event_concerns_are_listed_whatever_their_state(state: State) -> None:
    """Whether it can still be stopped is for the row's place to say, not for the plan."""
    row = a_row(state=state)
    assert plan(an_event(LOGIN), NOW, a_user(row), journeys(a_kind()), NOW).cancel == (row,)


@pytest.mark.parametrize(
    ("type_", "at", "yes"),
    [
        (LOGIN, NOW - MICROSECOND, False),
        (LOGIN, NOW, True),
        (LOGIN, NOW + DAY, True),
        (UNSUBSCRIBED, NOW, True),
        ("user.updated", NOW + DAY, False),
    ],
)
def test_an_event_concerns_what_names_its_type_from_cancel_from_on(type_: str, at: datetime, yes: bool) -> None:
    assert concerns(type_, at, a_row(cancel_on=(LOGIN, UNSUBSCRIBED), cancel_from=NOW)) is yes


def test_the_reason_is_a_word_of_its_own_for_logins() -> None:
    assert (cancel_reason(LOGIN), cancel_reason(UNSUBSCRIBED)) == ("login", UNSUBSCRIBED)


moments = st.integers(-40 * 24, 1).map(lambda hours: NOW + hours * HOUR)


@given(
    at=moments,
    seen=st.dictionaries(st.sampled_from([LOGIN, UNSUBSCRIBED]), moments.map(lambda at: Seen(at, "api/x"))),
    delay=st.integers(0, 24 * 30).map(lambda hours: hours * HOUR),
    grace=st.sampled_from([timedelta(0), HOUR, DAY]),
    email=st.sampled_from([None, "ada@example.com"]),
)
def test_every_creation_is_one_thing_and_says_why(
    at: datetime, seen: dict[str, Seen], delay: timedelta, grace: timedelta, email: str | None
) -> None:
    kind = a_kind(delay=delay, cancel_grace=grace, cancel_on=(LOGIN, UNSUBSCRIBED))
    creation = planned(kind, at, last_seen=seen, email=email)
    assert creation.due_at == at + delay
    assert creation.cancel_from == at + grace
    assert creation.state in (State.SCHEDULED, State.PENDING, State.CANCELED, State.SKIPPED)
    is_closed = creation.state in (State.CANCELED, State.SKIPPED)
    assert (creation.reason is not None) == (creation.decided_by is not None) == is_closed
    stopped = any(one.at >= creation.cancel_from for one in seen.values())
    assert (creation.state is State.CANCELED) == stopped
    if creation.state is State.PENDING:
        assert creation.due_at <= NOW
        assert email is not None
    if creation.state is State.SCHEDULED:
        assert creation.due_at > NOW
        assert NOW - at <= kind.max_age


# The same login, before or after its signup: the end is the same one.
@given(signup=moments, login=moments, grace=st.sampled_from([timedelta(0), HOUR]))
def test_arrival_does_not_matter(signup: datetime, login: datetime, grace: timedelta) -> None:
    kind = a_kind(delay=60 * DAY, max_age=60 * DAY, cancel_grace=grace)
    first = planned(kind, signup)
    row = a_row(decided_at=first.decided_at, cancel_on=first.cancel_on, cancel_from=first.cancel_from)
    login_after = plan(an_event(LOGIN), login, a_user(row), journeys(kind), NOW).cancel == (row,)
    login_before = planned(kind, signup, last_seen={LOGIN: Seen(login, "api/x")}).state is State.CANCELED
    assert login_after == login_before == (login >= signup + grace)


# ---------------------------------------------------------------------------------------------- the journeys file


def test_a_kind_needs_no_more_than_its_event() -> None:
    assert parse_journeys('[kinds.welcome]\non = "user.signed_up"', "j.toml").kinds["welcome"] == Kind(
        name="welcome",
        on=SIGNUP,
        template="welcome",
        delay=timedelta(0),
        cancel_on=(),
        cancel_grace=timedelta(0),
        max_age=7 * DAY,
    )


def test_everything_a_kind_may_say() -> None:
    text = """
        [kinds."a.b-c_1"]
        on = "cart.left"
        template = "Cart"
        delay = " 1.5 h "
        cancel_on = ["cart.bought", "user.unsubscribed"]
        cancel_grace = "90s"
        max_age = "2w"
    """
    found = parse_journeys(text, "j.toml")
    assert found.kinds["a.b-c_1"] == Kind(
        name="a.b-c_1",
        on="cart.left",
        template="Cart",
        delay=1.5 * HOUR,
        cancel_on=("cart.bought", UNSUBSCRIBED),
        cancel_grace=timedelta(seconds=90),
        max_age=14 * DAY,
    )
    assert found.canceling_types == {"cart.bought", UNSUBSCRIBED}
    assert found.event_types == {"cart.left", "cart.bought", UNSUBSCRIBED}


@pytest.mark.parametrize(
    ("text", "length"),
    [("0s", timedelta(0)), ("5m", timedelta(minutes=5)), ("3d", 3 * DAY), ("3660d", 3_660 * DAY), ("0.5w", 3.5 * DAY)],
)
def test_durations(text: str, length: timedelta) -> None:
    assert parse_journeys(f'[kinds.k]\non = "x"\ndelay = "{text}"', "j.toml").kinds["k"].delay == length


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("kinds = ", ["j.toml", "Invalid value"]),
        ("", ["names no kind", "[kinds.NAME]"]),
        ("[kinds]", ["names no kind"]),
        ("kinds = 3", ["names no kind"]),
        ('[kinds.k]\non = "x"\n[other]', ["unknown table 'other'"]),
        ('[kinds.K]\non = "x"', ["kind 'K'", "lower-case"]),
        ('[kinds."k@1"]\non = "x"', ["kind 'k@1'", "no @"]),
        (f'[kinds.{"k" * 64}]\non = "x"', [f"kind '{'k' * 64}'", "at most 63"]),
        ('[kinds]\nk = "x"', ["kind 'k'", "[kinds.k]"]),
        ("[kinds.k]", ["kind 'k'", "`on`"]),
        ('[kinds.k]\non = ""', ["kind 'k'", "`on`"]),
        ("[kinds.k]\non = 3", ["kind 'k'", "`on`"]),
        ('[kinds.k]\non = "a\\u0000b"', ["kind 'k'", "`on`"]),
        (f'[kinds.k]\non = "{"x" * 129}"', ["kind 'k'", "`on`"]),
        ('[kinds.k]\non = "x"\nonn = "y"', ["kind 'k'", "unknown key 'onn'"]),
        ('[kinds.k]\non = "x"\ntemplate = ""', ["kind 'k'", "`template`"]),
        ('[kinds.k]\non = "x"\ntemplate = 1', ["kind 'k'", "`template`"]),
        ('[kinds.k]\non = "x"\ntemplate = "a/b"', ["kind 'k'", "`template`"]),
        ('[kinds.k]\non = "x"\ntemplate = ".."', ["kind 'k'", "`template`"]),
        ('[kinds.k]\non = "x"\ntemplate = "a\\u0000"', ["kind 'k'", "`template`"]),
        ('[kinds.k]\non = "x"\ncancel_on = "y"', ["kind 'k'", "`cancel_on`"]),
        ('[kinds.k]\non = "x"\ncancel_on = ["y", 1]', ["kind 'k'", "`cancel_on`"]),
        ('[kinds.k]\non = "x"\ncancel_on = [""]', ["kind 'k'", "`cancel_on`"]),
        ('[kinds.k]\non = "x"\ncancel_on = ["a\\u001fb"]', ["kind 'k'", "`cancel_on`"]),
        ('[kinds.k]\non = "x"\ndelay = 3', ["kind 'k'", "`delay`", 'like "3d", not 3']),
        ('[kinds.k]\non = "x"\ndelay = "3"', ["kind 'k'", "`delay`"]),
        ('[kinds.k]\non = "x"\ndelay = "-3d"', ["kind 'k'", "`delay`"]),
        ('[kinds.k]\non = "x"\ndelay = "3 days"', ["kind 'k'", "`delay`"]),
        ('[kinds.k]\non = "x"\ndelay = "3661d"', ["kind 'k'", "`delay`", "ten years"]),
        (f'[kinds.k]\non = "x"\ndelay = "{"9" * 400}s"', ["kind 'k'", "`delay`", "ten years"]),
        ('[kinds.k]\non = "x"\ncancel_grace = "x"', ["kind 'k'", "`cancel_grace`"]),
        ('[kinds.k]\non = "x"\nmax_age = true', ["kind 'k'", "`max_age`"]),
    ],
)
def test_a_mistake_is_named_by_file_kind_and_key(text: str, says: list[str]) -> None:
    with pytest.raises(SettingsError) as refused:
        parse_journeys(text, "j.toml")
    for part in ["journeys file j.toml", *says]:
        assert part in str(refused.value)


def test_the_file_that_ships_says_what_the_readme_promises() -> None:
    shipped = load_journeys(Settings()).kinds
    assert (shipped["onboarding"].on, shipped["onboarding"].delay) == (SIGNUP, timedelta(0))
    assert (shipped["followup"].delay, shipped["followup"].cancel_on) == (3 * DAY, (LOGIN,))
