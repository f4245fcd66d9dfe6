"""The hot steps as history grows; autovacuum is running, and nothing else."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial

from notifier.proof.bench.figures import percentile
from notifier.proof.bench.filling import fill_history, fill_owed, user_of
from notifier.proof.bench.plan import Bench
from notifier.proof.bench.sides import OURS
from notifier.proof.bench.steps import CLAIM, GROUP, RELEASE, Steps, open_steps

OPEN_MAX = 1_000_000  # of each of scheduled and pending
CHUNK = 50_000
TIMES = 30
LOGINS = 100


async def growth(bench: Bench) -> None:
    """Fill a database for every size, then measure all of them in turn, round after round."""
    async with contextlib.AsyncExitStack() as stack:
        filled: list[tuple[int, str, Steps]] = []
        for size in bench.wish.growth:
            database = await stack.enter_async_context(bench.stage.database(OURS.name, ours=True))
            await _fill(bench, database, size)
            filled.append((size, database, await stack.enter_async_context(open_steps(bench.stage.url(database)))))
        for round_number in range(1, bench.wish.rounds + 1):
            for size, database, steps in filled:
                bench.stage.say(f"growth, {size:,} rows of history, round {round_number}")
                await _warm_up(bench, database)
                await _measure(bench, steps, size, round_number)


async def _fill(bench: Bench, database: str, size: int) -> None:
    waiting = min(size, OPEN_MAX)
    async with bench.stage.connected(database) as conn:
        for first in range(1, size + 1, CHUNK):
            last = min(first + CHUNK - 1, size)
            bench.stage.say(f"growth: filling {size:,} rows of history, {first - 1:,} are there")
            await fill_history(conn, first, last, waiting)
        owed = max(waiting, 2 * CLAIM * TIMES * bench.wish.rounds)
        for first in range(1, owed + 1, CHUNK):
            await fill_owed(conn, min(CHUNK, owed - first + 1), first, among_history=True)
        await conn.execute("VACUUM ANALYZE", timeout=3_600)
    await bench.stage.conn.execute("CHECKPOINT", timeout=3_600)


async def _warm_up(bench: Bench, database: str) -> None:
    """Have in memory what a claim meets in no order, whatever was filled or measured since: users."""
    async with bench.stage.connected(database) as conn:
        await conn.execute("CREATE EXTENSION IF NOT EXISTS pg_prewarm")
        for relation in ("users", "users_pkey"):
            await conn.execute("SELECT pg_prewarm($1::regclass)", relation, timeout=600)


async def _measure(bench: Bench, steps: Steps, size: int, round_number: int) -> None:
    times = 5 if bench.wish.quick else TIMES
    logins = 10 if bench.wish.quick else LOGINS
    first = 1 + (round_number - 1) * logins
    users = [user_of(number) for number in range(first, first + logins)]
    did: Mapping[str, tuple[int, Callable[[], Awaitable[Sequence[float]]]]] = {
        "claim": (CLAIM, partial(steps.claim, times)),
        "ingest": (GROUP, partial(steps.ingest, times)),
        "release": (RELEASE, partial(steps.release, times)),
        "login": (1, partial(steps.login, users)),
    }
    for step, (per_time, do) in did.items():
        before_s = await bench.stage.calm()
        took = await do()
        bench.add(
            f"growth_{step}",
            OURS.name,
            f"{size:,} rows",
            round_number,
            number=len(took) * per_time,
            seconds=sum(took),
            before_s=before_s,
            more={"p50_s": percentile(took, 0.5), "p99_s": percentile(took, 0.99)},
        )
