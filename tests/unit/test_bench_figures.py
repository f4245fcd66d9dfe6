"""The bench's arithmetic: medians, marks for noise, goals, and what is never compared."""

from __future__ import annotations

from typing import Any

import pytest

from notifier.proof.bench.figures import Measured, NotComparable, compare, percentile, summarize, to_document
from notifier.proof.bench.goals import judge
from notifier.proof.bench.picture import bars, curves

RUN = {"run": "r1", "date": "2026-11-30T02:00:00+00:00"}


def a_measurement(side: str = "ours", round_number: int = 1, **fields: Any) -> Measured:
    usual: dict[str, Any] = {
        "work": "drain_noop",
        "setting": "1 worker",
        "number": 1_000,
        "seconds": 1.0,
        "calibration_s": (0.05, 0.05),
    }
    return Measured(side=side, round=round_number, **{**usual, **fields})


def test_a_summary_is_the_median_of_each_figure_by_itself() -> None:
    [summary] = summarize(
        [
            a_measurement(round_number=1, seconds=1.0, cpu_us={"service": 30.0, "database": 9.0}, wal_bytes=500.0),
            a_measurement(round_number=2, seconds=4.0, cpu_us={"service": 10.0, "database": 7.0}, wal_bytes=900.0),
            a_measurement(round_number=3, seconds=2.0, cpu_us={"service": 20.0, "database": 8.0}, wal_bytes=None),
        ]
    )
    assert (summary.rate, summary.rate_min, summary.rate_max) == (500.0, 250.0, 1_000.0)
    assert summary.cpu_us == {"service": 20.0, "database": 8.0}
    assert summary.wal_bytes == 700.0
    assert summary.fpi_bytes is None
    assert summary.rounds == 3


def test_sides_and_settings_are_apart_and_stay_in_order() -> None:
    summaries = summarize([a_measurement("b"), a_measurement("a"), a_measurement("b", setting="2 workers")])
    assert [(s.side, s.setting) for s in summaries] == [("b", "1 worker"), ("a", "1 worker"), ("b", "2 workers")]


@pytest.mark.parametrize(
    ("loop", "noisy"), [((0.05, 0.05), 0), ((0.062, 0.05), 0), ((0.063, 0.05), 1), ((0.05, 0.037), 1)]
)
def test_a_round_whose_loop_is_a_quarter_off_the_runs_median_is_marked(loop: tuple[float, float], noisy: int) -> None:
    quiet = [a_measurement(round_number=n) for n in range(2, 6)]
    [summary] = summarize([a_measurement(calibration_s=loop), *quiet])
    assert summary.noisy == noisy


def test_the_document_says_of_each_measurement_what_it_was_worth() -> None:
    document = to_document(RUN, [a_measurement(round_number=n) for n in (1, 2)] + [a_measurement(calibration_s=(1, 1))])
    assert document["calibration_s"] == 0.05
    assert [item["noisy"] for item in document["measured"]] == [False, False, True]
    assert document["medians"][0]["rate"] == 1_000.0


def test_nothing_measured_is_no_reason_to_fail() -> None:
    assert to_document(RUN, [])["medians"] == []


def test_a_percentile_is_a_value_that_was_seen() -> None:
    values = [float(n) for n in range(100, 0, -1)]
    assert (percentile(values, 0.5), percentile(values, 0.99), percentile([7.0], 0.99)) == (51.0, 100.0, 7.0)
    with pytest.raises(ValueError, match="no values"):
        percentile([], 0.5)


def test_two_files_of_one_run_are_compared_side_against_other_side() -> None:
    left = to_document(RUN, [a_measurement("ours", seconds=1.0)])
    right = to_document(RUN, [a_measurement("pgqueuer", seconds=4.0), a_measurement("pgqueuer", work="other")])
    assert compare(left, right) == [("drain_noop, 1 worker", "ours", "pgqueuer", 4.0)]


