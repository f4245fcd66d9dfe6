"""What the doctor makes of numbers that a test cannot bring about."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from notifier.coordination.probe import Report
from notifier.doctor.database import _version, durability, held_back, skew
from notifier.doctor.machine import space
from notifier.doctor.redis import judge
from notifier.doctor.trip import _event_type
from notifier.domain.journey import parse_journeys
from notifier.store.server import Server
from notifier.store.switches import Switch

SERVER = Server("18.1", 180_001, False, True, True, True, datetime(2026, 11, 29, tzinfo=UTC))
REDIS = Report("8.0.1", "noeviction", False, 0.001, ())


def test_a_server_that_is_too_old_or_takes_no_writes_will_not_do() -> None:
    assert _version(SERVER, "here").verdict == "ok"
    assert _version(replace(SERVER, version="14.9", number=140_009), "here").verdict == "failed"
    assert "primary" in _version(replace(SERVER, is_standby=True), "here").todo


def test_a_server_that_forgets_is_named_with_what_makes_it_forget() -> None:
    assert durability(SERVER).verdict == "ok"
    found = durability(replace(SERVER, synchronous_commit=False))
    assert (found.verdict, found.text.split(":")[0]) == ("warning", "synchronous_commit is off")


@pytest.mark.parametrize(("ahead_s", "words"), [(0.5, "agree"), (-2.5, "ahead of the database"), (9, "behind the")])
def test_a_clock_that_is_off_is_a_warning_at_most(ahead_s: float, words: str) -> None:
    found = skew(ahead_s)
    assert words in found.text
    assert found.verdict == ("ok" if words == "agree" else "warning")


@pytest.mark.parametrize(("free", "verdict"), [(2**40, "ok"), (2**29, "warning"), (2**20, "failed")])
def test_a_disk_is_judged_by_what_is_left(free: int, verdict: str) -> None:
    assert space(Path("/data"), free).verdict == verdict


@pytest.mark.parametrize(
    ("report", "verdict", "words"),
    [
        (REDIS, "ok", "harmless"),
        (replace(REDIS, full=True), "warning", "full"),
        (replace(REDIS, answer_s=0.2), "warning", "slower than 50 ms"),
        (replace(REDIS, version="6.0.16"), "warning", "6.2 is the oldest"),
        (replace(REDIS, version="", eviction=""), "ok", "unknown version"),
    ],
)
def test_a_redis_is_judged_by_what_hints_need(report: Report, verdict: str, words: str) -> None:
    found = judge(report, "here")
    assert found.verdict == verdict
    assert words in found.text


def test_what_is_held_back_is_said_with_who_does() -> None:
    now = datetime(2026, 11, 29, tzinfo=UTC)
    assert held_back([]).verdict == "ok"
    found = held_back([Switch("maintenance", "ada", "a move", now, now)])
    assert (found.verdict, "no event is taken: maintenance (by ada" in found.text) == ("warning", True)
    assert "some mails wait" in held_back([Switch("pause:followup", "ada", "a link", now, now)]).text


@pytest.mark.parametrize(
    ("kinds", "event_type"),
    [
        ('[kinds.later]\non = "a"\ndelay = "3d"\ncancel_on = ["x"]\n', None),
        ('[kinds.now]\non = "a"\n[kinds.other]\non = "b"\n', "a"),
        ('[kinds.now]\non = "a"\n[kinds.other]\non = "b"\n[kinds.later]\non = "b"\ndelay = "3d"\n', "a"),
        (
            '[kinds.now]\non = "a"\n[kinds.other]\non = "b"\n'
            '[kinds.later]\non = "b"\ndelay = "3d"\ncancel_on = ["x"]\n',
            "b",
        ),
    ],
)
def test_a_trip_begins_with_an_event_that_shows_the_most(kinds: str, event_type: str | None) -> None:
    assert _event_type(parse_journeys(kinds, "here")) == event_type
