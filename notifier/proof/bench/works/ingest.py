"""Events taken in: by callers in one process, over HTTP one by one, and over HTTP a thousand at a time."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

from notifier.proof.bench.plan import Bench
from notifier.proof.bench.processes import Broken, Talking, driver, service
from notifier.proof.bench.sides import FLOOR, OURS, Side

KEY = "bench-key"
HTTP_EVENTS = 3_000
BATCH = 1_000
WARM = 50  # events before the clock starts
BATCHES = 6
GROUP = 200  # events a commit of the smallest SQL
ALONE_DIVISOR = 8  # one caller waits for every commit, so it gets fewer events to put in
STORED = "SELECT count(*) FROM events"


async def ingest_store(bench: Bench) -> None:
    """Measure callers that each wait for their own commit, in one process; a peer's caller puts one job in."""
    for callers in bench.wish.callers:
        for round_number in range(1, bench.wish.rounds + 1):
            for side in bench.wish.sides:
                if side.kind == "floor" and callers != bench.wish.callers[-1]:
                    continue  # it knows no callers, only a group
                bench.stage.say(f"ingest, {callers} callers: {side.title}, round {round_number}")
                await _store(bench, side, callers, round_number)


async def _store(bench: Bench, side: Side, callers: int, round_number: int) -> None:
    stage = bench.stage
    usual = side.enqueue_number if callers > 1 else side.enqueue_number // ALONE_DIVISOR
    number = bench.wish.number(usual, GROUP if side.kind == "floor" else 1)
    async with (
        stage.database(side.name, ours=side.kind != "peer") as database,
        bench.drivers(side, side.enqueues) as [client],
    ):
        url = stage.url(database)
        if side.kind == "peer":
            await client.ask("prepare", database=url)
        before_s = await stage.calm()
        before = await stage.meter.read(database, {"service": [client.pid]})
        told = await client.ask(
            "enqueue", database=url, number=number, callers=GROUP if side.kind == "floor" else callers
        )
        after = await stage.meter.read(database, {"service": [client.pid]})
        cost = await stage.meter.cost(before, after)
        await _check_stored(bench, side, database, number)
    bench.add(
        "ingest_store",
        side.name,
        f"{GROUP} a commit" if side.kind == "floor" else f"{callers} caller{'s' if callers > 1 else ''}",
        round_number,
        number=number,
        seconds=told["seconds"],
        before_s=before_s,
        costs=cost.per(number),
        more={f"wait_{name}": told[name] for name in ("p50_s", "p99_s") if name in told},
    )


async def _check_stored(bench: Bench, side: Side, database: str, number: int) -> None:
    """See that all of it is there. Raises Broken."""
    async with bench.stage.connected(database) as conn:
        stored = await conn.fetchval(side.left if side.kind == "peer" else STORED)
        decided = 2 * number if side.kind == "peer" else await conn.fetchval("SELECT count(*) FROM outbox")
    if (stored, decided) != (number, 2 * number):
        raise Broken(f"{side.title}: {stored} rows and {decided} decisions were stored for {number} events")


async def ingest_http(bench: Bench) -> None:
    """Measure single requests to the API, beside a handler that parses the same JSON and does nothing."""
    for clients in bench.wish.clients:
        for round_number in range(1, bench.wish.rounds + 1):
            bench.stage.say(f"ingest over HTTP, {clients} clients, round {round_number}")
            if OURS in bench.wish.sides:
                async with bench.stage.database(OURS.name, ours=True) as database, api(bench, database) as ours:
                    await _http(bench, OURS, ours, database, clients, round_number)
            if FLOOR in bench.wish.sides:
                async with bare_api(bench) as floor:
                    await _http(bench, FLOOR, floor, "", clients, round_number)


