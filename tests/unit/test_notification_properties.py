"""settle() over whole lives of a notification, and MOVES as a map: every way ends, and nothing leaves `sent`."""

from __future__ import annotations

import itertools
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from notifier.domain.notification import MOVES, Settlement, State, may_repeat, settle, stopped_by_rule
from notifier.domain.retry import RetryPolicy
from providers.base import Accepted, Ambiguous, BodyMismatch, ConfigError, Duplicate, Outcome, Rejected, RetryLater

POLICY = RetryPolicy(first_s=1, max_s=20, attempts_max=4, give_up_after=timedelta(hours=1))
BY_PEOPLE = {  # moves that only an operator makes, or evidence
    State.CANCELED: MOVES[State.CANCELED],
    State.SKIPPED: MOVES[State.SKIPPED],
    State.FAILED: MOVES[State.FAILED],
    State.UNCERTAIN: MOVES[State.UNCERTAIN],
}
CLOSED = {State.SENT, *BY_PEOPLE}
waits = st.sampled_from([timedelta(0), timedelta(seconds=7), timedelta(hours=2)])
outcomes: st.SearchStrategy[Outcome] = st.one_of(
    st.builds(Accepted),
    st.builds(Duplicate),
    st.builds(Rejected, st.just("invalid")),
    st.builds(RetryLater, st.just("rate_limited"), waits, counted=st.booleans()),
    st.builds(Ambiguous, st.just("timeout"), waits, counted=st.booleans()),
    st.builds(BodyMismatch),
    st.builds(ConfigError, st.just("unauthorized"), waits),
)
jitters = st.floats(0, 1, exclude_max=True)
calls = st.lists(st.tuples(outcomes, jitters, st.booleans()), min_size=1, max_size=12)


def live(told: list[tuple[Outcome, float, bool]], has_keys: bool, window: timedelta, patience: int) -> list[Settlement]:
    """Settle call after call, as a worker does, until it has ended; `patience`: calls before waiting is given up."""
    settled: list[Settlement] = []
    attempt, doubt, passed = 1, False, timedelta(0)
    for number, (outcome, jitter, probe) in enumerate(told):
        found = settle(
            outcome,
            policy=POLICY,
            attempt=attempt,
            waits=number,
            doubt=doubt,
            may_repeat=may_repeat(has_keys, True, window - passed),
            given_up_waiting=number >= patience,
            jitter=jitter,
            probe=probe,
        )
        settled.append(found)
        if found.state is not State.PENDING:
            break
        doubt, attempt, passed = found.doubt, attempt + int(found.counted), passed + found.wait
    return settled


lives = {
    "told": calls,
    "has_keys": st.booleans(),
    "window": st.sampled_from([timedelta(0), timedelta(minutes=1), timedelta(days=1)]),
    "patience": st.integers(1, 12),
}


@given(**lives)
def test_once_in_doubt_it_is_never_said_to_be_surely_unsent(
    told: list[tuple[Outcome, float, bool]], has_keys: bool, window: timedelta, patience: int
) -> None:
    doubt = False
    for (outcome, _, _), found in zip(told, live(told, has_keys, window, patience), strict=False):
        doubt = doubt or isinstance(outcome, Ambiguous | BodyMismatch)
        assert found.doubt == (doubt and found.state is not State.SENT)
        if doubt:
            assert found.state in (State.PENDING, State.SENT, State.UNCERTAIN)
        else:
            assert found.state is not State.UNCERTAIN, "nothing brought it into doubt"


@given(**lives)
def test_it_is_owed_again_after_doubt_only_while_a_repeat_is_harmless(
    told: list[tuple[Outcome, float, bool]], has_keys: bool, window: timedelta, patience: int
) -> None:
    passed = timedelta(0)
    for (outcome, _, _), found in zip(told, live(told, has_keys, window, patience), strict=False):
        if isinstance(outcome, Ambiguous) and found.state is State.PENDING:
            assert has_keys
            assert window - passed > timedelta(0)
        passed += found.wait


