"""Where a worker's next claim begins, after a look, after a full claim and after one that came to the end."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from notifier.store.deliveries import BEFORE_ALL, Look, Place
from notifier.worker.resume import LATE, Resume

NOW = datetime(2026, 1, 1, tzinfo=UTC)
KINDS = ["a", "b"]
OTHERS = Place(NOW - LATE, UUID(int=0))  # where a kind begins of which a look found nothing


def place(seconds_ago: float, number: int = 1) -> Place:
    return Place(NOW - timedelta(seconds=seconds_ago), UUID(int=number))


def a_claim(kind: str, at: Place) -> Any:
    return SimpleNamespace(kind=kind, due_again_at=at.due_at.timestamp(), id=at.id)


@pytest.fixture
def resume() -> Resume:
    return Resume()


def see(resume: Resume, due: Mapping[str, Place]) -> None:
    resume.see(Look([], [], due, NOW))


def test_before_any_look_a_claim_begins_at_the_very_beginning(resume: Resume) -> None:
    assert resume.places(KINDS) == [BEFORE_ALL, BEFORE_ALL]
    resume.learn([], 10)
    assert resume.places(KINDS) == [BEFORE_ALL, BEFORE_ALL]


def test_it_begins_at_the_first_row_that_a_look_found(resume: Resume) -> None:
    see(resume, {"a": place(3_600)})
    assert resume.places(KINDS) == [place(3_600), OTHERS]
    assert not resume.is_unsure


def test_what_was_due_a_moment_before_the_look_and_comes_after_it_is_not_left_out(resume: Resume) -> None:
    see(resume, {"a": place(0.1)})
    assert resume.places(KINDS) == [OTHERS, OTHERS]
    assert place(0.9, number=0) > OTHERS


def test_a_full_claim_is_followed_behind_its_last_row_of_each_kind(resume: Resume) -> None:
    see(resume, {"a": place(60), "b": place(60)})
    claims = [a_claim("a@1", place(60, 7)), a_claim("b", place(30)), a_claim("a@2", place(60, 9))]
    resume.learn(claims, 3)
    assert resume.places(KINDS) == [place(60, 9), place(30)]
    assert resume.is_unsure


def test_it_never_goes_back_but_by_a_look(resume: Resume) -> None:
    see(resume, {"a": place(60)})
    resume.learn([a_claim("a", place(20))], 1)
    resume.learn([a_claim("a", place(40))], 1)
    assert resume.places(["a"]) == [place(20)]
    see(resume, {"a": place(40)})
    assert resume.places(["a"]) == [place(40)]


@pytest.mark.parametrize("is_behind", [False, True])
def test_a_claim_that_was_not_full_took_all_there_was(resume: Resume, is_behind: bool) -> None:
    see(resume, {"a": place(60), "b": place(60)})
    if is_behind:
        resume.learn([a_claim("a", place(0))], 1)
    resume.learn([a_claim("a", place(50))], 2)
    assert resume.places(KINDS) == [OTHERS, OTHERS]
    assert resume.is_unsure
