"""Ids: UUIDv7, in order of time."""

from __future__ import annotations

import time
import uuid

from notifier.ids import new_id


def test_an_id_is_a_uuid_of_version_7() -> None:
    for made in (new_id() for _ in range(100)):
        assert made.version == 7
        assert made.variant == uuid.RFC_4122


def test_ids_sort_by_when_they_were_made() -> None:
    before = time.time_ns() // 1_000_000
    made = [new_id() for _ in range(200)]
    after = time.time_ns() // 1_000_000
    stamps = [one.int >> 80 for one in made]
    assert before <= stamps[0]
    assert stamps == sorted(stamps)
    assert stamps[-1] <= after
    assert sorted(made, key=lambda one: one.int >> 80) == made


def test_no_two_are_the_same() -> None:
    assert len({new_id() for _ in range(5_000)}) == 5_000
