"""settle(): what an outcome leads to, for every doubt, window and allowance; and where a notification may stand."""

from __future__ import annotations

import itertools
import uuid
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from notifier.domain.notification import (
    MOVES,
    NotificationRow,
    Settlement,
    State,
    may_repeat,
    settle,
    stopped_by_rule,
)
from notifier.domain.retry import RetryPolicy
from providers.base import (
    Accepted,
    Ambiguous,
    BodyMismatch,
    ConfigError,
    Duplicate,
    Outcome,
    Rejected,
    RetryLater,
)

POLICY = RetryPolicy(first_s=1, max_s=600, attempts_max=8, give_up_after=timedelta(days=1))
MINUTE = timedelta(minutes=1)
LAST = POLICY.attempts_max
NOW = datetime(2026, 11, 29, 10, tzinfo=UTC)
OPEN = {State.SCHEDULED, State.PENDING, State.SENDING}


def after(outcome: Outcome, **fields: Any) -> Settlement:
    """What follows from `outcome` at the first attempt of a notification without doubt, unless told otherwise."""
    made = {
        "attempt": 1,
        "waits": 0,
        "doubt": False,
        "may_repeat": True,
        "given_up_waiting": False,
        "jitter": 0.0,
    }
    return settle(outcome, policy=POLICY, **{**made, **fields})


def short(settlement: Settlement) -> tuple[State, str | None, bool, bool]:
    return settlement.state, settlement.reason, settlement.doubt, settlement.counted


# ---------------------------------------------------------------------------------------------- the table

PENDING, SENT, FAILED, UNCERTAIN = State.PENDING, State.SENT, State.FAILED, State.UNCERTAIN
EVERY = list(itertools.product([False, True], repeat=2))  # doubt before × may repeat


@pytest.mark.parametrize(("doubt", "repeatable"), EVERY)
@pytest.mark.parametrize("attempt", [1, LAST])
@pytest.mark.parametrize("given_up", [False, True])
@pytest.mark.parametrize("probe", [False, True])
@pytest.mark.parametrize(("outcome", "evidence"), [(Accepted("m_1"), "accepted"), (Duplicate("m_1"), "duplicate")])
def test_taken_now_or_before_is_sent_and_clears_the_doubt(
    outcome: Outcome, evidence: str, doubt: bool, repeatable: bool, attempt: int, given_up: bool, probe: bool
) -> None:
    found = after(outcome, doubt=doubt, may_repeat=repeatable, attempt=attempt, given_up_waiting=given_up, probe=probe)
    assert found == Settlement(SENT, None, doubt=False, evidence=evidence, message_id="m_1")


@pytest.mark.parametrize(("doubt", "ends"), [(False, FAILED), (True, UNCERTAIN)])
@pytest.mark.parametrize("repeatable", [False, True])
@pytest.mark.parametrize("attempt", [1, LAST])
def test_refused_for_good_is_failed_but_in_doubt_uncertain(
    doubt: bool, ends: State, repeatable: bool, attempt: int
) -> None:
    found = after(Rejected("validation_error"), doubt=doubt, may_repeat=repeatable, attempt=attempt)
    assert short(found) == (ends, "validation_error", doubt, True)


@pytest.mark.parametrize(("doubt", "repeatable"), EVERY)
def test_a_key_used_with_another_body_is_uncertain_whatever_was_before(doubt: bool, repeatable: bool) -> None:
    found = after(BodyMismatch("invalid_idempotent_request"), doubt=doubt, may_repeat=repeatable)
    assert short(found) == (UNCERTAIN, "body_mismatch", True, True)


@pytest.mark.parametrize(("doubt", "repeatable"), EVERY)
@pytest.mark.parametrize("attempt", [1, LAST, LAST + 5])
@pytest.mark.parametrize(
    "outcome",
    [RetryLater("rate_limited"), RetryLater("connect_failed", answered=False), ConfigError("missing_api_key")],
)
def test_what_was_surely_not_taken_waits_and_uses_nothing_up(
    outcome: RetryLater | ConfigError, doubt: bool, repeatable: bool, attempt: int
) -> None:
    found = after(outcome, doubt=doubt, may_repeat=repeatable, attempt=attempt)
    assert short(found) == (PENDING, outcome.reason, doubt, False)
    assert found.wait == POLICY.delay(attempt, 0.0)


@pytest.mark.parametrize(("doubt", "ends"), [(False, FAILED), (True, UNCERTAIN)])
def test_waiting_ends_by_time(doubt: bool, ends: State) -> None:
    found = after(RetryLater("rate_limited"), doubt=doubt, given_up_waiting=True)
    assert short(found) == (ends, "gave_up_waiting", doubt, True)


