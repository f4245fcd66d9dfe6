"""Figures as pictures: how long a step takes against how much there is, and how fast each side drains."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from notifier.proof.bench.sides import BY_NAME

INK, FAINT, LINE = "#222222", "#777777", "#0072B2"
PREFIX = "growth_"
DRAINS = {
    "drain_noop": "Jobs that do nothing",
    "drain_http": "One POST a mail",
    "drain_batches": "A hundred mails a POST; peers one",
}


def curves(document: Mapping[str, Any]) -> dict[str, list[tuple[int, float, float]]]:
    """Step → (rows of history, p50 and p99 in milliseconds), from the document the bench writes."""
    found: dict[str, list[tuple[int, float, float]]] = {}
    for item in document["medians"]:
        if item["work"].startswith(PREFIX):
            size = int("".join(filter(str.isdigit, item["setting"])))
            more = item["more"]
            point = (size, more["p50_s"] * 1e3, more["p99_s"] * 1e3)
            found.setdefault(item["work"].removeprefix(PREFIX), []).append(point)
    return {step: sorted(points) for step, points in found.items()}


def bars(document: Mapping[str, Any]) -> dict[str, list[tuple[str, float]]]:
    """Work → (side and way, mails a second) of one worker, fastest first."""
    found: dict[str, list[tuple[str, float]]] = {}
    for item in document["medians"]:
        if item["work"] in DRAINS and item["setting"] == "1 worker":
            name = f"{BY_NAME[item['side']].title}: {item['way']}" if item["way"] else BY_NAME[item["side"]].title
            found.setdefault(item["work"], []).append((name, item["rate"]))
    return {work: sorted(rates, key=lambda rate: -rate[1]) for work, rates in found.items()}


def draw(document: Mapping[str, Any], directory: Path, suffix: str = "") -> list[Path]:
    """Write growth-STEP.png for each step and drain-WORK.png for each drain; gives what was written."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams.update({"font.size": 9})
    return [*_draw_curves(document, directory, suffix), *_draw_bars(document, directory, suffix)]


def _draw_curves(document: Mapping[str, Any], directory: Path, suffix: str) -> Iterator[Path]:
    from matplotlib import pyplot

    for step, points in curves(document).items():
        figure, axes = pyplot.subplots(figsize=(5, 3), layout="constrained")
        sizes = [size for size, _, _ in points]
        axes.plot(sizes, [p50 for _, p50, _ in points], color=LINE, marker="o", label="p50")
        axes.plot(sizes, [p99 for _, _, p99 in points], color=FAINT, marker="o", linestyle=":", label="p99")
        axes.set_xscale("log")
        axes.set_ylim(bottom=0)
        axes.set_xlabel("rows of history", color=INK)
        axes.set_ylabel("ms", color=INK)
        axes.set_title(step, color=INK, fontsize=10)
        axes.legend(frameon=False)
        yield _saved(figure, directory / f"growth-{step}{suffix}.png")


def _draw_bars(document: Mapping[str, Any], directory: Path, suffix: str) -> Iterator[Path]:
    from matplotlib import pyplot

    for work, rates in bars(document).items():
        figure, axes = pyplot.subplots(figsize=(7, 0.6 + 0.28 * len(rates)), layout="constrained")
        colors = [LINE if name.startswith(BY_NAME["ours"].title) else FAINT for name, _ in rates]
        drawn = axes.barh([name for name, _ in rates], [rate for _, rate in rates], color=colors)
        axes.bar_label(drawn, labels=[f"{rate:,.0f}" for _, rate in rates], padding=3)
        axes.set_xticks([])  # each bar says its number
        axes.margins(x=0.12)
        axes.invert_yaxis()
        figure.suptitle(f"{DRAINS[work]}: mails a second, one worker", color=INK, fontsize=10)
        yield _saved(figure, directory / f"{work.replace('_', '-')}{suffix}.png")


def _saved(figure: Any, path: Path) -> Path:
    from matplotlib import pyplot

    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=110, metadata={"Software": None})
    pyplot.close(figure)
    return path
