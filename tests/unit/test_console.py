"""What commands print: times in words, columns that fold and never cut."""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta

import pytest
from rich.console import Console
from rich.text import Text

from notifier.console import Columns, ago, clean, moment, span, until

NOW = datetime(2026, 11, 29, 10, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0.0 s"),
        (0.34, "0.3 s"),
        (1, "1 s"),
        (59.7, "1 min"),
        (3_661, "1 h 1 min"),
        (2 * 86_400 + 23 * 3_600 + 59, "2 d 23 h"),
        (86_400 * 40 + 60, "40 d"),
    ],
)
def test_a_length_of_time_is_its_two_largest_units(seconds: float, words: str) -> None:
    assert span(seconds) == words


def test_times_are_told_in_utc_and_by_their_distance() -> None:
    assert moment("2026-11-29T11:00:01.5+01:00") == "2026-11-29 10:00:01 UTC"
    assert moment(None) == "-"
    later = (NOW + timedelta(hours=3)).isoformat()
    assert until(later, NOW) == "in 3 h"
    assert until(NOW.isoformat(), NOW + timedelta(minutes=2)) == "2 min ago"
    assert ago(later, NOW) == "now"  # another machine's clock is ahead


def test_nothing_a_terminal_could_obey_gets_through() -> None:
    assert clean("a\x1b[2Jb\r\nc\u2028d\x9b") == "a?[2Jb??c?d?"


def shown(width: int, *, terminal: bool, pages: list[list[list[str | Text]]]) -> list[str]:
    to = Console(
        file=io.StringIO(),
        width=width,
        force_terminal=terminal,
        no_color=True,
        soft_wrap=True,
        highlight=False,
        color_system=None,
    )
    table = Columns(to, "id", "state", "user")
    for rows in pages:
        table.add(rows)
    assert isinstance(to.file, io.StringIO)
    return to.file.getvalue().splitlines()


ROW: list[str | Text] = ["01a228e6-0f2f-700f", Text("sent", style="green"), "somebody"]


def test_columns_are_aligned_and_the_head_comes_once() -> None:
    assert shown(80, terminal=True, pages=[[ROW], [], [["x", "scheduled", "ü"]]]) == [
        "id                  state  user",
        "01a228e6-0f2f-700f  sent   somebody",
        "x                   scheduled  ü",
    ]


def test_a_narrow_terminal_folds_and_a_pipe_does_not() -> None:
    assert shown(28, terminal=True, pages=[[ROW]]) == [
        "id                  state",
        "    user",
        "01a228e6-0f2f-700f  sent",
        "    somebody",
    ]
    assert shown(10, terminal=False, pages=[[ROW]])[1] == "01a228e6-0f2f-700f  sent   somebody"


def test_wide_characters_count_as_the_terminal_shows_them() -> None:
    assert shown(80, terminal=True, pages=[[["日本", "sent", "u"]]])[0] == "id    state  user"


def test_nothing_is_printed_for_no_rows() -> None:
    assert shown(80, terminal=True, pages=[[]]) == []
