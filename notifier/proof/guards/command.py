"""`make guards`: take each guard out of a scratch copy, see its test fail, and say so in a table."""

from __future__ import annotations

import dataclasses
import json
import signal
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Annotated, NoReturn

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from notifier.proof.guards.catalog import GUARDS
from notifier.proof.guards.guard import Guard, Moved
from notifier.proof.guards.scratch import Said, Scratch, open_scratch

ROOT = Path(__file__).resolve().parents[3]
CHAOS_TRIES = 3
_console = Console()
_app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@dataclass(frozen=True, slots=True)
class Trial:
    """One guard taken out: what was run, whether it noticed, and in what words."""

    guard: str
    files: tuple[str, ...]
    run: tuple[str, ...]
    caught: bool
    words: str
    seconds: float


def main() -> None:
    """Run the command; exit 0 when every change was caught, 1 when one was not, 2 for a typing error."""
    signal.signal(signal.SIGTERM, _interrupt)
    _app()


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


@_app.command()
def take_guards_out(
    only: Annotated[list[str], typer.Option(help="A guard by its name, or how its name begins; repeatable.")] = [],  # noqa: B006 - typer reads the default, nobody changes it
    show: Annotated[bool, typer.Option("--list", help="List the guards, and run nothing.")] = False,
    baseline: Annotated[bool, typer.Option("--baseline", help="First see the same tests pass, guards in.")] = False,
    chaos: Annotated[
        bool,
        typer.Option("--chaos", help="Run chaos instead of tests, for the guards whose absence shows from outside."),
    ] = False,
    report: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the result there, too.")] = None,
) -> None:
    """Take each guard out of a scratch copy of the project, and see the named test fail.

    Example: scripts/take_guards_out.py --only "settle: generation" --baseline
    """
    guards = _chosen(only, chaos=chaos)
    if show:
        _console.print(_listed(guards))
        return
    if not (ROOT / "tests").is_dir():
        _refuse(f"the tests are not here ({ROOT}): this needs a checkout of the project, not an installed package")
    begun = time.monotonic()
    try:
        with open_scratch(ROOT, Path(tempfile.mkdtemp(prefix="notifier-guards-"))) as scratch:
            broken = _baseline(scratch, guards, chaos=chaos) if baseline else {}
            trials = list(_take_out(scratch, guards, chaos=chaos))
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    _console.print(_table(trials))
    for test, said in broken.items():
        _console.print(Text(f"fails with every guard in its place: {test}: {said.words}", style="bold red"))
    caught = sum(trial.caught for trial in trials)
    verdict = f"{len(trials)} guards taken out one by one, {caught} caught, in {time.monotonic() - begun:.0f} s"
    well = caught == len(trials) and not broken
    _console.print(Text(verdict, style="bold green" if well else "bold red"))
    if report is not None:
        document = {"guards": [dataclasses.asdict(trial) for trial in trials], "baseline_failed": sorted(broken)}
        report.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    raise typer.Exit(0 if well else 1)


def _chosen(only: Sequence[str], *, chaos: bool) -> list[Guard]:
    for name in only:
        if not any(guard.name.startswith(name) for guard in GUARDS):
            _refuse(f"no guard's name begins with {name!r}; --list shows all of them")
    guards = [guard for guard in GUARDS if not only or any(guard.name.startswith(name) for name in only)]
    if chaos:
        guards = [guard for guard in guards if guard.chaos is not None]
        if not guards:
            _refuse("the absence of none of these shows from outside; --chaos --list shows which do")
    return guards


def _refuse(words: str) -> NoReturn:
    Console(stderr=True).print(words, markup=False, highlight=False)
    raise typer.Exit(2)


def _baseline(scratch: Scratch, guards: Sequence[Guard], *, chaos: bool) -> dict[str, Said]:
    """What does not pass although nothing was taken out."""
    with _console.status("every guard in its place"):
        if chaos:
            runs = {" ".join(guard.chaos.arguments): guard.chaos for guard in guards if guard.chaos is not None}
            said = {words: scratch.run_chaos(run) for words, run in runs.items()}
        else:
            said = scratch.ask(list(dict.fromkeys(test for guard in guards for test in guard.tests)))
    return {test: one for test, one in said.items() if one.state != "passed"}


def _take_out(scratch: Scratch, guards: Sequence[Guard], *, chaos: bool) -> Iterator[Trial]:
    for number, guard in enumerate(guards, start=1):
        begun = time.monotonic()
        with _console.status(f"{number} of {len(guards)}: without {guard.name}"):
            run, caught, words = _try(scratch, guard, chaos=chaos)
        trial = Trial(guard.name, guard.files, run, caught, words, round(time.monotonic() - begun, 1))
        _console.print(
            f"{number:3} of {len(guards)}  {_verdict(trial):11}  {guard.name}", markup=False, highlight=False
        )
        yield trial


def _try(scratch: Scratch, guard: Guard, *, chaos: bool) -> tuple[tuple[str, ...], bool, str]:
    run = guard.tests
    try:
        with scratch.without(guard):
            if chaos and guard.chaos is not None:
                run = (" ".join(guard.chaos.arguments),)
                said = {run[0]: scratch.run_chaos(guard.chaos, CHAOS_TRIES)}
            else:
                said = scratch.ask(guard.tests)
    except Moved as moved:
        return run, False, str(moved)
    silent = {test: one for test, one in said.items() if one.state != "failed"}
    if silent:
        return run, False, "; ".join(f"{test} {one.state} {one.words}".strip() for test, one in silent.items())
    return run, True, next(iter(said.values())).words


def _verdict(trial: Trial) -> str:
    return "caught" if trial.caught else "NOT CAUGHT"


def _listed(guards: Sequence[Guard]) -> Table:
    table = _empty("guard, and where it stands", "without it", "test that fails", "from outside")
    for guard in guards:
        seen = " ".join(guard.chaos.arguments) if guard.chaos is not None else f"not seen: {guard.unseen}"
        table.add_row(_place(guard.name, guard.files), guard.holds, _names(guard.tests), seen)
    return table


def _table(trials: Sequence[Trial]) -> Table:
    table = _empty("guard, and where it was taken out", "what noticed", "", "s")
    table.columns[2].no_wrap = True
    for trial in trials:
        noticed = _names(trial.run)
        noticed.append(f"\n{trial.words}", style="dim" if trial.caught else "red")
        verdict = Text(_verdict(trial), style="green" if trial.caught else "bold red")
        table.add_row(_place(trial.guard, trial.files), noticed, verdict, f"{trial.seconds:.1f}")
    return table


def _empty(*columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, leading=1)
    for name in columns:
        table.add_column(name, overflow="fold", justify="right" if name == "s" else "left")
    return table


def _place(name: str, files: Sequence[str]) -> Text:
    return Text.assemble((name, "bold"), *((f"\n{file}", "dim") for file in files))


def _names(tests: Sequence[str]) -> Text:
    """Without their folders, which the JSON has."""
    return Text("\n".join(test.rpartition("::")[2] for test in tests))
