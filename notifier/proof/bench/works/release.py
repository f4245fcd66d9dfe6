"""Follow-ups that are all due at one instant, against the same mails ready to go."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime

from notifier.coordination.client import RedisClient
from notifier.coordination.wakeup import Wakeup
from notifier.proof.bench.figures import percentile
from notifier.proof.bench.filling import fill_owed, fill_waiting
from notifier.proof.bench.plan import Bench
from notifier.proof.bench.processes import Broken, service
from notifier.proof.bench.sides import OURS
from notifier.proof.bench.works.ingest import settings_of
from notifier.proof.bench.works.latency import arrived

NUMBER = 20_000
WORKERS = 2
WITHIN_S = 300.0
LEAD_S = 3.0
FILLED_PER_S = 4_000  # slower than any machine that is worth measuring


async def release(bench: Bench) -> None:
    """Measure both, one after the other, in each round."""
    number = bench.wish.number(NUMBER)
    for round_number in range(1, bench.wish.rounds + 1):
        bench.stage.say(f"release, round {round_number}: {number} mails that are ready")
        alone_s = await _ready(bench, number)
        bench.stage.say(f"release, round {round_number}: {number} follow-ups due at one instant")
        before_s = await bench.stage.calm()
        late = await _due_at_once(bench, number)
        bench.add(
            "release",
            OURS.name,
            f"{number} due, {WORKERS} workers",
            round_number,
            number=number,
            seconds=max(late),
            before_s=before_s,
            more={
                "late_p50_s": percentile(late, 0.5),
                "late_p99_s": percentile(late, 0.99),
                "last_accepted_s": max(late),
                "drain_alone_s": alone_s,
            },
        )


@contextlib.asynccontextmanager
async def _working(bench: Bench, *commands: str) -> AsyncIterator[str]:
    """A database with workers, and whatever else, that idle."""
    async with contextlib.AsyncExitStack() as stack:
        database = await stack.enter_async_context(bench.stage.database(OURS.name, ours=True))
        for command in (*commands, *["worker"] * WORKERS):
            await stack.enter_async_context(
                service(bench.stage.folder, bench.stage.python, command, settings_of(bench, database))
            )
        yield database


async def _ready(bench: Bench, number: int) -> float:
    """Seconds from the commit of that many owed mails to the last accepted one."""
    await bench.stage.receiver.ask("forget")
    async with _working(bench) as database:
        async with bench.stage.connected(database) as conn:
            await fill_owed(conn, number)
        began = time.monotonic()
        await _nudge(bench)
        count = await arrived(bench, number, WITHIN_S)
    return float(count["last"]) - began


async def _nudge(bench: Bench) -> None:
    client = RedisClient(bench.stage.redis_url)
    wakeup = Wakeup(client, bench.stage.redis_url)
    wakeup.nudge()
    await wakeup.flush()
    await client.close()


async def _due_at_once(bench: Bench, number: int) -> list[float]:
    """Seconds by which each came after the instant."""
    await bench.stage.receiver.ask("forget", by_user=True)
    async with _working(bench, "scheduler") as database:
        lead_s = LEAD_S + number / FILLED_PER_S
        due_at, due = datetime.fromtimestamp(time.time() + lead_s, UTC), time.monotonic() + lead_s
        async with bench.stage.connected(database) as conn:
            await fill_waiting(conn, number, due_at)
        if time.monotonic() > due:
            raise Broken(f"{number} follow-ups were not written within {lead_s:g} s, so some were late from the start")
        await asyncio.sleep(due - time.monotonic())
        await arrived(bench, number, WITHIN_S)
    users = (await bench.stage.receiver.ask("users"))["users"]
    return [times[0] - due for times in users.values()]
