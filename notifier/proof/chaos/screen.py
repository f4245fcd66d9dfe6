"""What is seen while it runs: one moving line on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.status import Status
from rich.text import Text

PLAIN_EVERY_S = 15.0
FAULTS_SHOWN = 3
SPINNER_CELLS = 3


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a run is. `mails` is None while the provider does not answer."""

    left_s: float
    users: int
    mails: int | None
    faults: Sequence[str]


class Screen:
    """Whoever was to read it may have gone, which stops nothing."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._status: Status | None = None
        self._said = 0.0

    @contextlib.contextmanager
    def moving(self, what: str) -> Iterator[None]:
        """Keep the moving line while this goes on."""
        self.say(what)
        if not self._console.is_terminal:
            yield
            return
        with self._console.status(what) as self._status:
            try:
                yield
            finally:
                self._status = None

    def say(self, what: str) -> None:
        """Print a line, unless the moving one says it."""
        if not self._console.is_terminal:
            with contextlib.suppress(OSError):
                self._console.print(Text(what), soft_wrap=True)

    def show(self, progress: Progress) -> None:
        """Say how far a run is."""
        self.tell(told(progress))

    def tell(self, text: str) -> None:
        """Put this in the moving line; where nothing moves, only now and then."""
        if self._status is not None:
            line = Text(text)
            line.truncate(self._console.width - SPINNER_CELLS, overflow="ellipsis")  # one that folds would jump
            self._status.update(line)
        elif time.monotonic() - self._said >= PLAIN_EVERY_S:
            self._said = time.monotonic()
            self.say(text)


def told(progress: Progress) -> str:
    """Progress as one line."""
    mails = "the provider is away" if progress.mails is None else f"{progress.mails} mails"
    left = f"{progress.left_s:.0f} s left" if progress.left_s else "coming to rest"
    parts = [left, f"{progress.users} users", mails]
    if progress.faults:
        shown = ", ".join(progress.faults[:FAULTS_SHOWN])
        more = len(progress.faults) - FAULTS_SHOWN
        parts.append(f"now {shown}{f' and {more} more' if more > 0 else ''}")
    return " · ".join(parts)
