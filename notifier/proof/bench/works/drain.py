"""A backlog, worked off: with a job that does nothing, and with one POST a mail; with 1, 2 and 4 workers."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from notifier.domain.message import Template
from notifier.journeys import load_journeys, load_templates
from notifier.proof.bench.filling import fill_owed
from notifier.proof.bench.meters import memory_mb
from notifier.proof.bench.own.bare import DATA
from notifier.proof.bench.plan import Bench
from notifier.proof.bench.processes import Broken, Talking
from notifier.proof.bench.sides import OURS, Drain, Side
from notifier.settings import Settings

WITHIN_S = 120.0
LOOK_S = 0.02
BROKEN_AFTER_S = 2.0  # how often drivers that do not count themselves are asked how they are
BODY = json.dumps({"from": "a@example.com", "to": ["b@example.com"], "subject": "Hello", "text": "x" * 1_200})


async def drain_noop(bench: Bench) -> None:
    """Measure how fast jobs that do nothing are taken and put away."""
    await _drain_all(bench, "noop")


async def drain_http(bench: Bench) -> None:
    """Measure how fast one call a mail gets out."""
    await _drain_all(bench, "http")


async def drain_batches(bench: Bench) -> None:
    """Measure how fast mails get out a hundred to a call."""
    await _drain_all(bench, "batches")


# What a guard costs is what the same drain takes without it. The record of the call that sent a mail cannot be left
# out: it stands in the row that says so.
PRICES: Mapping[str, Mapping[str, Any]] = {
    "all guards": {},
    "no lease (no Redis)": {"redis": ""},
    "begin for each mail (no keys)": {"keys": False},
}


async def price_of_guards(bench: Bench) -> None:
    """Measure what lease and begin cost, with jobs that do nothing, one by one."""
    drain = Drain(number=20_000, batch=500, slots=500)
    for round_number in range(1, bench.wish.rounds + 1):
        for setting, options in PRICES.items():
            bench.stage.say(f"price of guards: {setting}, round {round_number}")
            await _drain(bench, OURS, drain, "noop", 1, round_number, work="guards", setting=setting, options=options)


async def _drain_all(bench: Bench, job: str) -> None:
    for workers in bench.wish.workers:
        for round_number in range(1, bench.wish.rounds + 1):
            for side, drain in _in_turns(bench.wish.sides, job):
                chosen = drain
                if bench.wish.slots and job == "http" and side.kind != "peer":
                    chosen = replace(drain, slots=bench.wish.slots)
                bench.stage.say(f"drain, {job}, {_setting(workers)}: {side.title}, {chosen.way}, round {round_number}")
                await _drain(bench, side, chosen, job, workers, round_number)


def _in_turns(sides: Sequence[Side], job: str) -> list[tuple[Side, Drain]]:
    """Every side's first way, then every side's second, and so on."""
    ways = [[(side, drain) for drain in side.drains(job)] for side in sides]
    return [pair for turn in itertools.zip_longest(*ways) for pair in turn if pair is not None]


def _setting(workers: int) -> str:
    return f"{workers} worker{'s' if workers > 1 else ''}"


async def _drain(
    bench: Bench,
    side: Side,
    drain: Drain,
    job: str,
    workers: int,
    round_number: int,
    *,
    work: str | None = None,
    setting: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> None:
    """One side, once: fill, open, then measure from the word to begin to the last call, and see that all was done."""
    stage = bench.stage
    lot = drain.batch * workers if side.kind == "floor" else drain.batch
    number = bench.wish.number(drain.number, max(lot, drain.mails * workers))
    async with (
        stage.database(side.name, ours=side.kind != "peer") as database,
        bench.drivers(side, side.module, workers) as drivers,
    ):
        url = stage.url(database)
        before_s = await stage.calm()
        await _fill(bench, side, drivers[0], database, number, drain)
        await stage.receiver.ask("forget")
        for driver in drivers:
            more = {**_told(bench, side, drain), **(options or {})}
            await driver.ask(
                "open", database=url, job=job, url=stage.receiver_url, body=BODY, slots=drain.slots, **more
            )
        processes = {"service": [driver.pid for driver in drivers], "receiver": [stage.receiver.pid]}
        before = await stage.meter.read(database, processes)
        began = time.monotonic()
        await asyncio.gather(
            *(
                driver.ask("work", batch=number // workers if side.kind == "floor" else drain.batch, slots=drain.slots)
                for driver in drivers
            )
        )
        last = await _until_done(drivers if job == "noop" else [stage.receiver], drivers, number)
        looks, none_left = await _until_none_left(bench, side, database) if side.left else (0, last)
        after = await stage.meter.read(database, processes)
        memory = max(memory_mb(driver.pid) for driver in drivers)
        counts = [await driver.ask("count") for driver in drivers]
        for driver in drivers:
            await driver.ask("rest")
        cost = await stage.meter.cost(before, after)
        await _check(bench, side, job, database, number, sum(count["done"] for count in counts))
        bench.add(
            work or f"drain_{job}",
            side.name,
            setting or _setting(workers),
            round_number,
            number=number,
            seconds=(none_left if side.kind == "ours" else last) - began,
            before_s=before_s,
            costs=cost.without(looks).per(number),
            more={"memory_mb": memory},
            way=drain.way,
        )


def _told(bench: Bench, side: Side, drain: Drain) -> dict[str, Any]:
    """What only some drivers are told: ours and the floor how to send, a peer the template where it renders."""
    if side.kind == "peer":
        return {"template": asdict(our_template())} if drain.bodies == "rendered" else {}
    told: dict[str, Any] = {"mails": drain.mails, "bodies": drain.bodies, "client": drain.client}
    return told | ({"redis": bench.stage.redis_url} if side.kind == "ours" else {})


def our_template() -> Template:
    """Give the template of the mail that is owed."""
    settings = Settings()
    return load_templates(settings, load_journeys(settings))["onboarding"]


async def _fill(bench: Bench, side: Side, driver: Talking, database: str, number: int, drain: Drain) -> None:
    if side.kind == "floor":
        return
    if side.kind == "peer":
        await driver.ask("prepare", database=bench.stage.url(database))
        more = {"data": DATA} if drain.bodies == "rendered" else {}
        await driver.ask("fill", database=bench.stage.url(database), number=number, **more)
    async with bench.stage.connected(database) as conn:
        if side.kind == "ours":
            await fill_owed(conn, number)
        await conn.execute("VACUUM ANALYZE")  # else autovacuum does it, in the middle of one measurement or another


async def _until_done(counters: Sequence[Talking], drivers: Sequence[Talking], number: int) -> float:
    """Wait until all are done; gives when the last was (monotonic). Raises Broken when they are not in time."""
    deadline = time.monotonic() + WITHIN_S
    look_at = time.monotonic() + BROKEN_AFTER_S
    while True:
        counts = [await counter.ask("count") for counter in counters]
        if time.monotonic() > look_at:
            look_at = time.monotonic() + BROKEN_AFTER_S
            for driver in drivers:
                await driver.ask("count")  # one that broke says so
        done = sum(count["done"] for count in counts)
        if done >= number:
            return max(float(count["last"]) for count in counts)
        if time.monotonic() > deadline:
            raise Broken(f"{drivers[0].name} did {done} of {number} jobs in {WITHIN_S:g} s. {drivers[0].words()}")
        await asyncio.sleep(LOOK_S)


async def _until_none_left(bench: Bench, side: Side, database: str) -> tuple[int, float]:
    """Wait until what was done is put away, too; gives how many looks that took, and when. Raises Broken."""
    deadline = time.monotonic() + WITHIN_S
    looks = 1
    async with bench.stage.connected(database) as conn:
        while left := await conn.fetchval(side.left):
            if time.monotonic() > deadline:
                raise Broken(f"{side.title} did not put {left} done jobs away in {WITHIN_S:g} s")
            looks += 1
            await asyncio.sleep(LOOK_S)
    return looks, time.monotonic()


async def _check(bench: Bench, side: Side, job: str, database: str, number: int, done: int) -> None:
    """See that what is claimed to be done was done, each once. Raises Broken."""
    if job != "noop":
        seen = await bench.stage.receiver.ask("count")
        if seen["done"] != number or seen["keys"] != (number if job == "http" else seen["calls"]):
            raise Broken(f"{side.title}: the receiver got {seen['done']} mails under {seen['keys']} keys, not {number}")
    elif done != number:
        raise Broken(f"{side.title} did {done} jobs, not {number}")
    if side.kind == "ours":
        async with bench.stage.connected(database) as conn:
            sent = await conn.fetchval("SELECT count(*) FROM settlements WHERE state = 'sent'")
        if sent != number:
            raise Broken(f"{side.title}: {sent} of {number} mails were settled as sent")
