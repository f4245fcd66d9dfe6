"""The databases of a run: embedded ones are started, watched and stopped, given ones are used as they are."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import structlog

from notifier import embedded
from notifier.domain.errors import NotReady
from notifier.settings import Settings
from notifier.store import migrate

WATCH_S = 0.2
BACKOFF_FIRST_S = 0.2
BACKOFF_MAX_S = 5.0

log = structlog.get_logger(__name__)


class Databases:
    """PostgreSQL and Valkey; `postgres` and `valkey` are None where the configuration names a server."""

    def __init__(self, settings: Settings, data_dir: Path) -> None:
        self._settings = settings
        self._data_dir = data_dir
        self.postgres: embedded.Server | None = None
        self.valkey: embedded.Server | None = None

    @property
    def database_url(self) -> str:
        """Where everybody finds PostgreSQL."""
        return self._settings.database_url or (self.postgres.url if self.postgres else "")

    @property
    def redis_url(self) -> str:
        """Where everybody finds Redis; empty: we do without."""
        return self._settings.redis_url or (self.valkey.url if self.valkey else "")

    async def start(self) -> None:
        """Start what is ours, and bring the schema up to date."""
        async with asyncio.TaskGroup() as group:
            if self._settings.redis_url is None:
                group.create_task(self._start_valkey())
            group.create_task(self._start_postgres())

    async def _start_postgres(self) -> None:
        if not self._settings.database_url:
            first_time = not (self._data_dir / "postgres.json").exists()
            loading = asyncio.create_task(migrate.preload()) if first_time else None
            self.postgres = await embedded.start_postgres(self._data_dir)
            if loading:
                await loading
        await migrate.migrate(self.database_url)

    async def _start_valkey(self) -> None:
        self.valkey = await embedded.start_valkey(self._data_dir)

    async def watch(self, changed: Callable[[], None]) -> None:
        """Start again what dies; `changed` is called when something did, with the new addresses in place."""
        async with asyncio.TaskGroup() as group:
            if self.postgres:
                group.create_task(self._watch("postgres", self.postgres, changed))
            if self.valkey:
                group.create_task(self._watch("valkey", self.valkey, changed))

    async def _watch(self, name: str, server: embedded.Server, changed: Callable[[], None]) -> None:
        delay_s = BACKOFF_FIRST_S
        while True:
            while embedded.alive(server):
                await asyncio.sleep(WATCH_S)
                delay_s = BACKOFF_FIRST_S
            log.warning("database.ended", server=name, pid=server.pid)
            try:
                server = await self._start_again(name)
            except NotReady as error:
                log.error("database.away", server=name, why=str(error), again_in_s=delay_s)
                await asyncio.sleep(delay_s)
                delay_s = min(delay_s * 2, BACKOFF_MAX_S)
                continue
            log.info("database.back", server=name, pid=server.pid, port=server.port)
            changed()

    async def _start_again(self, name: str) -> embedded.Server:
        if name == "postgres":
            self.postgres = await embedded.start_postgres(self._data_dir)
            return self.postgres
        self.valkey = await embedded.start_valkey(self._data_dir)
        return self.valkey

    async def stop(self) -> None:
        """Stop what is ours, PostgreSQL last."""
        for server in (self.valkey, self.postgres):
            if server:
                await embedded.stop(server)
