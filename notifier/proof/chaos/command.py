"""The command line of the chaos run: what is asked for, one run or many, and how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json as json_text
import logging
import secrets
import shutil
import sys
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, TypeVar

import structlog
import typer
from rich.console import Console
from rich.text import Text

from notifier.domain.errors import NotifierError
from notifier.proof.chaos import leftovers
from notifier.proof.chaos import recovery as takeover
from notifier.proof.chaos.families import ALL, by_name, choose, named, teach
from notifier.proof.chaos.report import document, report, summary
from notifier.proof.chaos.run import PATIENCE_S, Outcome, Wish, run
from notifier.proof.chaos.screen import Screen
from notifier.proof.chaos.stage import WINDOW_S
from notifier.supervisor.conductor import Signals

EXIT_VIOLATION = 1
EXIT_BY_SIGNAL = 128
SEED_MAX = 10**6
PROGRAM = "make chaos ARGS="

T = TypeVar("T")

app = typer.Typer(add_completion=False, rich_markup_mode="markdown", pretty_exceptions_enable=False)


@app.command()
def chaos(
    minutes: Annotated[float, typer.Option(min=0.05, max=600, help="How long load and faults go on.")] = 2.0,
    users: Annotated[int, typer.Option(min=1, max=20_000, help="How many sign up.")] = 400,
    seed: Annotated[
        int | None, typer.Option(min=0, help="The same number is the same load and the same faults. Default: drawn.")
    ] = None,
    faults: Annotated[
        str,
        typer.Option(
            metavar="LIST",
            help="What is broken: families with commas, `all`, `-name` to leave one out; `help` names them.",
        ),
    ] = "all",
    keyless: Annotated[bool, typer.Option("--keyless", help="A provider that knows no keys.")] = False,
    window: Annotated[
        float, typer.Option(min=1, max=WINDOW_S, help="Seconds for which the provider knows a key, and is taken to.")
    ] = WINDOW_S,
    batch: Annotated[int, typer.Option(min=1, max=100, metavar="N", help="Up to N mails in one call.")] = 1,
    seeds: Annotated[int, typer.Option(min=1, help="So many runs, each with the next seed; one table at the end.")] = 1,
    soak: Annotated[bool, typer.Option("--soak", help="Run after run, until a violation or Ctrl-C.")] = False,
    recovery: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Instead: kill N workers in mid-send, and measure who takes over when."),
    ] = None,
    json: Annotated[Path | None, typer.Option(metavar="FILE", help="The figures for programs.")] = None,
    history: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Keep what was seen. Default: ./chaos-SEED.jsonl, after a violation only."),
    ] = None,
    patience: Annotated[
        float, typer.Option(min=1, help="Seconds after the last fault in which all must come to rest.")
    ] = PATIENCE_S,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the run's files and logs.")] = False,
) -> None:
    """Load an installation of its own while everything is killed, frozen, cut off and lied to; then count every mail.

    A checker judges the run by what was seen from outside: nothing lost, nothing sent twice, nothing after a cancel.
    Exit 0 when all of it held, 1 when not (also when it did not come to rest in time, or could not be broken as was
    asked), 2 for a wrong command line, 130 after Ctrl-C. It heeds no NOTIFIER_ setting, and leaves nothing behind.
    """
    if faults == "help":
        teach(Console())
        return
    if history is not None and (soak or seeds > 1 or recovery):
        raise typer.BadParameter(
            "one history is of one run: leave out --seeds, --soak, --recovery", param_hint="--history"
        )
    if recovery and (soak or seeds > 1):
        raise typer.BadParameter("it is another kind of run: leave out --seeds, --soak", param_hint="--recovery")
    if batch > 1 and keyless:
        raise typer.BadParameter("without keys nothing goes in batches: leave out --keyless", param_hint="--batch")
    if soak and seeds > 1:
        raise typer.BadParameter("it takes seed after seed by itself: leave out --seeds", param_hint="--soak")
    for option, file in (("--json", json), ("--history", history)):
        if file is not None and file.is_dir():
            raise typer.BadParameter(f"{file} is a directory; name a file", param_hint=option)
        if file is not None and not file.absolute().parent.is_dir():
            raise typer.BadParameter(f"there is no directory {file.parent}", param_hint=option)
    wish = Wish(
        seed=secrets.randbelow(SEED_MAX) if seed is None else seed,
        seconds=60 * minutes,
        users=users,
        families=choose(faults),
        has_keys=not keyless,
        window_s=window,
        batch_max=batch,
        patience_s=patience,
        keep=keep,
        by_name=by_name(faults),
    )
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))  # the screen tells
    showing = _Showing(Console(highlight=False), json, history)
    if recovery is not None:
        raise typer.Exit(asyncio.run(showing.show_recovery(recovery, wish.seed)))
    raise typer.Exit(asyncio.run(showing.show(wish, None if soak else seeds)))


@dataclass(slots=True)
class _Showing:
    """One call of the command."""

    console: Console
    json: Path | None
    history: Path | None
    outcomes: list[Outcome] = field(default_factory=list)
    documents: list[dict[str, Any]] = field(default_factory=list)
    broken_off: list[int] = field(default_factory=list)  # seeds

    async def show(self, wish: Wish, runs: int | None) -> int:
        """Run `runs` seeds, or until a violation when it is None; gives the exit code."""
        signals = Signals()
        with signals.listening():
            for number in itertools.count() if runs is None else range(runs):
                if not await signals.unless_stopped(self._one(replace(wish, seed=wish.seed + number))):
                    break
                if runs is None and not self.documents[-1]["ok"]:
                    break
        good = all(document["ok"] for document in self.documents)
        if len(self.documents) > 1:
            summary(self.console, self.outcomes, self.broken_off)
        if self.documents:
            self._write(self.documents[0] if runs == 1 else {"ok": good, "runs": self.documents})
        if signals.first is not None:
            self.console.print("Stopped; everything is put away.")
            return EXIT_BY_SIGNAL + signals.first
        return 0 if good else EXIT_VIOLATION

    async def _one(self, wish: Wish) -> bool:
        try:
            await self._run(wish)
        except Exception as error:  # noqa: BLE001 - the top of one run; the next seeds have theirs
            self._break_off(wish, error)
        return True

    async def _run(self, wish: Wish) -> None:
        screen = Screen(self.console)
        with _history_file(self.history, wish.seed) as file:
            with screen.moving(f"Seed {wish.seed}: setting up {wish.users} users' {wish.seconds:g} s of trouble"):
                outcome = await run(wish, file, screen)
            kept = self.history
            if kept is None and not outcome.is_good:
                kept = _keep(file, wish.seed)
        again = command_line(wish)
        report(self.console, outcome, again, kept)
        self.outcomes.append(outcome)
        self.documents.append(document(outcome, again, kept))

    def _break_off(self, wish: Wish, error: Exception) -> None:
        """Say why a run came to no verdict: whatever it was, nothing has been shown."""
        lines = [*str(error).splitlines(), *getattr(error, "__notes__", ())]
        if not isinstance(error, NotifierError):
            lines = traceback.format_exception(error)  # the notes stand in it
        self.console.print(Text(f"Seed {wish.seed} broke off, and shows nothing:", style="bold red"))
        for line in lines:
            self.console.print(Text(line.rstrip()), soft_wrap=True)
        again = command_line(wish)
        self.console.print(Text(f"Again: {again}", style="dim"), soft_wrap=True)
        self.broken_off.append(wish.seed)
        words = "\n".join([f"{type(error).__name__}: {error}", *getattr(error, "__notes__", ())])
        self.documents.append({"ok": False, "seed": wish.seed, "broke_off": words, "command": again})

    async def show_recovery(self, kills: int, seed: int) -> int:
        """Kill so many workers; gives the exit code."""
        signals, screen = Signals(), Screen(self.console)
        with signals.listening(), _history_file(None, seed) as file:

            async def measure() -> takeover.Recovery:
                with screen.moving(f"Killing {kills} workers in mid-send"):
                    return await takeover.measure(kills, seed, file, screen)

            found = await signals.unless_stopped(measure())
        if found is None:
            self.console.print("Stopped; everything is put away.")
            return EXIT_BY_SIGNAL + (signals.first or 0)
        takeover.report(self.console, found)
        self.console.print(Text(f'Again: {PROGRAM}"--recovery {kills} --seed {seed}"', style="dim"), soft_wrap=True)
        self._write(takeover.document(found))
        return 0 if found.is_good else EXIT_VIOLATION

    def _write(self, content: dict[str, Any]) -> None:
        if self.json is not None:
            self.json.write_text(json_text.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


@contextlib.contextmanager
def _history_file(wanted: Path | None, seed: int) -> Iterator[Path]:
    """Where the history goes: where it is wanted, or a file that is gone afterwards unless somebody moved it.

    It stays when something goes wrong, which is more than being stopped; the error's notes say where. It is in a run's
    directory, so that the next run removes what a killed one left.
    """
    if wanted is not None:
        yield wanted
        return
    folder = leftovers.make_folder()
    file = folder / "history.jsonl"
    try:
        yield file
    except Exception as error:
        if file.exists():
            error.add_note(f"History: {_keep(file, seed)}")
        raise
    finally:
        leftovers.clear(folder)


def _keep(file: Path, seed: int) -> Path:
    """Move a history to where whoever ran it finds it; an earlier one of the same seed stays."""
    names = itertools.chain((f"chaos-{seed}.jsonl",), (f"chaos-{seed}-{number}.jsonl" for number in itertools.count(2)))
    kept = next(path for path in map(Path, names) if not path.exists())
    shutil.move(file, kept)
    return kept


def command_line(wish: Wish) -> str:
    """How to ask for this run again."""
    said = [f"--minutes {wish.seconds / 60:.12g}", f"--users {wish.users}", f"--seed {wish.seed}"]
    if (families := named(wish.families)) != ALL:
        said.append(f"--faults {families}")
    if not wish.has_keys:
        said.append("--keyless")
    if wish.window_s != WINDOW_S:
        said.append(f"--window {wish.window_s:g}")
    if wish.batch_max > 1:
        said.append(f"--batch {wish.batch_max}")
    if wish.patience_s != PATIENCE_S:
        said.append(f"--patience {wish.patience_s:.12g}")
    if wish.keep:
        said.append("--keep")
    return f'{PROGRAM}"{" ".join(said)}"'


def main() -> None:
    """Run the command line; what went wrong with the machine is one message, not a traceback."""
    try:
        app(prog_name="kill_pod_mid_send.py")
    except NotifierError as error:
        for line in [*str(error).splitlines(), *getattr(error, "__notes__", ())]:
            typer.echo(f"chaos: {line}", err=True)
        sys.exit(EXIT_VIOLATION)
    except KeyboardInterrupt:  # before anybody listened for it
        sys.exit(EXIT_BY_SIGNAL + 2)
