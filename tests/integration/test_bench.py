"""The whole bench of our own sides, small: that it comes to its end, and what it writes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from notifier.proof.bench.run import WORKS

SCRIPT = Path(__file__).parents[2] / "scripts" / "bench.py"
OURS_AND_FLOOR = {"ingest_store", "ingest_http", "ingest_batch", "drain_http", "drain_batches"}
OURS_ALONE = {
    "drain_noop",
    "latency",
    "idle",
    "release",
    "claim",
    "look",
    "guards",
    *(f"growth_{step}" for step in ("claim", "ingest", "release", "login")),
}


@pytest.mark.database
@pytest.mark.timeout(400)
def test_a_quick_run_of_our_own_sides_measures_everything(tmp_path: Path) -> None:
    file, temporary = tmp_path / "bench.json", tmp_path / "temporary"
    temporary.mkdir()
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--quick", "--sides", "ours,floor", "--seed", "1", "--json", str(file)],
        capture_output=True,
        text=True,
        timeout=380,
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(temporary)},
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    document = json.loads(file.read_text())
    assert document["seed"] == 1
    assert len(document["run"]) == 16
    assert document["machine"]["cores"] >= 1
    assert document["versions"]["PostgreSQL"]
    found = {work: {item["side"] for item in document["medians"] if item["work"] == work} for work in works(document)}
    assert found == {work: {"ours", "floor"} for work in OURS_AND_FLOOR} | {work: {"ours"} for work in OURS_ALONE}
    assert document["skipped"] == []
    for item in document["measured"]:
        assert item["rate"] > 0
        assert len(item["calibration_s"]) == 2
    drained = next(item for item in document["medians"] if (item["work"], item["side"]) == ("drain_http", "ours"))
    assert set(drained["cpu_us"]) == {"service", "database", "receiver"}
    assert drained["wal_bytes"] > 100
    assert 0 < drained["commits"] < 1
    assert 0 < drained["statements"] < 3
    floor = next(item for item in document["medians"] if (item["work"], item["side"]) == ("drain_http", "floor"))
    assert floor["statements"] == 0
    assert not list(tmp_path.glob(".notifier*")), "no peers, no environment"
    assert not list(temporary.iterdir()), "nothing of the run is left"


def works(document: dict[str, list[dict[str, str]]]) -> set[str]:
    return {item["work"] for item in document["medians"]}


def test_there_is_a_word_for_every_work() -> None:
    assert set(WORKS) == {"ingest", "noop", "http", "batches", "latency", "release", "growth", "guards"}