@pytest.mark.parametrize(("doubt", "ends"), [(False, State.FAILED), (True, State.UNCERTAIN)])
def test_a_refusal_that_counts_ends_with_the_last_attempt(doubt: bool, ends: State) -> None:
    """A full mailbox: asked a few times, not for a whole day."""
    full = RetryLater("mailbox_full", counted=True)
    assert short(after(full, attempt=LAST - 1, doubt=doubt)) == (State.PENDING, "mailbox_full", doubt, True)
    assert short(after(full, attempt=LAST, doubt=doubt)) == (ends, "mailbox_full", doubt, True)
    probing = after(full, attempt=LAST, doubt=doubt, probe=True)
    assert short(probing) == (State.PENDING, "mailbox_full", doubt, False), "a probe uses nothing up"


def test_a_wrong_configuration_ends_nothing_however_long_it_lasts() -> None:
    assert after(ConfigError("http_401"), given_up_waiting=True, attempt=LAST).state is PENDING


@pytest.mark.parametrize(
    ("attempt", "repeatable", "counted", "probe", "expected"),
    [
        (1, True, True, False, (PENDING, "timeout", True, True)),
        (LAST - 1, True, True, False, (PENDING, "timeout", True, True)),
        (LAST, True, True, False, (UNCERTAIN, "attempts_exhausted", True, True)),
        (LAST + 1, True, True, False, (UNCERTAIN, "attempts_exhausted", True, True)),
        # still under way at the provider, or asked only to see whether it is back: nothing is used up
        (LAST, True, False, False, (PENDING, "timeout", True, False)),
        (LAST, True, True, True, (PENDING, "timeout", True, False)),
        (LAST, True, False, True, (PENDING, "timeout", True, False)),
        # nobody may ask again
        (1, False, True, False, (UNCERTAIN, "timeout", True, True)),
        (1, False, False, False, (UNCERTAIN, "timeout", True, True)),
        (LAST, False, True, True, (UNCERTAIN, "timeout", True, True)),
    ],
)
@pytest.mark.parametrize("doubt", [False, True])
@pytest.mark.parametrize("given_up", [False, True])
def test_no_definite_answer_is_doubt_from_now_on(
    attempt: int,
    repeatable: bool,
    counted: bool,
    probe: bool,
    expected: tuple[State, str, bool, bool],
    doubt: bool,
    given_up: bool,
) -> None:
    found = after(
        Ambiguous("timeout", counted=counted),
        attempt=attempt,
        may_repeat=repeatable,
        probe=probe,
        doubt=doubt,
        given_up_waiting=given_up,
    )
    assert short(found) == expected


@pytest.mark.parametrize("make", [RetryLater, ConfigError, Ambiguous])
def test_the_longer_of_our_wait_and_the_providers_is_kept(make: Any) -> None:
    assert after(make("x", MINUTE)).wait == MINUTE
    assert after(make("x", MINUTE), attempt=LAST - 1, waits=20, jitter=0.5).wait == timedelta(seconds=600 * 0.55)


def test_refusals_that_are_not_counted_lengthen_the_wait_all_the_same() -> None:
    waits = [after(RetryLater("rate_limited"), waits=number).wait for number in range(12)]
    assert waits == sorted(waits)
    assert waits[3] == 8 * waits[0]


# ---------------------------------------------------------------------------------------------- what always holds

reasons = st.sampled_from(["timeout", "http_500"])
times = st.sampled_from([timedelta(0), MINUTE])
outcomes = st.one_of(
    st.builds(Accepted, st.sampled_from([None, "m_1"])),
    st.builds(Duplicate, st.sampled_from([None, "m_1"])),
    st.builds(Rejected, reasons),
    st.builds(RetryLater, reasons, times, st.booleans()),
    st.builds(Ambiguous, reasons, times, st.booleans()),
    st.builds(BodyMismatch, reasons),
    st.builds(ConfigError, reasons, times),
)
circumstances = st.fixed_dictionaries(
    {
        "attempt": st.integers(1, LAST + 2),
        "waits": st.integers(0, 40),
        "doubt": st.booleans(),
        "may_repeat": st.booleans(),
        "given_up_waiting": st.booleans(),
        "jitter": st.floats(0, 1, exclude_max=True),
        "probe": st.booleans(),
    }
)


@given(outcome=outcomes, around=circumstances)
def test_never_say_more_than_we_know(outcome: Outcome, around: dict[str, Any]) -> None:
    found = settle(outcome, policy=POLICY, **around)
    assert found.state in MOVES[State.SENDING]
    in_doubt = around["doubt"] or isinstance(outcome, Ambiguous | BodyMismatch)
    if found.state is SENT:
        assert isinstance(outcome, Accepted | Duplicate)
        assert not found.doubt
        assert found.evidence is not None
    else:
        assert found.doubt == in_doubt, "doubt is cleared by nothing but sent"
        assert found.evidence is None
        assert found.reason is not None
    if in_doubt:
        assert found.state in (SENT, UNCERTAIN, PENDING)
    if found.state is UNCERTAIN:
        assert found.doubt, "without doubt there is nothing to be uncertain of"
    if isinstance(outcome, Ambiguous) and not around["may_repeat"]:
        assert found.state is UNCERTAIN
    if found.state is PENDING:
        assert found.wait > timedelta(0), "a retry at once would be a hot loop"
        assert around["attempt"] < LAST or not found.counted, "an allowance that is used up is used up"