async def ingest_batch(bench: Bench) -> None:
    """Measure the batch endpoint beside the smallest SQL with as many events a commit."""
    for round_number in range(1, bench.wish.rounds + 1):
        bench.stage.say(f"ingest in batches of {BATCH}, round {round_number}")
        if OURS in bench.wish.sides:
            async with bench.stage.database(OURS.name, ours=True) as database, api(bench, database) as ours:
                await _http(bench, OURS, ours, database, 1, round_number, batch=BATCH)
        if FLOOR in bench.wish.sides:
            async with bench.stage.database(FLOOR.name, ours=True) as database:
                await _smallest(bench, database, round_number)


async def _smallest(bench: Bench, database: str, round_number: int) -> None:
    stage, number = bench.stage, bench.wish.number(BATCHES * BATCH, BATCH)
    async with driver(stage.folder, FLOOR.enqueues, stage.python) as client:
        before_s = await stage.calm()
        before = await stage.meter.read(database, {"service": [client.pid]})
        told = await client.ask("enqueue", database=stage.url(database), number=number, callers=BATCH)
        cost = await stage.meter.cost(before, await stage.meter.read(database, {"service": [client.pid]}))
    await _check_stored(bench, FLOOR, database, number)
    bench.add(
        "ingest_batch",
        FLOOR.name,
        f"{BATCH} a batch",
        round_number,
        number=number,
        seconds=told["seconds"],
        before_s=before_s,
        costs=cost.per(number),
    )


async def _http(
    bench: Bench, side: Side, at: Mapping[str, Any], database: str, clients: int, round_number: int, batch: int = 0
) -> None:
    """One side, once. `at`: url and pid of what is asked."""
    stage = bench.stage
    usual = BATCHES * batch if batch else HTTP_EVENTS if clients > 1 else HTTP_EVENTS // ALONE_DIVISOR
    number, warm = bench.wish.number(usual, batch or 1), batch or WARM
    async with driver(stage.folder, "own.client", stage.python) as client:
        await client.ask("events", url=at["url"], key=KEY, number=warm, callers=1, batch=batch, tag="warm")
        before_s = await stage.calm()
        before = await stage.meter.read(database, {"service": [at["pid"]], "client": [client.pid]})
        told = await client.ask("events", url=at["url"], key=KEY, number=number, callers=clients, batch=batch)
        after = await stage.meter.read(database, {"service": [at["pid"]], "client": [client.pid]})
        cost = await stage.meter.cost(before, after)
    if database:
        await _check_stored(bench, side, database, number + warm)
    bench.add(
        "ingest_batch" if batch else "ingest_http",
        side.name,
        f"{batch} a batch" if batch else f"{clients} client{'s' if clients > 1 else ''}",
        round_number,
        number=number,
        seconds=told["seconds"],
        before_s=before_s,
        costs=cost.per(number),
        more={"wait_p50_s": told["p50_s"], "wait_p99_s": told["p99_s"]},
    )


@contextlib.asynccontextmanager
async def api(bench: Bench, database: str, *, redis: bool = True) -> AsyncIterator[Mapping[str, Any]]:
    """Start the real api on a database; gives its url and pid."""
    async with service(
        bench.stage.folder, bench.stage.python, "api", settings_of(bench, database, redis=redis)
    ) as note:
        yield note


def settings_of(bench: Bench, database: str, *, redis: bool = True) -> dict[str, str]:
    """What every process of the service is told."""
    stage = bench.stage
    return {
        "DATABASE_URL": stage.url(database),
        "REDIS_URL": stage.redis_url if redis else "",
        "MOCK_URL": stage.receiver_url,
        "API_KEYS": json.dumps({KEY: ["events", "read", "operate"]}),
        "API_PORT": "0",
        "DATA_DIR": str(stage.folder / "service"),
        "WORKER_CONCURRENCY": "100",
    }


@contextlib.asynccontextmanager
async def bare_api(bench: Bench) -> AsyncIterator[Mapping[str, Any]]:
    """Start the handler that does nothing; gives its url and pid."""
    async with driver(bench.stage.folder, "own.bare_api", bench.stage.python) as talking:
        bare: Talking = talking
        yield {**(await bare.ask("hello")), "pid": bare.pid}