def test_two_runs_are_not_compared() -> None:
    left = to_document(RUN, [a_measurement("ours")])
    right = to_document({**RUN, "run": "r2"}, [a_measurement("pgqueuer")])
    with pytest.raises(NotComparable, match=r"two runs, r1 .* and r2"):
        compare(left, right)
    with pytest.raises(NotComparable, match="not what the bench writes"):
        compare(left, {"medians": []})


def test_goals_are_judged_where_both_figures_are_there() -> None:
    summaries = summarize(
        [
            a_measurement("ours", seconds=1.0),
            a_measurement("pgqueuer", seconds=3.0),
            a_measurement("pgqueuer", setting="2 workers", seconds=2.0),
        ]
    )
    one, two = judge(summaries)
    assert one.title == "no-op drain, one worker, against PgQueuer's one"
    assert (one.found, one.goal, one.is_met) == (3.0, 2.5, True)
    assert two.title == "no-op drain, one worker, against PgQueuer's two"
    assert (two.found, two.goal, two.is_met) == (2.0, 2.5, False)


def test_costs_have_goals_of_their_own() -> None:
    costs = {"wal_bytes": 901.0, "commits": 0.01, "cpu_us": {"database": 30.0}}
    found = {ratio.title: ratio.is_met for ratio in judge(summarize([a_measurement(**costs)]))}
    assert found == {
        "WAL per mail (1 worker)": False,
        "commits per mail (1 worker)": True,
        "PostgreSQL's CPU per mail (1 worker)": True,
    }


def test_a_goal_names_the_way_it_is_about() -> None:
    ready, rendered = "ready, http_post.py, 100 a call", "rendered, http_post.py, 100 a call"
    measured = [
        a_measurement(side, work="drain_batches", way=way, seconds=seconds)
        for side, way, seconds in (
            ("ours", ready, 1.0),
            ("ours", rendered, 2.0),
            ("floor", rendered, 1.0),
            ("pgqueuer", "ready, aiohttp session, one a call", 8.0),
            ("pgqueuer", "rendered, aiohttp session, one a call", 8.0),
        )
    ]
    found = {ratio.title: (ratio.found, ratio.goal, ratio.is_met) for ratio in judge(summarize(measured))}
    assert found == {
        "a hundred mails a POST against PgQueuer's one, ready on both sides": (8.0, 8, True),
        "a hundred mails a POST against PgQueuer's one, rendered on both sides": (4.0, 5, False),
        "a hundred mails a POST against the bare client, rendered on both sides": (0.5, 0.5, True),
    }


def test_of_several_ways_the_fastest_counts_and_is_named() -> None:
    measured = [
        a_measurement("ours", way="one a call", seconds=2.0),
        a_measurement("ours", way="100 a call", seconds=1.0),
        a_measurement("pgqueuer", way="one a call", seconds=3.0),
    ]
    [ratio] = judge(summarize(measured))
    assert (ratio.title, ratio.found) == ("no-op drain, one worker, 100 a call, against PgQueuer's one", 3.0)


def test_growth_is_the_largest_against_the_smallest_and_draws_a_curve() -> None:
    measured = [
        a_measurement(work="growth_claim", setting=f"{size:,} rows", more={"p50_s": p50, "p99_s": 2 * p50})
        for size, p50 in ((10_000, 0.002), (1_000_000, 0.005))
    ]
    [ratio] = judge(summarize(measured))
    assert (ratio.title, ratio.found, ratio.is_met) == ("claim, 1,000,000 rows against 10,000 rows, p50", 2.5, False)
    assert curves(to_document(RUN, measured)) == {"claim": [(10_000, 2.0, 4.0), (1_000_000, 5.0, 10.0)]}


def test_drains_of_one_worker_draw_bars_fastest_first() -> None:
    measured = [
        a_measurement("pgqueuer", way="one a call", seconds=2.0),
        a_measurement("ours", way="100 a call", seconds=1.0),
        a_measurement("ours", setting="2 workers", way="100 a call", seconds=0.5),
    ]
    found = bars(to_document(RUN, measured))
    assert found == {"drain_noop": [("notifier: 100 a call", 1_000.0), ("PgQueuer: one a call", 500.0)]}
