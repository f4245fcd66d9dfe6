"""Our tables as the lab has them: the conditional moves do what the service's statements do."""

from __future__ import annotations

import pytest

from notifier.domain.event import Event, Profile, fingerprint
from notifier.domain.notification import Settlement, State
from notifier.proof.lab.script import FOLLOWUP, FOLLOWUP_AFTER_S, ONBOARDING
from notifier.proof.lab.strategies.ours import shipped_journeys
from notifier.proof.lab.strategies.outbox import Claim, Outbox, instant

WELCOME, LATER = ("u1", ONBOARDING), ("u1", FOLLOWUP)
SENT = Settlement(State.SENT, None, doubt=False)
AGAIN = Settlement(State.PENDING, None, doubt=False)
TTL_S = 30.0


@pytest.fixture
def outbox() -> Outbox:
    found = Outbox(shipped_journeys(), ())
    found.accept(an_event("evt_1", "user.signed_up", 0.0), 0.0)
    return found


def an_event(name: str, type_: str, at: float) -> Event:
    profile = Profile(email="u1@example.com")
    return Event("api", name, type_, "u1", instant(at), fingerprint({"id": name}), profile, {})


def claimed(outbox: Outbox, worker: str, now: float) -> Claim:
    [claim] = outbox.claim(worker, 1, now, TTL_S)
    return claim


def taken_over(outbox: Outbox, worker: str, now: float) -> Claim:
    [claim] = outbox.take_over(worker, list(outbox.expired(now, TTL_S)), now, TTL_S)
    return claim


def test_a_signup_decides_both_and_a_repeat_neither(outbox: Outbox) -> None:
    assert (outbox.state(WELCOME), outbox.state(LATER)) == (State.PENDING, State.SCHEDULED)
    assert outbox.accept(an_event("evt_2", "user.signed_up", 5.0), 5.0).created == ()
    assert outbox.accept(an_event("evt_1", "user.signed_up", 0.0), 9.0).created == (ONBOARDING, FOLLOWUP)  # replayed


def test_a_login_stops_what_waits_and_what_is_owed_and_unclaimed(outbox: Outbox) -> None:
    assert outbox.accept(an_event("evt_2", "user.logged_in", 5.0), 5.0).stopped == (FOLLOWUP,)
    assert outbox.state(LATER) is State.CANCELED
    assert outbox.release(FOLLOWUP_AFTER_S) == []


def test_a_login_comes_too_late_for_what_is_claimed_or_in_doubt(outbox: Outbox) -> None:
    outbox.settle(claimed(outbox, "a", 0.0), SENT, called=True, now=1.0)
    due = FOLLOWUP_AFTER_S
    assert outbox.release(due) == [LATER]
    claimed(outbox, "a", due)
    assert outbox.accept(an_event("evt_2", "user.logged_in", due + 1), due + 1).too_late == (FOLLOWUP,)
    given_back = taken_over(outbox, "b", due + TTL_S)
    assert given_back.doubt_since == due
    outbox.settle(given_back, AGAIN, called=True, now=due + TTL_S)
    assert outbox.state(LATER) is State.PENDING
    assert outbox.accept(an_event("evt_3", "user.logged_in", due + 40), due + 40).too_late == (FOLLOWUP,)


def test_what_is_beyond_recall_is_claimed_in_doubt_or_sent_and_nothing_else(outbox: Outbox) -> None:
    assert [outbox.is_beyond_recall(mail) for mail in (WELCOME, LATER, ("nobody", FOLLOWUP))] == [False, False, False]
    claim = claimed(outbox, "a", 0.0)
    assert outbox.is_beyond_recall(WELCOME)
    outbox.settle(claim, AGAIN, called=True, now=1.0)
    assert not outbox.is_beyond_recall(WELCOME)
    outbox.settle(claimed(outbox, "a", 1.0), Settlement(State.PENDING, None, doubt=True), called=True, now=2.0)
    assert (outbox.state(WELCOME), outbox.is_beyond_recall(WELCOME)) == (State.PENDING, True)
    outbox.settle(claimed(outbox, "a", 2.0), SENT, called=True, now=3.0)
    assert outbox.is_beyond_recall(WELCOME)


def test_whoever_lost_the_claim_changes_nothing(outbox: Outbox) -> None:
    slow = claimed(outbox, "slow", 0.0)
    assert outbox.expired(TTL_S - 1, TTL_S) == {}
    fast = taken_over(outbox, "fast", TTL_S)
    assert fast.generation == slow.generation + 1
    assert not outbox.settle(slow, AGAIN, called=True, now=TTL_S)
    assert outbox.state(WELCOME) is State.SENDING
    assert outbox.settle(fast, SENT, called=True, now=TTL_S)
    assert not outbox.settle(slow, Settlement(State.FAILED, "rejected", doubt=False), called=True, now=TTL_S)
    assert outbox.state(WELCOME) is State.SENT


def test_a_lost_claim_that_knows_it_was_taken_ends_an_uncertainty(outbox: Outbox) -> None:
    slow = claimed(outbox, "slow", 0.0)
    fast = taken_over(outbox, "fast", TTL_S)
    outbox.settle(fast, Settlement(State.UNCERTAIN, "refused", doubt=True), called=True, now=TTL_S)
    assert not outbox.settle(slow, SENT, called=True, now=TTL_S + 1)
    assert outbox.state(WELCOME) is State.SENT
