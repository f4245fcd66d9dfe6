"""The breaker: open after ten calls without a definite answer, one question at a time until there is one."""

from __future__ import annotations

from datetime import timedelta

import pytest

from notifier import observe
from notifier.worker.breaker import OPENS_AFTER, PROBE_MAX_S, Breaker, is_definite
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

TIMEOUT, UNREACHED = Ambiguous("timeout"), RetryLater("connect_failed", answered=False)
LIMITED, REFUSED = RetryLater("rate_limited", timedelta(seconds=1)), ConfigError("http_401")


@pytest.mark.parametrize(
    ("outcome", "definite"),
    [
        (Accepted("m"), True),
        (Duplicate("m"), True),
        (Rejected("invalid"), True),
        (BodyMismatch(), True),
        (LIMITED, True),
        (UNREACHED, False),
        (TIMEOUT, False),
        (Ambiguous("concurrent_idempotent_requests", counted=False), True),
        (REFUSED, False),
    ],
)
def test_which_answers_say_that_the_provider_is_there(outcome: Outcome, definite: bool) -> None:
    assert is_definite(outcome) is definite


def opened(at: float = 100.0) -> Breaker:
    breaker = Breaker()
    breaker.note(REFUSED, at)
    return breaker


def test_closed_it_allows_all_free_slots() -> None:
    assert [Breaker().allowance(free, 0.0) for free in (0, 1, 50)] == [0, 1, 50]


@pytest.mark.parametrize("outcome", [TIMEOUT, UNREACHED])
def test_ten_calls_in_a_row_without_an_answer_open_it(outcome: Outcome) -> None:
    breaker = Breaker()
    for _ in range(OPENS_AFTER - 1):
        breaker.note(outcome, 100.0)
        assert not breaker.is_open
    breaker.note(outcome, 100.0)
    assert breaker.is_open
    assert observe.BREAKER_OPEN._value.get() == 1


@pytest.mark.parametrize("answer", [Accepted(), Duplicate(), Rejected("x"), LIMITED])
def test_one_answer_in_between_starts_the_count_anew(answer: Outcome) -> None:
    breaker = Breaker()
    for outcome in [*[TIMEOUT] * (OPENS_AFTER - 1), answer, *[TIMEOUT] * (OPENS_AFTER - 1)]:
        breaker.note(outcome, 100.0)
    assert not breaker.is_open


def test_one_wrong_configuration_opens_it_at_once() -> None:
    assert opened().is_open


def test_open_it_allows_one_when_it_is_time_and_none_before() -> None:
    breaker = opened(100.0)
    assert [breaker.allowance(50, now) for now in (100.0, 100.99, 101.0, 500.0)] == [0, 0, 1, 1]
    assert breaker.allowance(0, 101.0) == 0


def test_every_failed_question_doubles_the_wait_up_to_half_a_minute() -> None:
    breaker = opened(0.0)
    waits = []
    for _ in range(7):
        asked = breaker.probe_at
        breaker.note(TIMEOUT, asked)
        waits.append(breaker.probe_at - asked)
    assert waits == [2, 4, 8, 16, 30, 30, 30]
    assert max(waits) == PROBE_MAX_S


def test_calls_that_were_under_way_when_it_opened_teach_nothing_new() -> None:
    breaker = opened(100.0)
    for _ in range(20):
        breaker.note(TIMEOUT, 100.5)
    assert breaker.probe_at == 101.0


@pytest.mark.parametrize("answer", [Accepted(), Duplicate(), Rejected("x"), BodyMismatch(), LIMITED])
def test_the_first_definite_answer_closes_it_and_forgets(answer: Outcome) -> None:
    breaker = opened(100.0)
    breaker.note(TIMEOUT, breaker.probe_at)
    breaker.note(answer, 102.0)
    assert (breaker.is_open, breaker.failures, breaker.allowance(50, 102.0)) == (False, 0, 50)
    assert observe.BREAKER_OPEN._value.get() == 0
    breaker.note(REFUSED, 200.0)
    assert breaker.probe_at == 201.0
