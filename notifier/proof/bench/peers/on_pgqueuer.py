"""PgQueuer, with its asyncpg driver: a pool to enqueue, one connection and large batches to work."""

from __future__ import annotations

import asyncio
import importlib.metadata
import json
import platform
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import asyncpg
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver, AsyncpgPoolDriver
from pgqueuer.queries import Queries

from notifier.proof.bench.peers.letter import Letter
from notifier.proof.bench.peers.over_http import Poster
from notifier.proof.bench.peers.talk import Count, each_of, talk

POOL = 20
FILL = 1_000


class OnPgQueuer:
    """A driver of PgQueuer."""

    def __init__(self) -> None:
        self._count = Count()
        self._worker: Any = None
        self._working: asyncio.Task[None] | None = None
        self._conn: Any = None
        self._poster: Poster | None = None

    async def hello(self) -> Mapping[str, Any]:
        """Say which versions run here."""
        return {"python": platform.python_version(), "version": importlib.metadata.version("pgqueuer")}

    async def prepare(self, database: str) -> Mapping[str, Any]:
        """Make the tables, durable as the library's default has them."""
        conn = await asyncpg.connect(database)
        await Queries.from_asyncpg_connection(conn).install()
        await conn.close()
        return {}

    async def enqueue(self, database: str, number: int, callers: int) -> Mapping[str, Any]:
        """Put jobs in, one row and one commit each."""
        async with asyncpg.create_pool(database, min_size=min(callers, POOL), max_size=POOL) as pool:
            queries = Queries(AsyncpgPoolDriver(pool))
            return await each_of(number, callers, lambda index: queries.enqueue(["mail"], [b"%d" % index], [0]))

    async def fill(self, database: str, number: int, data: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
        """Put a backlog in; with what a template asks for where each job is to render its mail."""
        conn = await asyncpg.connect(database)
        queries = Queries.from_asyncpg_connection(conn)
        for start in range(0, number, FILL):
            many = range(start, min(start + FILL, number))
            payloads = [_payload(index, data) for index in many]
            await queries.enqueue(["mail"] * len(many), payloads, [0] * len(many))
        await conn.close()
        return {}

    async def open(
        self,
        database: str,
        job: str,
        url: str,
        body: str,
        slots: int,
        template: Mapping[str, str] | None = None,
    ) -> Mapping[str, Any]:
        """Get ready to work: with the body as it is, or with a template that each job fills in."""
        self._conn = await asyncpg.connect(database)
        self._worker = PgQueuer(AsyncpgDriver(self._conn))
        if job != "noop":
            self._poster = Poster(url, body, slots)
        letter = Letter(template) if template is not None else None

        async def mail(job: Any) -> None:
            if self._poster is not None:
                if letter is None:
                    await self._poster.post(job.payload.decode())
                else:
                    payload = json.loads(job.payload)
                    await self._poster.post(str(payload["n"]), body=letter.body(payload["to"], payload["data"]))
            self._count.add()

        self._worker.entrypoint("mail")(mail)
        return {}

    async def work(self, batch: int, slots: int) -> Mapping[str, Any]:
        """Begin to take jobs; `slots` is how many may be in hand at once."""
        in_hand = None if self._poster is None else max(slots, 2 * batch)
        self._working = asyncio.create_task(
            self._worker.qm.run(dequeue_timeout=timedelta(seconds=1), batch_size=batch, max_concurrent_tasks=in_hand)
        )
        return {}

    async def count(self) -> Mapping[str, Any]:
        """Say how many jobs were done here."""
        if self._working is not None and self._working.done():
            await self._working  # says what ended it
        return self._count.told()

    async def rest(self) -> Mapping[str, Any]:
        """Stop working and let go of everything."""
        if self._working is not None:
            self._worker.shutdown.set()
            await self._working
            self._working = None
        if self._poster is not None:
            await self._poster.close()
        if self._conn is not None:
            await self._conn.close()
            self._conn = None
        return {}


def _payload(index: int, data: Mapping[str, Any] | None) -> bytes:
    if data is None:
        return b"%d" % index
    return json.dumps({"n": index, "to": f"u{index}@example.com", "data": data}).encode()


if __name__ == "__main__":
    talk(OnPgQueuer())
