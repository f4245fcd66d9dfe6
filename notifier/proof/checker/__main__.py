"""python -m notifier.proof.checker FILE: judge a history again."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Annotated

import typer

from notifier.proof.checker import NotAHistory, Verdict, explain, judge
from notifier.proof.history import UnreadableHistory, load


def main(
    file: Annotated[Path, typer.Argument(help="a history, as a chaos run writes it", exists=True, dir_okay=False)],
) -> None:
    """Judge a history again: exit 0 when nothing was broken, 1 when something was, 2 when it is no history."""
    try:
        with file.open(encoding="utf-8") as lines:
            verdict = judge(load(lines))
    except (UnreadableHistory, NotAHistory, UnicodeDecodeError) as error:
        typer.echo(f"{file}: {error}", err=True)
        raise typer.Exit(2) from None
    for told in _tell(verdict):
        typer.echo(told)
    raise typer.Exit(0 if verdict.is_good else 1)


def _tell(verdict: Verdict) -> list[str]:
    told = [f"{name.replace('_', ' ')}: {count}" for name, count in verdict.totals.items()]
    if verdict.takeovers:
        seconds = [takeover.seconds for takeover in verdict.takeovers]
        told.append(f"takeovers: {len(seconds)}, median {statistics.median(seconds):.1f} s, worst {max(seconds):.1f} s")
    for name, findings in (("excused", verdict.excused), ("violation", verdict.violations)):
        for finding in findings:
            heading, *events = explain(finding)
            told += ["", f"{name}: {heading}", *events]
    return [*told, "", f"{len(verdict.violations)} violations, {len(verdict.excused)} excused"]


if __name__ == "__main__":
    typer.run(main)
