"""What the lab found, as a table on a screen, as Markdown, as JSON and as stories."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from notifier.proof.lab.judge import Fault
from notifier.proof.lab.run import Totals
from notifier.proof.lab.script import FOLLOWUP

NOT_ASKED = "–"
RULE = "|---" + "|--:" * (len(Fault) + 2) + "|"
UNCERTAIN = "left uncertain"


def cell(total: Totals, fault: Fault) -> str:
    """Say how many mails suffered it and in how many seeds; a dash where the strategy has no such thing."""
    if fault is Fault.AFTER_LOGIN and FOLLOWUP not in total.strategy.kinds:
        return NOT_ASKED
    if fault is Fault.WRONGLY_FAILED and not total.strategy.writes_failed:
        return NOT_ASKED
    count = total.faults[fault]
    return f"{count} ({total.seeds_with[fault]})" if count else "0"


def uncertain(total: Totals) -> str:
    """Say how many it left to a person; a dash where the strategy has no such word."""
    return str(total.uncertain) if total.strategy.says_uncertain else NOT_ASKED


def table(totals: Sequence[Totals]) -> Table:
    """Draw the table for a terminal; what a description predicts is bold."""
    found = Table(caption=caption(totals), caption_justify="left")
    found.add_column("strategy", no_wrap=True)
    for fault in Fault:
        found.add_column(fault.value, justify="right")
    for total in totals:
        cells = [Text(cell(total, fault), style=_style(total, fault)) for fault in Fault]
        found.add_row(total.strategy.title, *cells)
    return found


def _style(total: Totals, fault: Fault) -> str:
    if not total.faults[fault]:
        return "green" if total.is_clean else ""
    return "bold red" if fault in total.strategy.shows else "red"


def caption(totals: Sequence[Totals]) -> str:
    """What the numbers are."""
    seeds = totals[0].seeds
    words = [f"Mails, and in brackets in how many of {seeds} seeds."]
    for total in totals:
        if total.strategy.says_uncertain:
            words.append(
                f"{total.strategy.title}: {total.announced} went out after a login that came too late and was told so, "
                f"{total.uncertain} were left uncertain."
            )
    return " ".join(words)


def markdown(totals: Sequence[Totals]) -> str:
    """Write the same table for a document."""
    head = ["strategy", "mails", *(fault.value for fault in Fault), UNCERTAIN]
    rows = [[t.strategy.title, str(t.mails), *(cell(t, fault) for fault in Fault), uncertain(t)] for t in totals]
    return "\n".join(f"| {' | '.join(row)} |" if row else RULE for row in (head, [], *rows)) + "\n"


def document(totals: Sequence[Totals], seeds: Sequence[int], users: int) -> dict[str, Any]:
    """Give everything counted, for a program."""
    return {
        "seeds": list(seeds),
        "users": users,
        "strategies": [
            {
                "name": t.strategy.name,
                "title": t.strategy.title,
                "kinds": list(t.strategy.kinds),
                "mails": t.mails,
                "uncertain": t.uncertain,
                "announced": t.announced,
                "faults": {
                    fault.value: {
                        "mails": t.faults[fault],
                        "seeds": t.seeds_with[fault],
                        "described": fault in t.strategy.shows,
                        "first": _where(t, fault),
                    }
                    for fault in Fault
                },
            }
            for t in totals
        ],
    }


def _where(total: Totals, fault: Fault) -> dict[str, Any] | None:
    story = total.first.get(fault)
    return None if story is None else {"seed": story.seed, "user": story.mail[0], "kind": story.mail[1]}


def stories(total: Totals) -> Iterator[tuple[Fault, str]]:
    """Tell the first bad case of each fault this strategy showed, the shortest of its seed."""
    for fault, story in total.first.items():
        about = f"{total.strategy.title}: {fault.value}, seed {story.seed}, {story.mail[1]} of {story.mail[0]}"
        yield fault, "\n".join([about, "", *story.lines, ""])
