"""Claims in hard places: under a vacuum that may not clean up, and behind a million rows nobody may take."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from functools import partial

from notifier.proof.bench.figures import percentile
from notifier.proof.bench.filling import fill_owed, fill_waiting
from notifier.proof.bench.plan import Bench
from notifier.proof.bench.sides import OURS
from notifier.proof.bench.steps import CLAIM, Steps, open_steps

DEAD = 100_000
PAUSED = 1_000_000
TIMES = 50
CHUNK = 50_000


async def hard_claims(bench: Bench) -> None:
    """Make the places, then claim, and look, in each of them in turn."""
    async with (
        _usual(bench) as usual,
        _horizon_pinned(bench, _enough(bench)) as pinned,
        _horizon_pinned(bench, 0) as lightly,
        _paused_in_front(bench) as paused,
    ):
        for round_number in range(1, bench.wish.rounds + 1):
            for work, setting, per_time, do in (
                ("claim", "usual", CLAIM, usual.claim),
                ("claim", "horizon pinned, looking at all", CLAIM, partial(pinned.claim, looks=True)),
                ("claim", "horizon pinned, going on", CLAIM, pinned.claim),
                ("claim", "horizon pinned, light load", CLAIM, lightly.claim_what_comes),
                ("claim", "paused in front", CLAIM, paused.claim),
                ("look", "usual", 1, usual.look),
                ("look", "horizon pinned", 1, pinned.look),
                ("look", "paused in front", 1, paused.look),
            ):
                bench.stage.say(f"{work}, {setting}, round {round_number}")
                before_s = await bench.stage.calm()
                took = await do(_times(bench))
                bench.add(
                    work,
                    OURS.name,
                    setting,
                    round_number,
                    number=per_time * len(took),
                    seconds=sum(took),
                    before_s=before_s,
                    more={"p50_s": percentile(took, 0.5), "p99_s": percentile(took, 0.99)},
                )


def _times(bench: Bench) -> int:
    return 5 if bench.wish.quick else TIMES


def _enough(bench: Bench) -> int:
    """Rows for every claim of every round, of both ways."""
    return 2 * CLAIM * _times(bench) * bench.wish.rounds


@contextlib.asynccontextmanager
async def _usual(bench: Bench) -> AsyncIterator[Steps]:
    async with bench.stage.database(OURS.name, ours=True) as database:
        async with bench.stage.connected(database) as conn:
            await fill_owed(conn, _enough(bench))
            await conn.execute("VACUUM ANALYZE")
        async with open_steps(bench.stage.url(database)) as steps:
            yield steps


# What stood in front has gone, and an old transaction still sees it.
GO = """
    WITH x AS (DELETE FROM deliveries WHERE next_attempt_at < now() - interval '1 minute' RETURNING *)
    INSERT INTO settlements (id, user_id, kind, state, decided_by, evidence, generation)
    SELECT id, user_id, kind, 'sent', 'worker:bench', 'accepted', 1 FROM x
"""
IN_FRONT = "UPDATE deliveries SET next_attempt_at = now() - interval '1 hour'"


@contextlib.asynccontextmanager
async def _horizon_pinned(bench: Bench, owed: int) -> AsyncIterator[Steps]:
    dead = bench.wish.number(DEAD)
    async with (
        bench.stage.database(OURS.name, ours=True) as database,
        bench.stage.connected(database) as conn,
        bench.stage.connected(database) as old,
    ):
        bench.stage.say(f"claim: making {dead:,} dead rows")
        await fill_owed(conn, dead)
        await conn.execute(IN_FRONT, timeout=600)
        await conn.execute("VACUUM ANALYZE", timeout=600)
        await old.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        await old.fetchval("SELECT count(*) FROM installation")
        await conn.execute(GO, timeout=600)
        await fill_owed(conn, owed, dead + 1)
        async with open_steps(bench.stage.url(database)) as steps:
            yield steps


# The others, released.
MOVE_ALL = """
    WITH x AS (DELETE FROM scheduled_sends RETURNING *)
    INSERT INTO deliveries (id, user_id, kind, next_attempt_at) SELECT id, user_id, kind, now() FROM x
"""
PAUSE = """
    INSERT INTO switches (name, owner, reason, set_at, expires_at)
    VALUES ('pause:onboarding', 'bench', 'what is behind them', now(), now() + interval '1 day')
"""


@contextlib.asynccontextmanager
async def _paused_in_front(bench: Bench) -> AsyncIterator[Steps]:
    paused = bench.wish.number(PAUSED)
    async with bench.stage.database(OURS.name, ours=True) as database:
        async with bench.stage.connected(database) as conn:
            for first in range(1, paused + 1, CHUNK):
                bench.stage.say(f"claim: making {paused:,} paused rows, {first - 1:,} are there")
                await fill_owed(conn, min(CHUNK, paused - first + 1), first)
            await conn.execute(PAUSE)
            await fill_waiting(conn, _enough(bench), datetime.now(UTC) + timedelta(days=1))
            await conn.execute(MOVE_ALL, timeout=600)
            await conn.execute("VACUUM ANALYZE", timeout=600)
        async with open_steps(bench.stage.url(database)) as steps:
            yield steps
