"""The command behind scripts/strategy_lab.py: run, show, write down, and judge."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.progress import track

from notifier.domain.errors import NotReady
from notifier.proof.lab.report import document, markdown, stories, table
from notifier.proof.lab.run import Totals, compare
from notifier.proof.lab.strategies import ALL, Guard, Ours

SEED, SEEDS, USERS = 1, 20, 120


def main(given: Sequence[str] | None = None) -> int:
    """Run the lab as the command line says; 1 where ours is not clean, or a strategy does not show its own fault."""
    asked = _read(given)
    console, errors = Console(), Console(stderr=True)
    try:
        return _real(console) if asked.real else _compare(asked, console, errors)
    except (NotReady, OSError, ImportError) as error:
        errors.print(f"strategy_lab: {error}", style="red", highlight=False, markup=False, soft_wrap=True)
        return 1


def _real(console: Console) -> int:
    from notifier.proof.lab.real import show  # what it needs is slow to load, and nothing else here does

    return show(console)


def _compare(asked: argparse.Namespace, console: Console, errors: Console) -> int:
    seeds = range(asked.seed, asked.seed + asked.seeds)
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
    _write(asked, totals, seeds)
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


def _write(asked: argparse.Namespace, totals: Sequence[Totals], seeds: Sequence[int]) -> None:
    if asked.json:
        asked.json.write_text(json.dumps(document(totals, seeds, asked.users), indent=2) + "\n", "utf-8")
    if asked.markdown:
        asked.markdown.write_text(markdown(totals), "utf-8")
    if asked.histories:
        asked.histories.mkdir(parents=True, exist_ok=True)
        for total in totals:
            for fault, story in stories(total):
                name = f"{total.strategy.name}-{fault.value.replace(' ', '-')}.txt"
                (asked.histories / name).write_text(story, "utf-8")
    if asked.picture:
        from notifier.proof.lab.picture import draw  # matplotlib takes a second to load

        draw(totals, asked.picture)


def _read(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="strategy_lab.py", description="How the usual ways to send a mail once fail, beside ours, on virtual time."
    )
    parser.add_argument("--seed", type=int, default=SEED, help=f"the first seed ({SEED})")
    parser.add_argument("--seeds", type=_positive, default=SEEDS, help=f"how many seeds ({SEEDS})")
    parser.add_argument("--users", type=_positive, default=USERS, help=f"people in each world ({USERS})")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all counts")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table as docs/why.md has it")
    parser.add_argument("--picture", type=Path, metavar="BASE", help="write BASE.png and BASE.svg")
    parser.add_argument("--histories", type=Path, metavar="DIR", help="write the first bad case of each kind")
    names = [strategy.name for strategy in ALL]
    parser.add_argument("--show", action="append", default=[], choices=names, help="print those of a strategy")
    parser.add_argument(
        "--without",
        action="append",
        default=[],
        choices=[str(guard) for guard in Guard],
        help="take a guard out of ours",
    )
    parser.add_argument("--real", action="store_true", help="instead: one finding with real processes")
    return parser.parse_args(given)


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return number


if __name__ == "__main__":
    sys.exit(main())
