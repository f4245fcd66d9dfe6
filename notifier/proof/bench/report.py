"""What was found, in words: as tables on a screen here, and for whoever writes them elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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
    "look": "An idle worker's look, once a second",
}
NOTES = (
    "µs, bytes, commits and statements are per mail or event; medians of the rounds. Commits are those that wrote. "
    "A peer's row is one job; an event of ours is a user, an event, its time and two decisions with their places: "
    "seven rows. ready: a call's bytes are there beforehand; rendered: each mail is made from its template. session: "
    "aiohttp's; http_post.py: ours. loop: the calibration loop, in ms; ! where "
    "in some round it was more than 25 % off the run's median."
)


def show(console: Console, bench: Bench, versions: Mapping[str, str]) -> None:
    """Print everything."""
    summaries = summarize(bench.measured)
    for grid in grids(summaries):
        console.print(_table(grid))
    if (ratios := judge(summaries)) and not bench.wish.quick:  # what is small says nothing about speed
        console.print(_goals(ratios))
    for what in bench.skipped:
        console.print(Text(f"not measured: {what}", style="yellow"))
    console.print(Text(NOTES, style="dim"))
    console.print(Text("; ".join(f"{name}: {version}" for name, version in versions.items()), style="dim"))


def title_of(work: str) -> str:
    """What a work is called."""
    return TITLES.get(work) or f"Growth: {work.removeprefix('growth_')}"


@dataclass(frozen=True, slots=True)
class Grid:
    """One work's figures as words: heads, and rows with the side they are of. The first `words` columns are names."""

    title: str
    heads: Sequence[str]
    rows: Sequence[tuple[str, Sequence[str]]]
    words: int


def grids(summaries: Sequence[Summary]) -> list[Grid]:
    """Give one for each work, in the order they were measured."""
    works = dict.fromkeys(summary.work for summary in summaries)
    return [_grid(work, [summary for summary in summaries if summary.work == work]) for work in works]


def _grid(work: str, summaries: Sequence[Summary]) -> Grid:
    more = list(dict.fromkeys(name for summary in summaries for name in summary.more))
    who = list(dict.fromkeys(name for summary in summaries for name in summary.cpu_us))
    costs = any(summary.wal_bytes is not None for summary in summaries)
    names = ["setting", "side", *(["how"] if any(summary.way for summary in summaries) else [])]
    heads = [*names, "per s", *(f"{name} µs" for name in who)]
    heads += ["WAL B", "FPI B", "commits", "stmts"] if costs else []
    heads += [*map(_head, more), "loop ms"]
    rows = []
    for summary in summaries:
        cells = [summary.setting, BY_NAME[summary.side].title, summary.way][: len(names)]
        cells += [_number(summary.rate), *(_number(summary.cpu_us.get(name)) for name in who)]
        if costs:
            spent = (summary.wal_bytes, summary.fpi_bytes, summary.commits, summary.statements)
            cells += [_number(value) for value in spent]
        cells += [_number(_scaled(name, summary.more.get(name))) for name in more]
        cells.append(f"{summary.calibration_s * 1e3:.1f}{'!' if summary.noisy else ''}")
        rows.append((summary.side, cells))
    return Grid(title_of(work), heads, rows, len(names))


def _table(grid: Grid) -> Table:
    table = Table(title=grid.title, title_justify="left")
    for index, head in enumerate(grid.heads):
        folds = head == "how"
        table.add_column(head, justify="left" if index < grid.words else "right", no_wrap=not folds, overflow="fold")
    for side, cells in grid.rows:
        table.add_row(*cells, style="bold" if side == "ours" else "")
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


def told(ratio: Ratio) -> tuple[str, str, str, str]:
    """A goal as words: what it is, what was found, the goal, and whether that meets it."""
    sign = "≥" if ratio.at_least else "≤"
    found, goal = (f"{_number(value)} {ratio.unit}".strip() for value in (ratio.found, ratio.goal))
    return ratio.title, found, f"{sign} {goal}", "met" if ratio.is_met else "not met"


def _goals(ratios: Sequence[Ratio]) -> Table:
    table = Table(title="What this service is held to, in this run", title_justify="left")
    table.add_column("ratio")
    for head in ("found", "goal", ""):
        table.add_column(head, justify="right")
    for ratio in ratios:
        *cells, word = told(ratio)
        table.add_row(*cells, Text(word, style="green" if ratio.is_met else "bold red"))
    return table
