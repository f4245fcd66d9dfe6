"""What was found, as tables on a screen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from notifier.proof.bench.figures import Summary, summarize
from notifier.proof.bench.goals import Ratio, judge
from notifier.proof.bench.plan import Bench
from notifier.proof.bench.sides import BY_NAME

NOTHING = "–"
TITLES = {
    "ingest_store": "Ingest: callers that each wait for their own commit",
    "ingest_http": "Ingest over HTTP, one event a request (floor: a handler that does nothing)",
    "ingest_batch": "Ingest through the batch endpoint (floor: the smallest SQL)",
    "drain_noop": "Drain of a backlog, the job does nothing",
    "drain_http": "Drain of a backlog, one POST a mail (floor: the same calls, no database)",
    "guards": "The price of guards, jobs that do nothing",
    "drain_batches": "Drain of a backlog, a hundred mails a POST (peer: one; floor: the same calls, no database)",
    "latency": "From event to inbox, at a steady rate",
    "idle": "An idle installation, one event now and then",
    "release": "Follow-ups due at one instant",
    "claim": "Claim of 100 in hard places",
}
NOTES = (
    "µs, bytes, commits and statements are per mail or event; medians of the rounds. Commits are those that wrote. "
    "A peer's row is one job; an event of ours is a user, an event, its time and two decisions with their places: "
    "seven rows. ready: a call's bytes are there beforehand; rendered: each mail is made from its template. session: "
    "aiohttp's; http_post.py: ours, over aiohttp's connections. loop: the calibration loop, in ms; ! where "
    "in some round it was more than 25 % off the run's median."
)


def show(console: Console, bench: Bench, versions: Mapping[str, str]) -> None:
    """Print everything."""
    summaries = summarize(bench.measured)
    for work in dict.fromkeys(summary.work for summary in summaries):
        console.print(_table(work, [summary for summary in summaries if summary.work == work]))
    if (ratios := judge(summaries)) and not bench.wish.quick:  # what is small says nothing about speed
        console.print(_goals(ratios))
    for what in bench.skipped:
        console.print(Text(f"not measured: {what}", style="yellow"))
    console.print(Text(NOTES, style="dim"))
    console.print(Text("; ".join(f"{name}: {version}" for name, version in versions.items()), style="dim"))


def title_of(work: str) -> str:
    """What a work is called."""
    return TITLES.get(work) or f"Growth: {work.removeprefix('growth_')}"


def _table(work: str, summaries: Sequence[Summary]) -> Table:
    table = Table(title=title_of(work), title_justify="left")
    table.add_column("setting", no_wrap=True)
    table.add_column("side", no_wrap=True)
    if ways := any(summary.way for summary in summaries):
        table.add_column("how", overflow="fold")
    more = list(dict.fromkeys(name for summary in summaries for name in summary.more))
    who = list(dict.fromkeys(name for summary in summaries for name in summary.cpu_us))
    costs = any(summary.wal_bytes is not None for summary in summaries)
    for head in ("per s", *(f"{name} µs" for name in who), *(("WAL B", "FPI B", "commits", "stmts") if costs else ())):
        table.add_column(head, justify="right", no_wrap=True)
    for name in more:
        table.add_column(_head(name), justify="right", no_wrap=True)
    table.add_column("loop ms", justify="right", no_wrap=True)
    for summary in summaries:
        side = BY_NAME[summary.side].title
        cells = [summary.setting, side, *([summary.way] if ways else ()), _number(summary.rate)]
        cells += [_number(summary.cpu_us.get(name)) for name in who]
        if costs:
            cells += [_number(summary.wal_bytes), _number(summary.fpi_bytes)]
            cells += [_number(summary.commits), _number(summary.statements)]
        cells += [_number(_scaled(name, summary.more.get(name))) for name in more]
        cells.append(f"{summary.calibration_s * 1e3:.1f}{'!' if summary.noisy else ''}")
        table.add_row(*cells, style="bold" if side == BY_NAME["ours"].title else "")
    return table


def _head(name: str) -> str:
    """A figure's name as a column's: seconds are shown as milliseconds, but for whole runs."""
    if name.endswith("_per_s"):
        return name.removesuffix("_per_s").replace("_", " ") + " per s"
    if name.endswith("_mb"):
        return name.removesuffix("_mb") + " MB"
    return name.removesuffix("_s").replace("_", " ") + (" ms" if name.endswith("_s") else "")


def _scaled(name: str, value: float | None) -> float | None:
    return value * 1e3 if value is not None and name.endswith("_s") and not name.endswith("_per_s") else value


def _number(value: float | None) -> str:
    """Three digits that mean something, no more."""
    if value is None:
        return NOTHING
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:,.0f}".replace(",", " ")
    return f"{value:.3g}" if abs(value) < 10 else f"{value:.1f}"


def _goals(ratios: Sequence[Ratio]) -> Table:
    table = Table(title="What this service is held to, in this run", title_justify="left")
    table.add_column("ratio")
    for head in ("found", "goal", ""):
        table.add_column(head, justify="right")
    for ratio in ratios:
        sign = "≥" if ratio.at_least else "≤"
        word = Text("met", style="green") if ratio.is_met else Text("not met", style="bold red")
        table.add_row(
            ratio.title, f"{_number(ratio.found)} {ratio.unit}", f"{sign} {_number(ratio.goal)} {ratio.unit}", word
        )
    return table
