"""What `notifier status` calls trouble."""

from __future__ import annotations

import json

import pytest

from notifier.domain.errors import NotReady
from notifier.settings import Settings
from notifier.status import show, troubles

QUIET = {"scheduled": 0, "pending": 0, "sending": 0, "uncertain": 0}
ALL = {"api", "worker", "scheduler"}


@pytest.mark.parametrize(
    ("owed", "roles", "on", "words"),
    [
        ({}, set(), set(), None),
        ({"pending": 2, "sending": 1}, ALL, set(), None),
        ({"pending": 2, "sending": 1}, ALL - {"worker"}, set(), "3 are owed and no worker lives"),
        ({"pending": 2}, ALL - {"worker"}, {"pause"}, None),
        ({"scheduled": 5}, ALL - {"scheduler"}, set(), "5 are scheduled and no scheduler lives"),
        ({"uncertain": 1}, ALL, set(), "1 uncertain"),
    ],
)
def test_trouble_is_what_nobody_works_on(owed: dict[str, int], roles: set[str], on: set[str], words: str) -> None:
    found = troubles({**QUIET, **owed}, roles, on, 0, 0)
    assert [words in trouble for trouble in found] == ([True] if words else [])


def test_what_must_never_be_is_trouble() -> None:
    assert len(troubles(QUIET, ALL, set(), 1, 2)) == 2


def test_a_database_that_does_not_answer_is_said_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    away = Settings(database_url="postgresql://u:secret@127.0.0.1:1/notifier")
    with pytest.raises(NotReady, match="cannot reach PostgreSQL"):
        show(away, json=False)
    assert show(away, json=True) == 1
    said = json.loads(capsys.readouterr().out)
    assert said["ok"] is False
    assert "secret" not in str(said)
