"""The page of figures: what the bench wrote with --json, as tables and pictures between two marks of the page."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from notifier.domain.errors import NotReady
from notifier.proof.bench.figures import Summary
from notifier.proof.bench.goals import judge
from notifier.proof.bench.picture import draw
from notifier.proof.bench.report import NOTES, grids, told

BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"


def fill(page: Path, documents: Sequence[Mapping[str, Any]]) -> list[Path]:
    """Put the runs into the page, one under the other, and their pictures beside it; gives what was written.

    Raises NotReady where there is no place for them, or a file is none of these or of a quick run.
    """
    text = page.read_text("utf-8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise NotReady(f"{page} has no lines {BEGIN} and {END}: the figures go between them")
    for document in documents:
        _check(document)
    written: list[Path] = [page]
    parts: list[str] = []
    for number, document in enumerate(documents, start=1):
        pictures = draw(document, page.parent, "" if number == 1 else f"-{number}")
        written += pictures
        parts += _run(document, [os.path.relpath(picture, page.parent) for picture in pictures])
    page.write_text("\n".join([before + BEGIN, "", *parts, NOTES, "", END]) + after, "utf-8")
    return written


def _check(document: Mapping[str, Any]) -> None:
    if not isinstance(document.get("run"), str) or not document.get("medians"):
        raise NotReady("this is not what the bench writes with --json")
    if document.get("quick"):
        raise NotReady(f"run {document['run']} was a quick one: its figures say whether it works, not how fast")


def _run(document: Mapping[str, Any], pictures: Sequence[str]) -> Iterator[str]:
    """Everything of one run, in lines."""
    summaries = [Summary(**median) for median in document["medians"]]
    machine = document["machine"]
    yield f"### {document['date'][:10]}, run {document['run']}"
    yield ""
    yield (
        f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_bytes'] / 1e9:.0f} GB, {machine['system']}; "
        f"{document.get('rounds')} rounds, the loop took {document['calibration_s'] * 1e3:.1f} ms. "
        + "; ".join(f"{name}: {version}" for name, version in document["versions"].items())
        + "."
    )
    yield ""
    if ratios := judge(summaries):
        met = sum(ratio.is_met for ratio in ratios)
        yield from _markdown(
            [f"what this service is held to: {met} of {len(ratios)} met", "found", "goal", ""],
            [told(ratio) for ratio in ratios],
            words=1,
        )
    for what in document.get("skipped", ()):
        yield f"Not measured: {what}"
        yield ""
    for picture in pictures:
        yield f"![{Path(picture).stem}]({picture})"
    if pictures:
        yield ""
    for grid in grids(summaries):
        yield f"**{grid.title}**"
        yield ""
        yield from _markdown(grid.heads, [_marked(side, cells) for side, cells in grid.rows], words=grid.words)


def _marked(side: str, cells: Sequence[str]) -> Sequence[str]:
    return [f"**{cell}**" if cell else cell for cell in cells] if side == "ours" else cells


def _markdown(heads: Sequence[str], rows: Sequence[Sequence[str]], words: int) -> Iterator[str]:
    yield f"| {' | '.join(heads)} |"
    yield f"|{'|'.join('---' if index < words else '--:' for index in range(len(heads)))}|"
    for row in rows:
        yield f"| {' | '.join(row)} |"
    yield ""