@given(outcome=outcomes, around=circumstances)
def test_an_outcome_is_settled_the_same_way_every_time(outcome: Outcome, around: dict[str, Any]) -> None:
    assert settle(outcome, policy=POLICY, **around) == settle(outcome, policy=POLICY, **around)


# ---------------------------------------------------------------------------------------------- rules and repeats


@pytest.mark.parametrize(
    ("has_keys", "same_account", "left", "yes"),
    [
        (True, True, timedelta(microseconds=1), True),
        (True, True, timedelta(0), False),
        (True, True, -MINUTE, False),
        (True, False, MINUTE, False),
        (False, True, MINUTE, False),
    ],
)
def test_a_doubt_may_be_asked_away_only_where_the_key_is_still_known(
    has_keys: bool, same_account: bool, left: timedelta, yes: bool
) -> None:
    assert may_repeat(has_keys, same_account, left) is yes


@pytest.mark.parametrize("state", [State.SKIPPED, State.FAILED])
def test_a_rule_stops_what_surely_was_not_taken_and_leaves_the_rest_uncertain(state: State) -> None:
    assert short(stopped_by_rule("suppressed", False, state)) == (state, "suppressed", False, False)
    assert short(stopped_by_rule("suppressed", True, state)) == (UNCERTAIN, "suppressed", True, False)


# ---------------------------------------------------------------------------------------------- states and moves

ALLOWED = {
    # the states' table of the contract, with what an operator's retry or resolve may end in
    State.SCHEDULED: "pending canceled skipped",
    State.PENDING: "sending canceled skipped failed",
    State.SENDING: "sent pending failed uncertain skipped canceled",
    State.SENT: "",
    State.CANCELED: "scheduled pending",
    State.SKIPPED: "scheduled pending canceled",
    State.FAILED: "pending canceled",
    State.UNCERTAIN: "sent pending canceled skipped",
}


@pytest.mark.parametrize(("old", "new"), list(itertools.product(State, State)))
def test_every_move_is_in_the_table_or_there_is_none(old: State, new: State) -> None:
    assert (new in MOVES[old]) == (new.value in ALLOWED[old].split())


def test_the_moves_leave_no_state_out_and_no_way_back_from_sent() -> None:
    assert set(MOVES) == set(State)
    assert {state for state in State if not MOVES[state]} == {SENT}
    assert {old for old in State if SENT in MOVES[old]} == {State.SENDING, UNCERTAIN}
    assert {old for old in State if State.SENDING in MOVES[old]} == {PENDING}, "only a claim sends"
    with pytest.raises(TypeError):
        MOVES[SENT] = frozenset({PENDING})


ROW = NotificationRow(
    id=uuid.UUID(int=1),
    user_id="ada",
    kind="followup",
    state=PENDING,
    reason=None,
    decided_at=NOW,
    due_at=NOW,
    cancel_on=(),
    cancel_from=NOW,
    claimed_at=None,
    doubt_since=None,
    settled_at=None,
)
CLAIMED, DOUBT, SETTLED = NOW + MINUTE, NOW + 2 * MINUTE, NOW + 3 * MINUTE


@pytest.mark.parametrize(
    ("state", "doubt", "cancelable", "too_late", "since"),
    [
        (State.SCHEDULED, False, True, False, None),
        (State.PENDING, False, True, False, None),
        (State.PENDING, True, False, True, DOUBT),
        (State.SENDING, False, False, True, CLAIMED),
        (State.SENDING, True, False, True, DOUBT),
        (State.SENT, False, False, True, SETTLED),
        (State.UNCERTAIN, True, False, True, DOUBT),
        (State.CANCELED, False, False, False, None),
        (State.SKIPPED, False, False, False, None),
        (State.FAILED, False, False, False, CLAIMED),
    ],
)
def test_what_an_event_may_still_do_with_a_row(
    state: State, doubt: bool, cancelable: bool, too_late: bool, since: datetime | None
) -> None:
    claimed = state in (State.SENDING, State.SENT, State.UNCERTAIN, State.FAILED)
    row = replace(
        ROW,
        state=state,
        doubt_since=DOUBT if doubt else None,
        claimed_at=CLAIMED if claimed else None,
        settled_at=None if state in OPEN else SETTLED,
    )
    assert (row.can_still_be_canceled, row.is_too_late, row.since) == (cancelable, too_late, since)
    assert row.state_is_closed == (state not in OPEN)
    assert not (row.can_still_be_canceled and row.is_too_late)
