"""The order of what happened, and what stands against a second plan."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from notifier.domain.timeline import CAUSAL_ORDER, Entry, in_order

NOON = datetime(2026, 11, 29, 12, tzinfo=UTC)


@given(st.permutations(CAUSAL_ORDER))
def test_of_one_instant_causes_come_before_effects(shuffled: list[str]) -> None:
    entries = [Entry(NOON, what, {}) for what in shuffled]
    assert [entry.what for entry in in_order(entries)] == list(CAUSAL_ORDER)


def test_time_comes_first() -> None:
    later = Entry(NOON + timedelta(microseconds=1), "event", {})
    earlier = Entry(NOON, "settled", {})
    assert in_order([later, earlier]) == [earlier, later]
