"""The page of figures: filled between its marks, again and again, and never with what is none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from notifier.domain.errors import NotReady
from notifier.proof.bench.figures import Measured, to_document
from notifier.proof.bench.page import BEGIN, END, fill

ABOUT = {
    "run": "r1",
    "date": "2026-11-30T02:00:00+00:00",
    "rounds": 1,
    "quick": False,
    "machine": {"cpu": "a processor", "cores": 2, "memory_bytes": 8e9, "system": "Linux 6"},
    "versions": {"PostgreSQL": "18.6", "notifier": "0.1.0 (Python 3.13.0)"},
    "skipped": ["Oban: no Python for it"],
}


def a_run(**about: Any) -> dict[str, Any]:
    usual: dict[str, Any] = {"round": 1, "number": 1_000, "calibration_s": (0.05, 0.05)}
    noop = {"work": "drain_noop", "setting": "1 worker", **usual}
    measured = [
        Measured(side="ours", seconds=1.0, way="100 a call", cpu_us={"service": 30.0}, **noop),
        Measured(side="pgqueuer", seconds=2.0, way="one a call", cpu_us={"service": 90.0}, **noop),
    ]
    measured += [
        Measured(work="growth_claim", side="ours", setting=f"{size:,} rows", seconds=1.0, more=more, **usual)
        for size, more in ((10_000, {"p50_s": 0.002, "p99_s": 0.004}), (1_000_000, {"p50_s": 0.002, "p99_s": 0.004}))
    ]
    return to_document({**ABOUT, **about}, measured)


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "page.md"
    path.write_text(f"# Before\n\n{BEGIN}\n\nnothing yet\n\n{END}\n\nafter\n", "utf-8")
    return path


def test_a_run_goes_between_the_marks_with_its_pictures(page: Path) -> None:
    written = fill(page, [a_run()])
    assert {path.name for path in written} == {"page.md", "growth-claim.png", "drain-noop.png"}
    text = page.read_text("utf-8")
    assert text.startswith(f"# Before\n\n{BEGIN}\n")
    assert text.endswith(f"{END}\n\nafter\n")
    assert "nothing yet" not in text
    assert "| no-op drain, one worker, 100 a call, against PgQueuer's one | 2 × | ≥ 2.5 × | not met |" in text
    assert "| claim, 1,000,000 rows against 10,000 rows, p50 | 1 × | ≤ 1.5 × | met |" in text
    assert "held to: 1 of 2 met" in text
    assert "| **1 worker** | **notifier** | **100 a call** | **1 000** | **30.0** |" in text
    assert "a processor, 2 cores, 8 GB, Linux 6" in text
    assert "Not measured: Oban: no Python for it" in text
    assert "![growth-claim](growth-claim.png)" in text
    fill(page, [a_run()])
    assert page.read_text("utf-8") == text, "the same again is the same page"


def test_two_runs_stand_apart(page: Path) -> None:
    written = fill(page, [a_run(), a_run(run="r2")])
    assert len({path.name for path in written}) == 5
    text = page.read_text("utf-8")
    assert "### 2026-11-30, run r1" in text
    assert "![growth-claim-2](growth-claim-2.png)" in text


def test_what_is_no_result_is_refused_and_the_page_stays(page: Path) -> None:
    before = page.read_text("utf-8")
    for document, said in ((a_run(quick=True), "quick"), ({"medians": []}, "not what the bench writes")):
        with pytest.raises(NotReady, match=said):
            fill(page, [document])
    assert page.read_text("utf-8") == before
    page.write_text("no marks")
    with pytest.raises(NotReady, match="figures: begin"):
        fill(page, [a_run()])
