"""What the demo shows: lines as things happen, counters below them on a terminal, and one table at the end."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from notifier.demo.judge import FOLLOWUP, ONBOARDING, Record, Row, Told
from notifier.demo.stage import Stage

REFRESH_S = 0.1
READING_S = 1.5
ACTS = 6
NAMED_MAX = 3


class Screen:
    """Tells the story; whoever was to read it may have gone, which must stop nothing."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._act = 0
        self._began = time.monotonic()
        self._status = Spinner("dots", text="")
        self._numbers = Text()
        self._live = Live(console=console, auto_refresh=False, transient=True, get_renderable=self._below)

    @contextlib.asynccontextmanager
    async def live(self) -> AsyncIterator[None]:
        """Keep counters below the lines, on a terminal."""
        if not self._console.is_terminal:
            yield
            return
        with self._live:
            moving = asyncio.create_task(self._move())
            try:
                yield
            finally:
                moving.cancel()

    @property
    def reading_s(self) -> float:
        """How long somebody needs to read an act; nobody is waited for elsewhere."""
        return READING_S if self._console.is_terminal else 0.0

    def begin(self, people: int) -> None:
        """Say what is going to be shown."""
        self._print(Text("\nEvery mail once, whatever breaks", style="bold"))
        self._print(
            f"{people} people sign up: each is owed a welcome mail now, and a follow-up in three days unless they "
            "log in. Meanwhile workers are killed and frozen, and Redis hangs."
        )
        self._status.update(text="Starting PostgreSQL, Redis, API, scheduler, workers and a mock provider")

    def is_up(self, stage: Stage) -> None:
        """Everything answers; say where to look."""
        self._print(f"\nWatch the mails arrive: {stage.facts['mock']}")
        self._status.update(text="")

    def act(self, title: str) -> None:
        """The next act begins."""
        self._act += 1
        self._status.update(text=f"{self._act} of {ACTS}: {title}")
        self._print(Text(f"\n{self._act}. {title}", style="bold"))

    def say(self, what: str) -> None:
        """One thing happened."""
        at = f"{time.monotonic() - self._began:4.1f} s"
        if not self._console.is_terminal:
            self._print(f"{at}  {what}")
            return
        line = Table.grid(padding=(0, 2, 0, 0))  # with what does not fit below what does
        line.add_column(style="dim", no_wrap=True)
        line.add_column()
        line.add_row(at, Text(what))
        self._print(line)

    def count(self, told: Told, record: Record) -> None:
        """Set the counters."""
        kinds = Counter(message["kind"] for message in record.messages)
        refused = sum(call["verdict"] == "duplicate" for call in record.attempts)
        self._numbers = Text.assemble(
            *_number("people", len(told.people)),
            *_number("welcome mails", kinds[ONBOARDING]),
            *_number("follow-ups", kinds[FOLLOWUP]),
            *_number("canceled", len(told.canceled)),
            *_number("copies refused", refused),
        )

    def end(self, rows: Sequence[Row], missing: str | None) -> None:
        """The table, and what it says in one sentence."""
        number = {row.name: row.found for row in rows}
        self._print(Text("\nThe count: what the service answered, against the provider's own record", style="bold"))
        self._print(Padding(_table(rows), (1, 0)))
        if missing:
            self._print(Text(f"It did not come to its end: {missing}. With --keep its logs stay.", style="bold red"))
        elif wrong := [row.what.strip() for row in rows if not row.ok]:
            self._print(Text(f"Not what it must be: {', '.join(wrong)}.", style="bold red"))
        else:
            self._print(
                Text(
                    f"Everybody got what they were owed, once: {number['onboarding']} welcome mails, "
                    f"{number['followups']} follow-ups, and none for the {number['canceled']} who logged in in time; "
                    "with a worker killed in the middle of a send, one that came back late, and no Redis for a while.",
                    style="bold green",
                )
            )

    def goes_on(self, stage: Stage) -> None:
        """Say what is left running, and where."""
        facts = stage.facts
        self._print(f"\nIt all goes on until Ctrl-C: inbox {facts['mock']}, API {facts['api']}/docs")
        self._print(f"Look at it with: NOTIFIER_DATA_DIR={stage.folder / 'data'} notifier status")
        self._print(f"Its files are kept afterwards: {stage.folder}")

    def _print(self, what: RenderableType) -> None:
        with contextlib.suppress(OSError, SystemExit):  # the library leaves the process when its pipe is broken
            self._console.print(what, soft_wrap=not self._console.is_terminal)

    def _below(self) -> RenderableType:
        return Padding(Group(self._status, self._numbers), (1, 0, 0, 0))

    async def _move(self) -> None:
        while True:
            with contextlib.suppress(OSError):
                self._live.refresh()
            await asyncio.sleep(REFRESH_S)


def _number(what: str, number: int) -> Iterator[tuple[str, str]]:
    yield str(number), "bold"
    yield f" {what}   ", "dim"


def _table(rows: Sequence[Row]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("What was counted")
    table.add_column("Number", justify="right")
    table.add_column("Must be", justify="right")
    table.add_column("")
    table.add_column("Read from", style="dim", no_wrap=True)
    for row in rows:
        mark = Text("✓", style="green") if row.ok else Text("✗", style="bold red")
        what = Text(row.what, style="" if row.ok else "bold red")
        if row.wrong:
            what.append("\n" + ", ".join(row.wrong[:NAMED_MAX]) + (", …" if len(row.wrong) > NAMED_MAX else ""))
        table.add_row(what, str(row.found), row.must_be, mark, row.source)
    return table
