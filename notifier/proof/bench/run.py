"""One run: the works that are asked for, one after the other, on one stage."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import notifier
from notifier.proof.bench import peers_env
from notifier.proof.bench.machine import revision
from notifier.proof.bench.plan import Bench, Wish
from notifier.proof.bench.processes import SOURCE, driver
from notifier.proof.bench.sides import OURS
from notifier.proof.bench.stage import Stage, open_stage
from notifier.proof.bench.works import claims, drain, growth, ingest, latency, release

OURS_ALONE = ("latency", "release", "growth", "guards")

Work = Callable[[Bench], Awaitable[None]]


WORKS: Mapping[str, tuple[str, tuple[Work, ...]]] = {
    "ingest": (
        "events through the store, over HTTP and in batches",
        (ingest.ingest_store, ingest.ingest_http, ingest.ingest_batch),
    ),
    "noop": ("a backlog whose jobs do nothing", (drain.drain_noop,)),
    "http": ("a backlog, one POST a mail", (drain.drain_http,)),
    "batches": ("a backlog, a hundred mails to a POST", (drain.drain_batches,)),
    "latency": ("from event to inbox, busy and idle", (latency.latency, latency.idle)),
    "release": ("follow-ups due at one instant", (release.release,)),
    "growth": ("claim, ingest, release and login as history grows", (growth.growth, claims.hard_claims)),
    "guards": ("the price of each guard", (drain.price_of_guards,)),
}


async def run(wish: Wish, data_dir: Path, say: Callable[[str], None]) -> tuple[Bench, Mapping[str, str]]:
    """Do it; gives what was measured, and who ran in which version. Raises NotReady or Broken with why not."""
    python, own, skipped = None, sys.executable, []
    sides = list(wish.sides)
    if any(side.kind == "peer" for side in sides):
        python, own, version = await asyncio.to_thread(peers_env.make, data_dir, say)
        if version < peers_env.OBAN_NEEDS:
            sides = [side for side in sides if side.name != "oban"]
            skipped.append("Oban: it needs Python 3.12 or newer, and none was found")
    wish = wish.with_sides(sides)
    async with open_stage(say, own) as stage:
        bench = Bench(wish, stage, python, skipped=skipped)
        versions = await _versions(bench, stage)
        for name in wish.works:
            if name in OURS_ALONE and OURS not in wish.sides:
                bench.skipped.append(f"{name}: it is measured of {OURS.title} alone, which is not asked for")
                continue
            for work in WORKS[name][1]:
                await work(bench)
    return bench, versions


async def _versions(bench: Bench, stage: Stage) -> Mapping[str, str]:
    """Who is who. It is also the first look whether every side starts at all."""
    found = {"PostgreSQL": stage.version}
    for side in bench.wish.sides:
        async with driver(stage.folder, side.module, bench.python_of(side)) as talking:
            told = await talking.ask("hello")
        version = told["version"] if side.kind == "peer" else f"{notifier.version()} {revision(SOURCE)}".strip()
        found[side.title] = f"{version} (Python {told['python']})"
    return found
