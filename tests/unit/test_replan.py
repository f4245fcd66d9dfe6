"""What stands against sending a closed notification after all, and until when a doubt may be repeated."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from notifier.domain.errors import Invalid
from notifier.domain.journey import Obstacle, Seen, replan
from notifier.domain.notification import State, safe_repeat_until
from notifier.domain.switch import check_name

NOON = datetime(2026, 11, 29, 12, tzinfo=UTC)
LOGIN = {"user.logged_in": Seen(NOON, "api/l")}


def replanned(**given: Any) -> Obstacle | None:
    asked = {"last_seen": {}, "email": "a@example.com", "suppressed": False, "is_due": True, **given}
    return replan(("user.logged_in",), asked.pop("cancel_from", NOON), asked.pop("last_seen"), **asked)


def test_nothing_stands_against_it() -> None:
    assert replanned() is None
    assert replanned(last_seen={"user.signed_up": Seen(NOON, "api/s")}) is None
    assert replanned(last_seen=LOGIN, cancel_from=NOON + timedelta(microseconds=1)) is None


def test_an_event_stands_against_it_from_the_first_instant_that_counts() -> None:
    assert replanned(last_seen=LOGIN) == Obstacle(State.CANCELED, "login", "event:api/l")
    assert replanned(last_seen=LOGIN, suppressed=True, email=None) == Obstacle(State.CANCELED, "login", "event:api/l")


def test_a_suppression_always_stands_and_a_missing_address_only_once_due() -> None:
    assert replanned(suppressed=True, is_due=False) == Obstacle(State.SKIPPED, "suppressed", "rule:suppressed")
    assert replanned(email=None) == Obstacle(State.SKIPPED, "no_recipient", "rule:no_recipient")
    assert replanned(email=None, is_due=False) is None


def test_a_doubt_may_be_repeated_inside_the_window_at_the_same_account_with_keys() -> None:
    def until(since: datetime | None = NOON, *, keys: bool = True, same: bool = True, hours: int = 1) -> Any:
        window, margin = timedelta(hours=hours), timedelta(seconds=30)
        return safe_repeat_until(since, has_keys=keys, same_account=same, window=window, margin=margin)

    assert until() == NOON + timedelta(hours=1) - timedelta(seconds=30)
    assert until(None) is None
    assert until(keys=False) is None
    assert until(same=False) is None
    assert until(hours=0) is None


@pytest.mark.parametrize("name", ["pause", "maintenance", "pause:onboarding", "pause:provider:mock", "pause:provider"])
def test_names_of_switches(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize("name", ["", "Pause", "pause:", "pause\n", "pause:provider:", "pause:a:b", "maintenance:a"])
def test_what_is_no_name_of_a_switch(name: str) -> None:
    with pytest.raises(Invalid):
        check_name(name)
