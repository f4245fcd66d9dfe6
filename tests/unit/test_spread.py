"""A histogram that is told of many values at once shows what one shows that is told of each."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Histogram, generate_latest

from notifier.observe import SECONDS, Spread

VALUES = [0.0, 0.005, 0.0051, 0.99, 1, 1.01, 259_200, 259_201]


def test_it_shows_what_the_librarys_own_would() -> None:
    one_by_one, at_once = CollectorRegistry(), CollectorRegistry()
    usual = Histogram("a_seconds", "Some time", buckets=SECONDS, registry=one_by_one)
    for value in VALUES:
        usual.observe(value)
    spread = Spread("a_seconds", "Some time")
    at_once.register(spread)
    spread.observe_all(VALUES[:3])
    spread.observe_all([])
    spread.observe_all(VALUES[3:])
    assert generate_latest(at_once) == generate_latest(one_by_one)


def test_what_two_clocks_make_less_than_nothing_is_nothing() -> None:
    registry = CollectorRegistry()
    spread = Spread("a_seconds", "Some time")
    registry.register(spread)
    spread.observe_all([-3.0])
    assert registry.get_sample_value("a_seconds_sum") == 0
    assert registry.get_sample_value("a_seconds_bucket", {"le": "0.005"}) == 1
