"""The line that tells how far a run is."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from rich.text import Text

from notifier.proof.chaos.screen import Progress, Screen, told


@pytest.mark.parametrize(
    ("progress", "line"),
    [
        (Progress(61.4, 12, 20, ()), "61 s left · 12 users · 20 mails"),
        (
            Progress(0, 12, None, ("redis: stopped",)),
            "coming to rest · 12 users · the provider is away · now redis: stopped",
        ),
        (Progress(1, 0, 0, tuple("abcde")), "1 s left · 0 users · 0 mails · now a, b, c and 2 more"),
    ],
)
def test_it_says_what_is_left_done_and_broken(progress: Progress, line: str) -> None:
    assert told(progress) == line


def test_where_nothing_moves_a_line_comes_now_and_then_and_without_colours() -> None:
    out = io.StringIO()
    screen = Screen(Console(file=out, width=40))
    with screen.moving("Setting up"):
        for number in range(5):
            screen.show(Progress(60, number, 0, ()))
    assert out.getvalue().splitlines() == ["Setting up", "60 s left · 0 users · 0 mails"]


def test_on_a_terminal_the_line_fits_it() -> None:
    out = io.StringIO()
    screen = Screen(Console(file=out, width=40, force_terminal=True))
    with screen.moving("Setting up"):
        screen.show(Progress(60, 1, 0, ("network: " + "x" * 100,)))
    assert "60 s left · 1 users · 0 mails · now …" in Text.from_ansi(out.getvalue()).plain
