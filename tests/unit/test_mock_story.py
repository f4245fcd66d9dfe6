"""What became of calls, in words; and a mail's header lines."""

from __future__ import annotations

import pytest

from providers.mock.records import AttemptRecord, Caller
from providers.mock.source import header_lines
from providers.mock.story import BAD, GOOD, PLAIN, mood, outcome, story, who


def call(verdict: str, status: int | None = 200, *, answered: bool = True, **caller: object) -> AttemptRecord:
    return AttemptRecord("k", Caller(**caller), (), "", verdict, status, answered=answered)


@pytest.mark.parametrize(
    ("attempt", "said", "felt"),
    [
        (call("accepted"), "accepted", GOOD),
        (call("accepted", None, answered=False), "the connection was cut before the answer", BAD),
        (call("accepted", 500), "accepted, but answered with 500: the caller cannot know", BAD),
        (call("duplicate", 409), "refused as duplicate", PLAIN),
        (call("dropped"), "answered as if new; no second mail", PLAIN),
        (call("reset", None, answered=False), "connection cut; nothing taken", BAD),
        (call("hung", None, answered=False), "left without an answer; nothing taken", BAD),
        (call("never_heard_of"), "never heard of", BAD),
    ],
)
def test_an_outcome_in_words(attempt: AttemptRecord, said: str, felt: str) -> None:
    assert said in outcome(attempt)
    assert mood(attempt) == felt


def test_who_called_and_whether_for_the_first_time() -> None:
    assert who(call("accepted", worker="w-1", generation=2)) == "worker w-1, generation 2,"
    assert who(call("accepted", worker="w-1")) == "worker w-1"
    assert who(call("accepted")) == "a client without a name"
    calls = [call("failed", 503), call("accepted")]
    assert [step.did for step in story(calls, whole=True)] == ["sent it", "tried again"]
    assert [step.did for step in story(calls, whole=False)] == ["tried again", "tried again"]


def test_header_lines_are_joined_and_read_where_they_are_encoded() -> None:
    source = b"Subject: =?utf-8?q?=C3=BC?=\r\n =?utf-8?q?x?=\r\nX-Odd: =?none?q?x?=\r\nX: a:b\r\n\r\nBody: no"
    assert header_lines(source, encoded=True) == [("Subject", "üx"), ("X-Odd", "=?none?q?x?="), ("X", "a:b")]
    assert header_lines(source, encoded=False)[0] == ("Subject", "=?utf-8?q?=C3=BC?= =?utf-8?q?x?=")
    assert header_lines(b"", encoded=True) == []
