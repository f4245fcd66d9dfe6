"""The wait between attempts: doubling, bounded, never nothing."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from notifier.domain.retry import RetryPolicy

POLICY = RetryPolicy(first_s=1, max_s=600, attempts_max=8, give_up_after=timedelta(days=1))


@pytest.mark.parametrize(
    ("failure", "ceiling_s"), [(1, 1), (2, 2), (3, 4), (10, 512), (11, 600), (33, 600), (10_000, 600)]
)
def test_the_ceiling_doubles_up_to_the_maximum(failure: int, ceiling_s: float) -> None:
    assert POLICY.delay(failure, 0.0) == timedelta(seconds=ceiling_s * 0.1)
    assert POLICY.delay(failure, 0.5) == timedelta(seconds=ceiling_s * 0.55)


@given(
    first_s=st.floats(0.001, 31_536_000),
    more=st.floats(1, 1e6),
    failure=st.integers(1, 10**6),
    jitter=st.floats(0, 1, exclude_max=True),
)
def test_never_nothing_and_never_more_than_the_maximum(
    first_s: float, more: float, failure: int, jitter: float
) -> None:
    max_s = min(first_s * more, 31_536_000)
    wait = RetryPolicy(first_s, max_s, 8, timedelta(days=1)).delay(failure, jitter)
    assert timedelta(0) < wait <= timedelta(seconds=max_s)


@pytest.mark.parametrize(("failure", "jitter"), [(0, 0.5), (1, 1.0), (1, -0.1)])
def test_what_cannot_be_is_a_bug(failure: int, jitter: float) -> None:
    with pytest.raises(AssertionError):
        POLICY.delay(failure, jitter)
