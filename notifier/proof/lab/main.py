"""The command behind scripts/strategy_lab.py: run, show, write down, and judge."""

from __future__ import annotations

import json as json_text
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import track

from notifier.domain.errors import NotReady
from notifier.proof.lab.report import document, stories, table
from notifier.proof.lab.report import markdown as as_markdown
from notifier.proof.lab.run import Totals, compare
from notifier.proof.lab.strategies import ALL, Guard, Ours

SEED, SEEDS, USERS = 1, 20, 120


_app = typer.Typer(add_completion=False, rich_markup_mode="markdown", pretty_exceptions_enable=False)
_GUARDS = [str(guard) for guard in Guard]
_NAMES = [strategy.name for strategy in ALL]


@dataclass(frozen=True, slots=True)
class _Asked:
    """The command line. `picture` is a path without its ending."""

    seeds: range
    users: int
    show: Sequence[str]
    without: Sequence[str]
    json: Path | None
    markdown: Path | None
    picture: Path | None
    histories: Path | None


def main(given: Sequence[str] | None = None) -> int:
    """Run the lab as the command line says; 1 where ours is not clean, or a strategy does not show its own fault."""
    try:
        _app(given, prog_name="strategy_lab.py")
    except SystemExit as end:
        return int(end.code or 0)
    except (NotReady, OSError, ImportError) as error:
        Console(stderr=True).print(f"strategy_lab: {error}", style="red", highlight=False, markup=False, soft_wrap=True)
        return 1
    return 0


@_app.command()
def lab(
    seed: Annotated[int, typer.Option(min=0, help="The first seed.")] = SEED,
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds.")] = SEEDS,
    users: Annotated[int, typer.Option(min=1, help="People in each world.")] = USERS,
    show: Annotated[
        list[str] | None, typer.Option(metavar="WAY", help=f"Tell what went wrong first: {', '.join(_NAMES)}.")
    ] = None,
    without: Annotated[
        list[str] | None, typer.Option(metavar="GUARD", help=f"Take a guard out of ours: {', '.join(_GUARDS)}.")
    ] = None,
    json: Annotated[Path | None, typer.Option(metavar="FILE", help="Write all counts.")] = None,
    markdown: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the table as docs/why.md has it.")
    ] = None,
    picture: Annotated[Path | None, typer.Option(metavar="BASE", help="Write BASE.png and BASE.svg.")] = None,
    histories: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write the first bad case of each kind, a file each.")
    ] = None,
    real: Annotated[bool, typer.Option("--real", help="Instead: one finding with real processes.")] = False,
) -> None:
    """How the usual ways to send a mail once fail, beside ours: one world a seed, on virtual time.

    Exit 0 when ours lost, doubled and wronged nobody, and (from two seeds on) every other way failed as its text says;
    1 when not; 2 for a wrong command line. The same seed gives the same counts.
    """
    console, errors = Console(), Console(stderr=True)
    if real:
        raise typer.Exit(_real(console))
    for option, chosen, known in (("--show", show, _NAMES), ("--without", without, _GUARDS)):
        if unknown := set(chosen or ()) - set(known):
            raise typer.BadParameter(f"{', '.join(sorted(unknown))}: there are {', '.join(known)}", param_hint=option)
    for option, path in (("--json", json), ("--markdown", markdown), ("--picture", picture)):
        if path is not None and (path.is_dir() or not path.absolute().parent.is_dir()):
            raise typer.BadParameter(f"{path} cannot be a file", param_hint=option)
    if histories is not None and histories.exists() and not histories.is_dir():
        raise typer.BadParameter(f"{histories} is no directory", param_hint="--histories")
    if picture is not None and picture.suffix in (".png", ".svg"):
        picture = picture.with_suffix("")
    asked = _Asked(range(seed, seed + seeds), users, show or (), without or (), json, markdown, picture, histories)
    raise typer.Exit(_compare(asked, console, errors))


def _real(console: Console) -> int:
    from notifier.proof.lab.real import show  # what it needs is slow to load, and nothing else here does

    return show(console)


def _compare(asked: _Asked, console: Console, errors: Console) -> int:
    seeds = asked.seeds
    ours = partial(Ours, without=[Guard(name) for name in asked.without])
    totals = [Totals(strategy) for strategy in ALL]
    for _ in track(
        compare(totals, seeds, asked.users, ours), "seeds", total=len(seeds), console=errors, transient=True
    ):
        pass
    console.print(table(totals))
    for total in totals:
        if total.strategy.name in asked.show:
            told = [story for _, story in stories(total)] or [f"{total.strategy.title}: nothing went wrong"]
            console.print("", *told, sep="\n", highlight=False, markup=False, soft_wrap=True)
    _write(asked, totals)
    wrong = complaints(totals)
    for line in wrong:
        errors.print(line, style="red", highlight=False)
    return 1 if wrong else 0


def complaints(totals: Sequence[Totals]) -> list[str]:
    """Say what the lab should have found and did not; of what a description predicts only after two seeds or more."""
    found = []
    for total in totals:
        if total.strategy is Ours and not total.is_clean:
            seen = ", ".join(f"{count} {fault.value}" for fault, count in total.faults.items() if count)
            found.append(f"ours is not clean: {seen}; see --show {Ours.name}")
        if total.seeds >= 2:
            found += [
                f"{total.strategy.name} did not show {fault.value!r}, as described: take more --seeds or --users"
                for fault in total.unshown
            ]
    return found


def _write(asked: _Asked, totals: Sequence[Totals]) -> None:
    if asked.json:
        asked.json.write_text(json_text.dumps(document(totals, asked.seeds, asked.users), indent=2) + "\n", "utf-8")
    if asked.markdown:
        asked.markdown.write_text(as_markdown(totals), "utf-8")
    if asked.histories:
        asked.histories.mkdir(parents=True, exist_ok=True)
        for total in totals:
            for fault, story in stories(total):
                name = f"{total.strategy.name}-{fault.value.replace(' ', '-')}.txt"
                (asked.histories / name).write_text(story, "utf-8")
    if asked.picture:
        from notifier.proof.lab.picture import draw  # matplotlib takes a second to load

        draw(totals, asked.picture)


if __name__ == "__main__":
    sys.exit(main())
