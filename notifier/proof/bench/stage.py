"""What every work stands on: one PostgreSQL that keeps its word, one Valkey, one receiver, and a database a try."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg
import psutil

from notifier import embedded
from notifier.embedded.process import make_data_dir
from notifier.proof.bench.meters import Meter, calibrate
from notifier.proof.bench.processes import Talking, driver
from notifier.proof.chaos import leftovers
from notifier.store.migrate import migrate

EXTENSIONS = ("pg_stat_statements", "pg_walinspect")
TEMPLATE = "bench_template"


def settings() -> Mapping[str, str]:
    """The server's, the same for everybody.

    A quarter of the machine's memory is its own, as PostgreSQL's manual advises: what a claim costs at millions of rows
    is else what the system's cache costs. The log is kept long enough to be read again; no checkpoint falls into a
    measurement.
    """
    return {
        "shared_buffers": f"{psutil.virtual_memory().total // 4 // 2**20}MB",
        "shared_preload_libraries": "pg_stat_statements",
        "max_wal_size": "8GB",
        "wal_keep_size": "2GB",
        "checkpoint_timeout": "1h",
        "pg_stat_statements.track_planning": "off",
    }


@dataclass(frozen=True, slots=True)
class Stage:
    """Servers that run, and what measures them. `python` runs what is ours; `say` tells whoever looks on."""

    folder: Path
    python: str
    postgres: embedded.Server
    redis_url: str
    receiver: Talking
    receiver_url: str
    meter: Meter
    conn: asyncpg.Connection
    say: Callable[[str], None]
    version: str
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    def url(self, database: str) -> str:
        """Where a database of this server is."""
        return f"{self.postgres.url.rpartition('/')[0]}/{database}"

    @contextlib.asynccontextmanager
    async def database(self, side: str, *, ours: bool) -> AsyncIterator[str]:
        """Give the name of a fresh database: with our schema, or empty. It is dropped at the end of the block."""
        name = f"bench_{side}_{next(self._numbers)}"
        how = f"TEMPLATE {TEMPLATE} STRATEGY wal_log" if ours else ""
        await self.conn.execute(f"CREATE DATABASE {name} {how}")
        try:
            yield name
        finally:
            await self.conn.execute(f"DROP DATABASE {name} WITH (FORCE)")

    @contextlib.asynccontextmanager
    async def connected(self, database: str) -> AsyncIterator[Any]:
        """Lend a connection to a database, as a service's own would be."""
        conn = await asyncpg.connect(
            self.url(database),
            server_settings={"plan_cache_mode": "force_generic_plan", "enable_seqscan": "off", "jit": "off"},
        )
        try:
            yield conn
        finally:
            await conn.close()

    async def calm(self) -> float:
        """Write out what earlier tries left behind, then say what the machine is worth: seconds of the loop."""
        await self.conn.execute("CHECKPOINT")
        return calibrate()


@contextlib.asynccontextmanager
async def open_stage(say: Callable[[str], None], python: str) -> AsyncIterator[Stage]:
    """Start the servers; they end with the block, whatever ended that. Raises NotReady with what to do."""
    folder = leftovers.make_folder()
    try:
        async with contextlib.AsyncExitStack() as stack:
            data = make_data_dir(folder / leftovers.DATA)
            say("starting PostgreSQL and Valkey")
            postgres = await embedded.start_postgres(data, durable=True, settings=settings())
            leftovers.note_started(folder, postgres.pid)
            stack.push_async_callback(embedded.stop, postgres)
            valkey = await embedded.start_valkey(data)
            leftovers.note_started(folder, valkey.pid)
            stack.push_async_callback(embedded.stop, valkey)
            conn = await asyncpg.connect(postgres.url)
            stack.push_async_callback(conn.close)
            for name in EXTENSIONS:
                await conn.execute(f"CREATE EXTENSION {name}")
            await conn.execute(f"CREATE DATABASE {TEMPLATE}")
            await migrate(f"{postgres.url.rpartition('/')[0]}/{TEMPLATE}")
            receiver = await stack.enter_async_context(driver(folder, "own.receiver", python))
            yield Stage(
                folder=folder,
                python=python,
                postgres=postgres,
                redis_url=valkey.url,
                receiver=receiver,
                receiver_url=(await receiver.ask("hello"))["url"],
                meter=Meter(conn, postgres.pid),
                conn=conn,
                say=say,
                version=await conn.fetchval("SHOW server_version"),
            )
    finally:
        await asyncio.to_thread(leftovers.clear, folder)
