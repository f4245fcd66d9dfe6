"""Which answer an error is: status, pointer, headers; and nothing of a bug's own words."""

from __future__ import annotations

import json

import asyncpg
import pytest

from notifier.domain.errors import Busy, Invalid, KeyReused, Moved, NotFound, NotReady, WrongState
from notifier.http.problems import PATH, PROBLEMS, Problem, problem_of


@pytest.mark.parametrize(
    ("error", "status", "slug"),
    [
        (Problem("too-large", "x"), 413, "too-large"),
        (Invalid("x", pointer="/occurred_at"), 422, "invalid"),
        (Invalid("x"), 422, "invalid"),
        (KeyReused("evt_1"), 422, "idempotency-key-reused"),
        (NotFound("x"), 404, "not-found"),
        (WrongState("x", state="sent"), 409, "wrong-state"),
        (Moved("x", generation=3), 412, "moved"),
        (Busy("x", retry_after_s=10), 503, "busy"),
        (asyncpg.DeadlockDetectedError("x"), 503, "busy"),
        (asyncpg.AdminShutdownError("x"), 503, "busy"),
        (ConnectionRefusedError(), 503, "busy"),
        (TimeoutError(), 503, "busy"),
        (NotReady("x"), 500, "internal"),
        (asyncpg.UndefinedTableError("x"), 500, "internal"),
        (ZeroDivisionError("x"), 500, "internal"),
    ],
)
def test_every_error_is_one_problem(error: Exception, status: int, slug: str) -> None:
    problem = problem_of(error)
    response = problem.response()
    document = json.loads(response.body)
    assert (problem.status, response.status, document["status"]) == (status, status, status)
    assert document["type"] == PATH + slug
    assert document["title"] == PROBLEMS[slug][1]
    assert response.content_type == "application/problem+json"
    assert ("Retry-After" in response.headers) == (status == 503)


def test_how_long_to_wait_is_passed_on() -> None:
    assert problem_of(Busy("x", retry_after_s=10)).headers["Retry-After"] == "10"


def test_a_pointer_is_passed_on_and_none_is_made_up() -> None:
    assert problem_of(Invalid("is wrong", pointer="/a")).body()["errors"] == [{"pointer": "/a", "detail": "is wrong"}]
    assert "errors" not in problem_of(Invalid("is wrong")).body()


def test_what_the_caller_must_know_is_in_the_answer() -> None:
    assert "'evt_1'" in problem_of(KeyReused("evt_1")).detail
    assert problem_of(WrongState("it is sent", state="sent")).body()["state"] == "sent"


@pytest.mark.parametrize("error", [NotReady("the password is geheim"), ZeroDivisionError("geheim"), OSError("geheim")])
def test_our_own_words_stay_with_us(error: Exception) -> None:
    assert "geheim" not in json.dumps(problem_of(error).body())
