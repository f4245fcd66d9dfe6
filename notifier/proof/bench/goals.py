"""The ratios this service is held to, each between two figures of one run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from notifier.proof.bench.figures import Summary
from notifier.proof.bench.sides import BY_NAME, FLOOR, OURS, PEERS
from notifier.settings import Settings

PYTHON_PEERS = tuple(side.name for side in PEERS)
SESSION, LIGHT, _ = (drain.way for drain in OURS.http)
LOTS_READY, LOTS_RENDERED = (drain.way for drain in OURS.batches)
_, SESSION_RENDERED = (drain.way for drain in BY_NAME["pgqueuer"].batches)
assert [drain.way for drain in FLOOR.batches] == [LOTS_READY, LOTS_RENDERED]


@dataclass(frozen=True, slots=True)
class Ratio:
    """A goal and what was found. `at_least`: whether more is better."""

    title: str
    found: float
    goal: float
    at_least: bool
    unit: str = "×"

    @property
    def is_met(self) -> bool:
        """Whether it is."""
        return self.found >= self.goal if self.at_least else self.found <= self.goal


def judge(summaries: Sequence[Summary]) -> list[Ratio]:
    """Every goal whose figures this run has."""
    return [
        ratio for ratios in (_ingest, _drain, _batches, _costs, _waits, _growth) for ratio in ratios(_Found(summaries))
    ]


class _Found:
    """The summaries, by work, setting, side and way."""

    def __init__(self, summaries: Sequence[Summary]) -> None:
        self.all = list(summaries)

    def get(self, work: str, setting: str, side: str, way: str | None = None) -> Summary | None:
        """Give one; where no way is named, the side's fastest."""
        return self.best(work, [setting], [side], way)

    def best(self, work: str, settings: Sequence[str], sides: Sequence[str], way: str | None = None) -> Summary | None:
        """Give the fastest of several sides in any of several settings."""
        asked = [
            summary
            for summary in self.all
            if summary.work == work
            and summary.setting in settings
            and summary.side in sides
            and way in (None, summary.way)
        ]
        return max(asked, key=lambda summary: summary.rate, default=None)

    def settings(self, work: str) -> list[str]:
        """Give all settings of a work."""
        return list(dict.fromkeys(summary.setting for summary in self.all if summary.work == work))

    def times(
        self, title: str, ours: Summary | None, other: Summary | None, goal: float, of: Callable[[Summary], float]
    ) -> Iterator[Ratio]:
        if ours and other and of(other):
            yield Ratio(title, of(ours) / of(other), goal, at_least=True)


def _rate(summary: Summary) -> float:
    return summary.rate


def _ingest(found: _Found) -> Iterator[Ratio]:
    for callers, goal in ((20, 1.5), (200, 3.0)):
        setting = f"{callers} callers"
        ours, peer = found.get("ingest_store", setting, "ours"), found.best("ingest_store", [setting], PYTHON_PEERS)
        title = f"ingest, {setting}, against the best peer's single rows{_named(peer)}"
        yield from found.times(title, ours, peer, goal, _rate)
    for clients in (20, 100):
        setting = f"{clients} clients"
        ours, bare = (found.get("ingest_http", setting, side) for side in ("ours", "floor"))
        if ours and bare and bare.cpu_us.get("service"):
            ratio = ours.cpu_us["service"] / bare.cpu_us["service"]
            yield Ratio(
                f"api CPU per event, {setting}, against a handler that does nothing", ratio, 1.6, at_least=False
            )
    batch = [s for s in found.all if s.work == "ingest_batch"]
    ours, floor = (next((s for s in batch if s.side == side), None) for side in ("ours", "floor"))
    yield from found.times("batch endpoint against the smallest SQL", ours, floor, 0.5, _rate)


def _drain(found: _Found) -> Iterator[Ratio]:
    one, two = "1 worker", "2 workers"
    ours = found.get("drain_noop", one, "ours")
    for setting, number in ((one, "one"), (two, "two")):
        peer = found.get("drain_noop", setting, "pgqueuer")
        yield from found.times(
            f"no-op drain, one worker{_how(ours)}, against PgQueuer's {number}", ours, peer, 2.5, _rate
        )
    yield from found.times(
        f"no-op drain, one worker{_how(ours)}, against Oban's", ours, found.get("drain_noop", one, "oban"), 12, _rate
    )
    yield from found.times("two workers against one, no-op", found.get("drain_noop", two, "ours"), ours, 1.0, _rate)
    peer = found.get("drain_http", one, "pgqueuer")
    through = found.get("drain_http", one, "ours", SESSION)
    yield from found.times("a POST a mail, aiohttp session, against PgQueuer", through, peer, 1.5, _rate)
    floor = found.get("drain_http", one, "floor", SESSION)
    yield from found.times("a POST a mail, aiohttp session, against the bare session", through, floor, 0.9, _rate)
    light = found.get("drain_http", one, "ours", LIGHT)
    yield from found.times("a POST a mail, providers/http_post.py, against PgQueuer", light, peer, 2.5, _rate)