@given(outcome=outcomes, jitter=jitters, doubt=st.booleans(), can=st.booleans())
def test_every_life_ends(outcome: Outcome, jitter: float, doubt: bool, can: bool) -> None:
    last = settle(
        outcome,
        policy=POLICY,
        attempt=POLICY.attempts_max,
        waits=99,
        doubt=doubt,
        may_repeat=can,
        given_up_waiting=True,
        jitter=jitter,
    )
    may_go_on = isinstance(outcome, ConfigError) or (isinstance(outcome, Ambiguous) and not outcome.counted and can)
    assert may_go_on or last.state in CLOSED
    assert last.state in MOVES[State.SENDING]
    assert last.state is not State.PENDING or not last.counted


@given(outcome=outcomes, jitter=jitters)
def test_only_evidence_makes_it_sent(outcome: Outcome, jitter: float) -> None:
    [found] = live([(outcome, jitter, False)], True, timedelta(days=1), 9)
    assert (found.state is State.SENT) == isinstance(outcome, Accepted | Duplicate)
    assert (found.evidence is not None) == (found.state is State.SENT)


@given(**lives)
def test_the_wait_is_what_was_asked_and_never_a_hot_loop(
    told: list[tuple[Outcome, float, bool]], has_keys: bool, window: timedelta, patience: int
) -> None:
    for (outcome, _, _), found in zip(told, live(told, has_keys, window, patience), strict=False):
        if found.state is State.PENDING:
            assert found.wait >= timedelta(seconds=POLICY.first_s) * 0.1
            assert found.wait >= getattr(outcome, "wait_at_least", timedelta(0))


@given(reason=st.sampled_from(["suppressed", "overdue"]), state=st.sampled_from([State.SKIPPED, State.CANCELED]))
def test_a_rule_that_stops_it_respects_doubt(reason: str, state: State) -> None:
    assert stopped_by_rule(reason, False, state).state is state
    assert stopped_by_rule(reason, True, state).state is State.UNCERTAIN


# ------------------------------------------------------------------------------------------- the map


def reachable(start: State, moves: dict[State, frozenset[State]]) -> set[State]:
    found, new = {start}, {start}
    while new:
        new = {after for state in new for after in moves[state]} - found
        found |= new
    return found


def test_every_state_is_reached_and_nothing_leaves_sent() -> None:
    assert reachable(State.SCHEDULED, dict(MOVES)) == set(State)
    assert MOVES[State.SENT] == frozenset()
    assert set(MOVES) == set(State)


def test_from_everywhere_there_is_a_way_to_the_end() -> None:
    for state in State:
        assert reachable(state, dict(MOVES)) & CLOSED
        assert State.SENT in reachable(state, dict(MOVES)), "a person can still have it sent"


def test_left_alone_it_goes_only_forward_but_for_the_next_attempt() -> None:
    """Without people the one circle is pending and sending, and settle() bounds it."""
    alone = {state: frozenset[State]() if state in BY_PEOPLE else after for state, after in MOVES.items()}
    circles = {
        frozenset(pair)
        for pair in itertools.combinations(State, 2)
        if all(_leads(alone, *way) for way in (pair, pair[::-1]))
    }
    assert circles == {frozenset({State.PENDING, State.SENDING})}
    assert not any(_leads(alone, state, state) for state in State if state not in (State.PENDING, State.SENDING))


def _leads(moves: dict[State, frozenset[State]], start: State, end: State) -> bool:
    return any(end in reachable(after, moves) for after in moves[start])


def test_doubt_has_no_way_to_a_clean_end_but_through_a_person() -> None:
    assert not MOVES[State.UNCERTAIN] & {State.FAILED, State.SENDING, State.SCHEDULED}
    for state in State:
        if State.UNCERTAIN in MOVES[state]:
            assert state is State.SENDING
