"""What a run came to: a table of what was broken, figures, the verdict, and how to see it again."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from notifier.proof.chaos.run import CLAIM_TTL_S, Outcome
from notifier.proof.checker import Finding, Verdict, explain

VIOLATIONS_SHOWN = 10
WORDS = {"lost": ("I1", "I4"), "duplicated": ("I2",), "after a cancel": ("I3",)}


def report(console: Console, outcome: Outcome, again: str, kept: Path | None) -> None:
    """Print it all. `again`: the command that repeats it; `kept`: where the history stands, if it was kept."""
    console.print(Padding(_broken(outcome), (1, 0, 0, 0)))
    console.print(Padding(_figures(outcome), (1, 0)))
    for remark in _remarks(outcome):
        console.print(Text(remark))
    console.print()
    for finding in outcome.verdict.violations[:VIOLATIONS_SHOWN]:
        _explain(console, finding)
    if (more := len(outcome.verdict.violations) - VIOLATIONS_SHOWN) > 0:
        console.print(f"… and {more} more; `python -m notifier.proof.checker {kept or 'HISTORY'}` tells them all.\n")
    for text in dict.fromkeys((*outcome.failed, *outcome.shortcomings)):
        style = "bold red" if text in outcome.shortcomings else "yellow"
        console.print(Text(f"The rig could not do {text}", style=style))
    console.print(Text(sentence(outcome.verdict), style=_style(outcome.is_good)))
    console.print(Text(f"Again: {again}", style="dim"), soft_wrap=True)
    if kept is not None:
        console.print(Text(f"History: {kept}", style="dim"), soft_wrap=True)
    if outcome.folder is not None:
        console.print(Text(f"Its files and logs: {outcome.folder}", style="dim"), soft_wrap=True)


def sentence(verdict: Verdict) -> str:
    """The verdict in one line."""
    counts = {word: _count(verdict, rules) for word, rules in WORDS.items()}
    others = len(verdict.violations) - sum(counts.values())
    told = " · ".join(f"{number} {word}" for word, number in counts.items())
    return told + (f" · {others} other violations" if others else "")


def document(outcome: Outcome, again: str, kept: Path | None) -> dict[str, Any]:
    """The same for programs."""
    wish, verdict = outcome.wish, outcome.verdict
    families: dict[str, dict[str, int]] = {}
    for (family, name), number in sorted(outcome.faults.items()):
        families.setdefault(family, {})[name] = number
    return {
        "ok": outcome.is_good,
        "seed": wish.seed,
        "seconds": wish.seconds,
        "took_s": round(outcome.seconds, 1),
        "users": wish.users,
        "has_keys": wish.has_keys,
        "batch_max": wish.batch_max,
        "families": list(wish.families),
        "faults": families,
        "failpoints": {"armed": outcome.armed, "reached": outcome.reached},
        "skipped": dict(outcome.skipped),
        "failed": list(outcome.failed),
        "quiet_after_s": None if outcome.quiet_after_s is None else round(outcome.quiet_after_s, 1),
        "totals": dict(verdict.totals),
        "takeovers": takeovers(verdict),
        "violations": [_plain(finding) for finding in verdict.violations],
        "excused": [_plain(finding) for finding in verdict.excused],
        "command": again,
        "history": None if kept is None else str(kept),
    }


def takeovers(verdict: Verdict) -> dict[str, Any]:
    """How long calls lay in dead hands, seconds; and how many of them something else held up as well."""
    seconds = [one.seconds for one in verdict.takeovers]
    return {
        "number": len(seconds),
        "held_up": sum(one.held_up is not None for one in verdict.takeovers),
        "median_s": round(statistics.median(seconds), 2) if seconds else None,
        "worst_s": round(max(seconds), 2) if seconds else None,
    }


def summary(console: Console, outcomes: Sequence[Outcome], broken_off: Sequence[int] = ()) -> None:
    """One line a seed, after several; `broken_off`: the seeds of those that came to no verdict."""
    table = _table("Seed", "Mails", "Copies refused", "Faults", "Worst takeover", "Rest after", "Verdict")
    for outcome in outcomes:
        worst = takeovers(outcome.verdict)["worst_s"]
        rest = outcome.quiet_after_s
        good, kept = outcome.is_good, outcome.verdict.is_good
        table.add_row(
            str(outcome.wish.seed),
            str(outcome.calls.get("accepted", 0)),
            str(outcome.calls.get("duplicate", 0)),
            str(sum(outcome.faults.values())),
            "-" if worst is None else f"{worst:.1f} s",
            "never" if rest is None else f"{rest:.1f} s",
            Text("held" if good else "rig fell short" if kept else sentence(outcome.verdict), style=_style(good)),
        )
    for seed in broken_off:
        table.add_row(str(seed), "-", "-", "-", "-", "-", Text("broke off", style="bold red"))
    console.print(Padding(table, (1, 0)))
    bad = sum(not outcome.verdict.is_good for outcome in outcomes)
    short = sum(outcome.verdict.is_good and not outcome.is_good for outcome in outcomes)
    told = f"{len(outcomes) + len(broken_off)} runs, {bad} with violations"
    told += f", {short} of a rig that fell short" if short else ""
    told += f", {len(broken_off)} broken off" if broken_off else ""
    console.print(Text(told, style=_style(not (bad or short or broken_off))))


def _broken(outcome: Outcome) -> Table:
    """One line a family: how often, and which."""
    table = _table("What was broken", "Times", "How")
    table.columns[1].justify = "right"
    of_family: dict[str, dict[str, int]] = {family: {} for family in outcome.wish.families}
    for (family, name), number in sorted(outcome.faults.items()):
        of_family.setdefault(family, {})[name] = number
    for family, names in of_family.items():
        if family in outcome.skipped:
            table.add_row(family, "-", Text(f"NOT DONE: {outcome.skipped[family]}", style="bold yellow"))
            continue
        how = ", ".join(f"{_words(name)}{f' ×{number}' if number > 1 else ''}" for name, number in names.items())
        table.add_row(family, str(sum(names.values())), how or "-")
    if not of_family:
        table.add_row("nothing", "-", "-")
    return table


def _figures(outcome: Outcome) -> Table:
    """All the counts, side by side, and what has a remark below them."""
    counts = [(_words(name), str(number)) for name, number in outcome.verdict.totals.items()]
    half = (len(counts) + 1) // 2
    table = Table.grid(padding=(0, 2, 0, 0))
    for column in range(4):
        table.add_column(style="" if column % 2 else "dim", justify="right" if column % 2 else "left")
    for left, right in zip_longest(counts[:half], counts[half:], fillvalue=("", "")):
        table.add_row(*left, *right)
    return table


def _remarks(outcome: Outcome) -> Iterator[str]:
    if outcome.armed:
        others = "" if outcome.reached == outcome.armed else "; the others do not count above"
        yield f"Armed steps: reached {outcome.reached} of {outcome.armed}{others}."
    taken = takeovers(outcome.verdict)
    if taken["number"]:
        yield (
            f"{taken['number']} calls of dead or frozen workers came again after {taken['median_s']:.1f} s in the "
            f"median, {taken['worst_s']:.1f} s at worst (a claim lasts {CLAIM_TTL_S:g} s; "
            f"{taken['held_up']} of them met other faults, too)."
        )
    if outcome.verdict.excused:
        named = Counter(_words(finding.rule) for finding in outcome.verdict.excused)
        told = ", ".join(f"{name} ×{number}" for name, number in sorted(named.items()))
        yield f"Excused, each with its evidence: {told}."
    if outcome.quiet_after_s is not None:
        yield f"At rest {outcome.quiet_after_s:.1f} s after the last fault and the last step of the load."
    else:
        yield f"Not at rest within {outcome.wish.patience_s:g} s of the last fault."


def _explain(console: Console, finding: Finding) -> None:
    first, *rest = explain(finding)
    console.print(Text(first, style="bold red"))
    for line in rest:
        console.print(Text(line), soft_wrap=True)
    console.print()


def _plain(finding: Finding) -> dict[str, Any]:
    return {
        "rule": finding.rule,
        "user": finding.user,
        "kind": finding.kind,
        "sentence": finding.sentence,
        "explanation": explain(finding),
    }


def _count(verdict: Verdict, rules: Sequence[str]) -> int:
    return sum(finding.rule in rules for finding in verdict.violations)


def _style(good: bool) -> str:
    return "bold green" if good else "bold red"


def _words(name: str) -> str:
    return name.replace("_", " ")


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(column)
    return table
