"""From event to inbox: at a steady rate, and when nothing else goes on."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping, Sequence
from typing import Any

from notifier.proof.bench.figures import percentile
from notifier.proof.bench.plan import Bench
from notifier.proof.bench.processes import Broken, driver, service
from notifier.proof.bench.sides import OURS
from notifier.proof.bench.works.ingest import KEY, api, settings_of

WITHIN_S = 60.0
LOOK_S = 0.02
BURST = 3_000
SHARES = ((0.1, "a tenth of capacity"), (0.5, "half of capacity"))
SECONDS = 10.0
IDLE_EVENTS = 60
IDLE_PER_S = 2.7  # no whole number of these in a poll interval
IDLE_S = 20.0


async def latency(bench: Bench) -> None:
    """Find the capacity of api, one worker and the receiver, then send at a tenth and at half of it."""
    stage, seconds = bench.stage, SECONDS * (0.2 if bench.wish.quick else 1)
    for round_number in range(1, bench.wish.rounds + 1):
        async with contextlib.AsyncExitStack() as stack:
            database = await stack.enter_async_context(stage.database(OURS.name, ours=True))
            began = time.monotonic()
            at = await stack.enter_async_context(api(bench, database))
            api_start_s = time.monotonic() - began
            await stack.enter_async_context(service(stage.folder, stage.python, "worker", settings_of(bench, database)))
            client = await stack.enter_async_context(driver(stage.folder, "own.client", stage.python))
            stage.say(f"latency, round {round_number}: finding the capacity")
            number = bench.wish.number(BURST)
            await stage.receiver.ask("forget")
            began = time.monotonic()
            await client.ask("events", url=at["url"], key=KEY, number=number, callers=100, tag="burst")
            capacity = number / ((await arrived(bench, number))["last"] - began)
            for share, setting in SHARES:
                stage.say(f"latency, round {round_number}: {setting}, {share * capacity:.0f} events a second")
                before_s = await stage.calm()
                sent, came = await _paced(bench, client, at["url"], share * capacity, seconds, f"s{share}")
                waits = [came[user] - due for user, (due, _) in sent.items()]
                bench.add(
                    "latency",
                    OURS.name,
                    setting,
                    round_number,
                    number=len(waits),
                    seconds=seconds,
                    before_s=before_s,
                    more={
                        "p50_s": percentile(waits, 0.5),
                        "p99_s": percentile(waits, 0.99),
                        "capacity_per_s": capacity,
                        "api_start_s": api_start_s,
                    },
                )


async def _paced(
    bench: Bench, client: Any, url: str, per_second: float, seconds: float, tag: str
) -> tuple[Mapping[str, Sequence[float]], Mapping[str, float]]:
    """Send so many a second; gives when each was due and answered, and when its mail came."""
    await bench.stage.receiver.ask("forget", by_user=True)
    number = max(1, round(per_second * seconds))
    told = await client.ask("paced", url=url, key=KEY, number=number, per_second=per_second, tag=tag)
    await arrived(bench, number)
    users = (await bench.stage.receiver.ask("users"))["users"]
    return told["sent"], {user: times[0] for user, times in users.items()}


async def arrived(bench: Bench, number: int, within_s: float = WITHIN_S) -> dict[str, Any]:
    """Wait until the receiver has so many mails; gives its count. Raises Broken."""
    deadline = time.monotonic() + within_s
    while (count := await bench.stage.receiver.ask("count"))["done"] < number:
        if time.monotonic() > deadline:
            raise Broken(f"the receiver got {count['done']} of {number} mails in {within_s:g} s")
        await asyncio.sleep(LOOK_S)
    if (count["done"], count["keys"]) != (number, number):
        raise Broken(f"the receiver got {count['done']} mails under {count['keys']} keys instead of {number}")
    return count


async def idle(bench: Bench) -> None:
    """Send one event now and then: how long until its call begins; then count what an idle worker asks."""
    stage, events = bench.stage, IDLE_EVENTS // (6 if bench.wish.quick else 1)
    idle_s = IDLE_S / (10 if bench.wish.quick else 1)
    for round_number in range(1, bench.wish.rounds + 1):
        for redis in (True, False):
            setting = "with Redis" if redis else "without Redis"
            stage.say(f"idle {setting}, round {round_number}")
            async with (
                stage.database(OURS.name, ours=True) as database,
                service(stage.folder, stage.python, "worker", settings_of(bench, database, redis=redis)) as worker,
            ):
                async with (
                    api(bench, database, redis=redis) as at,
                    driver(stage.folder, "own.client", stage.python) as client,
                ):
                    before_s = await stage.calm()
                    sent, came = await _paced(bench, client, at["url"], IDLE_PER_S, events / IDLE_PER_S, "idle")
                before = await stage.meter.read(database, {"service": [worker["pid"]]})
                await asyncio.sleep(idle_s)
                after = await stage.meter.read(database, {"service": [worker["pid"]]})
                cost = await stage.meter.cost(before, after)
            nudged = [max(0.0, came[user] - answered) for user, (_, answered) in sent.items()]
            waits = [came[user] - due for user, (due, _) in sent.items()]
            bench.add(
                "idle",
                OURS.name,
                setting,
                round_number,
                number=len(waits),
                seconds=events / IDLE_PER_S,
                before_s=before_s,
                more={
                    "nudge_p50_s": percentile(nudged, 0.5),
                    "nudge_p99_s": percentile(nudged, 0.99),
                    "inbox_p50_s": percentile(waits, 0.5),
                    "inbox_p99_s": percentile(waits, 0.99),
                    "statements_per_s": cost.statements / cost.seconds,
                    "worker_cpu_percent": 100 * cost.cpu_s["service"] / cost.seconds,
                },
            )