def _batches(found: _Found) -> Iterator[Ratio]:
    for (way, peers), goal in (((LOTS_READY, SESSION), 8), ((LOTS_RENDERED, SESSION_RENDERED), 5)):
        ours = found.get("drain_batches", "1 worker", "ours", way)
        peer = found.get("drain_batches", "1 worker", "pgqueuer", peers)
        bodies = "ready" if way == LOTS_READY else "rendered"
        yield from found.times(
            f"a hundred mails a POST against PgQueuer's one, {bodies} on both sides", ours, peer, goal, _rate
        )
    for way, bodies in ((LOTS_READY, "ready"), (LOTS_RENDERED, "rendered")):
        ours, floor = (found.get("drain_batches", "1 worker", side, way) for side in ("ours", "floor"))
        title = f"a hundred mails a POST against the bare client, {bodies} on both sides"
        yield from found.times(title, ours, floor, 0.5, _rate)


def _costs(found: _Found) -> Iterator[Ratio]:
    drained = found.best("drain_noop", found.settings("drain_noop"), ["ours"])
    if drained and "memory_mb" in drained.more:
        memory = max(s.more["memory_mb"] for s in found.all if s.side == "ours" and "memory_mb" in s.more)
        yield Ratio("a worker's memory, the most of all drains", memory, 120, at_least=False, unit="MB")
    if drained and drained.wal_bytes is not None and drained.commits is not None:
        where = f" ({drained.setting}{_how(drained)})"
        yield Ratio(f"WAL per mail{where}", drained.wal_bytes, 900, at_least=False, unit="B")
        yield Ratio(f"commits per mail{where}", drained.commits, 0.02, at_least=False, unit="")
        yield Ratio(f"PostgreSQL's CPU per mail{where}", drained.cpu_us["database"], 30, at_least=False, unit="µs")
    taken = found.get("ingest_store", "200 callers", "ours")
    if taken and taken.wal_bytes is not None:
        yield Ratio("WAL per event, 200 callers", taken.wal_bytes, 2_500, at_least=False, unit="B")
        yield Ratio("PostgreSQL's CPU per event, 200 callers", taken.cpu_us["database"], 100, at_least=False, unit="µs")


def _how(summary: Summary | None) -> str:
    return f", {summary.way}" if summary and summary.way else ""


def _named(summary: Summary | None) -> str:
    return f" ({BY_NAME[summary.side].title})" if summary else ""


def _waits(found: _Found) -> Iterator[Ratio]:
    for summary in found.all:
        if (summary.work, summary.setting) == ("latency", "half of capacity"):
            yield Ratio("api, from its start to ready", summary.more["api_start_s"], 1.5, at_least=False, unit="s")
        if (summary.work, summary.setting) == ("idle", "with Redis"):
            yield Ratio("idle, nudge to first call, p50", summary.more["nudge_p50_s"] * 1e3, 10, False, "ms")
            yield Ratio("idle, nudge to first call, p99", summary.more["nudge_p99_s"] * 1e3, 40, False, "ms")
            yield Ratio("an idle worker's statements a second", summary.more["statements_per_s"], 1.5, False, "")
        if (summary.work, summary.setting) == ("idle", "without Redis"):
            poll_ms = Settings.model_fields["poll_s"].default * 1e3
            yield Ratio(
                "idle without Redis, commit to first call, p99", summary.more["nudge_p99_s"] * 1e3, poll_ms, False, "ms"
            )
        if summary.work == "release":
            ratio = summary.more["last_accepted_s"] / summary.more["drain_alone_s"]
            yield Ratio("due at one instant: last accepted against the drain alone", ratio, 1.3, at_least=False)


def _growth(found: _Found) -> Iterator[Ratio]:
    grown: dict[str, list[Summary]] = {}
    for summary in found.all:
        if summary.work.startswith("growth_"):
            grown.setdefault(summary.work.removeprefix("growth_"), []).append(summary)
    for step, sizes in grown.items():
        if len(sizes) > 1:
            ratio = sizes[-1].more["p50_s"] / sizes[0].more["p50_s"]
            yield Ratio(f"{step}, {sizes[-1].setting} against {sizes[0].setting}, p50", ratio, 1.5, at_least=False)
    for setting, goal in (
        ("horizon pinned, looking at all", 2.0),
        ("horizon pinned, going on", 2.0),
        ("horizon pinned, light load", 2.0),
        ("paused in front", 1.5),
    ):
        usual, hard = found.get("claim", "usual", "ours"), found.get("claim", setting, "ours")
        if usual and hard:
            yield Ratio(f"claim, {setting}, p50", hard.more["p50_s"] / usual.more["p50_s"], goal, at_least=False)
