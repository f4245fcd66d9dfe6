"""What commands print: aligned columns, times and words, whole for a pipe and folded for a narrow terminal."""

from __future__ import annotations

import json
import sys
import unicodedata
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

GAP = 2
INDENT = 4
STYLES = {
    "sent": "green",
    "pending": "yellow",
    "sending": "yellow",
    "failed": "bold red",
    "uncertain": "bold red",
    "scheduled": "cyan",
    "canceled": "dim",
    "skipped": "dim",
}

Cell = str | Text


def console(*, to_stderr: bool = False) -> Console:
    """Give a console that never cuts or wraps a line itself: what is copied from it is what was there."""
    return Console(stderr=to_stderr, soft_wrap=True, highlight=False, markup=False, emoji=False)


def say_json(document: Any, *, indent: int | None = None) -> None:
    """Print one document; on one line unless indented, so that many make NDJSON."""
    sys.stdout.write(json.dumps(document, indent=indent) + "\n")
    if indent is None:
        sys.stdout.flush()  # whoever reads line by line waits for it


class Columns:
    """A table printed as it comes: widths are those of the first rows, later ones may only widen it.

    On a terminal too narrow for a row, columns that do not fit go to a second line below it.
    """

    def __init__(self, to: Console, *names: str) -> None:
        self._to = to
        self._names = names
        self._widths = [0] * len(names)
        self._begun = False

    def add(self, rows: Sequence[Sequence[Cell]]) -> None:
        """Print some rows, and the names above the first of them."""
        cells = [[_clean(cell) for cell in row] for row in rows]
        if not cells:
            return
        head = [Text(name, style="bold") for name in self._names]
        for row in [head, *cells]:
            self._widths = [max(width, cell_len(cell.plain)) for width, cell in zip(self._widths, row, strict=True)]
        lines = self._fold()
        for row in cells if self._begun else [head, *cells]:
            for number, line in enumerate(lines):
                self._to.print(self._line([row[column] for column in line], line, INDENT if number else 0))
        self._begun = True

    def _fold(self) -> list[list[int]]:
        """Which columns stand in which line; a pipe is endlessly wide."""
        room = self._to.width if self._to.is_terminal else sys.maxsize
        lines: list[list[int]] = [[]]
        used = 0
        for column, width in enumerate(self._widths):
            if lines[-1] and used + width > room:
                lines.append([])
                used = INDENT
            lines[-1].append(column)
            used += width + GAP
        return lines

    def _line(self, cells: Sequence[Text], columns: Sequence[int], indent: int) -> Text:
        line = Text(" " * indent)
        for cell, column in zip(cells, columns, strict=True):
            line.append_text(cell)
            line.append(" " * (self._widths[column] - cell_len(cell.plain) + GAP))
        line.rstrip()
        return line


def state_text(state: str) -> Text:
    """A state in its colour."""
    return Text(state, style=STYLES.get(state, ""))


def moment(text: str | datetime | None) -> str:
    """A time in UTC with seconds; a dash for none."""
    if text is None:
        return "-"
    at = datetime.fromisoformat(text) if isinstance(text, str) else text
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def span(seconds: float) -> str:
    """A length of time in its two largest units: `2 d 23 h`, `4 min 10 s`, `0.3 s`."""
    if seconds < 1:
        return f"{seconds:.1f} s"
    left, parts = round(seconds), []
    for name, size in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        number, left = divmod(left, size)
        parts.append((number, name))
    largest = next(index for index, (number, _) in enumerate(parts) if number)
    return " ".join(f"{number} {name}" for number, name in parts[largest : largest + 2] if number)


def ago(text: str, now: datetime) -> str:
    """How long ago a time was; clocks of two machines differ, so one a little ahead is now."""
    seconds = (now - datetime.fromisoformat(text)).total_seconds()
    return "now" if seconds < 1 else f"{span(seconds)} ago"


def until(text: str, now: datetime) -> str:
    """`in 2 d 23 h`, or how long ago it was."""
    seconds = (datetime.fromisoformat(text) - now).total_seconds()
    return f"in {span(seconds)}" if seconds >= 1 else ago(text, now)


def _clean(cell: Cell) -> Text:
    """Without line breaks and control characters, which would move a terminal's cursor."""
    text = cell.copy() if isinstance(cell, Text) else Text(cell)
    text.plain = clean(text.plain)
    return text


def clean(text: str) -> str:
    """The text with a question mark for each character that a terminal could take for a command."""
    return "".join("?" if unicodedata.category(char) in {"Cc", "Cs", "Zl", "Zp"} else char for char in text)
