"""Growth as pictures: one a step, how long it takes against how much there is."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

INK, FAINT, LINE = "#222222", "#777777", "#0072B2"
PREFIX = "growth_"


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


def draw(document: Mapping[str, Any], directory: Path) -> list[Path]:
    """Write growth-STEP.png for each step; gives what was written."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams.update({"font.size": 9})
    from matplotlib import pyplot

    written = []
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
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False)
        path = directory / f"growth-{step}.png"
        figure.savefig(path, dpi=110, metadata={"Software": None})
        pyplot.close(figure)
        written.append(path)
    return written
