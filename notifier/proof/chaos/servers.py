"""The stage's PostgreSQL and Valkey: on ports that stay theirs, with what it takes to break and mend them."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import asyncpg
from redis.asyncio import Redis
from redis.exceptions import RedisError

from notifier import embedded
from notifier.domain.errors import NotReady
from notifier.embedded.process import gone, make_data_dir, write_private
from notifier.proof.chaos.leftovers import note_started
from notifier.proof.chaos.note import Note, Role, SignalName
from notifier.proof.chaos.proxy import fixed_port

ANSWER_WITHIN_S = 30.0
ASK_WITHIN_S = 3.0
QUIT_WITHIN_S = 6.0  # PostgreSQL gives its own processes five
LOOK_S = 0.1
_NUMBERS: Mapping[SignalName, signal.Signals] = {
    "TERM": signal.SIGTERM,
    "KILL": signal.SIGKILL,
    "STOP": signal.SIGSTOP,
    "CONT": signal.SIGCONT,
    "QUIT": signal.SIGQUIT,
}


class _Server:
    role: Role

    def __init__(self, folder: Path, data: Path, note: Note) -> None:
        self._folder = folder
        self._data = make_data_dir(data)
        self._note = note
        self._server: embedded.Server | None = None
        self._is_frozen = False

    @property
    def url(self) -> str:
        assert self._server is not None, "it was started once"
        return self._server.url

    @property
    def port(self) -> int:
        assert self._server is not None, "it was started once"
        return self._server.port

    @property
    def is_alive(self) -> bool:
        return self._server is not None and embedded.alive(self._server)

    async def start(self) -> None:
        """Start it, on the port it had. Raises NotReady."""
        if self.is_alive:
            return
        if self._server is None:  # both look there for the port they had
            write_private(self._data / self._file, json.dumps({"port": fixed_port()}) + "\n")
        before, server = self._server, await self._launch()
        if before is not None and before.port != server.port:
            raise NotReady(f"somebody took port {before.port} while {self.role} was down: run again")
        self._server, self._is_frozen = server, False
        note_started(self._folder, server.pid)
        self._signalled("START")

    async def thaw(self) -> None:
        """Let it go on, if it was told to freeze: a busy machine may be yet to do that."""
        if self._is_frozen:
            await self.signal("CONT")

    async def signal(self, name: SignalName) -> None:
        """Send a signal to the server's first process; what ends it is waited for."""
        if (server := self._server) is None or not embedded.alive(server):
            return
        self._signalled(name)
        self._is_frozen = name == "STOP"
        os.kill(server.pid, _NUMBERS[name])
        if name not in ("STOP", "CONT"):
            await gone(server, ANSWER_WITHIN_S)

    async def stop(self) -> None:
        """End it at once: nobody needs its data any more. Nothing of this is noted."""
        if (server := self._server) is None or not embedded.alive(server):
            return
        for number in (signal.SIGQUIT, signal.SIGCONT):  # PostgreSQL lets go of its shared memory, Valkey just ends
            os.kill(server.pid, number)
        if not await gone(server, QUIT_WITHIN_S):
            os.kill(server.pid, signal.SIGKILL)
            await gone(server, QUIT_WITHIN_S)

    def _signalled(self, name: SignalName) -> None:
        assert self._server is not None
        by = "" if name == "START" else "schedule"
        self._note.signal(process=self.role, role=self.role, pid=self._server.pid, signal=name, by=by)

    @property
    def _file(self) -> str:
        raise NotImplementedError

    async def _launch(self) -> embedded.Server:
        raise NotImplementedError


class Postgres(_Server):
    """A PostgreSQL that keeps its word over kill -9."""

    role: Role = "postgres"
    _file = "postgres.json"

    async def _launch(self) -> embedded.Server:
        return await embedded.start_postgres(self._data, durable=True)

    async def recover_fast(self) -> None:
        """Let recovery sync the file system once instead of a thousand files: seconds less of nothing but waiting."""
        await self.ask("ALTER SYSTEM SET recovery_init_sync_method = syncfs")
        await self.ask("SELECT pg_reload_conf()")

    async def kill_backend(self, pick: float) -> int | None:
        """SIGKILL one session's process, whichever `pick` in [0, 1) points at; PostgreSQL then restarts them all."""
        rows = await self.ask(
            "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() "
            "ORDER BY xact_start NULLS LAST, pid"
        )
        if not rows:
            return None
        pid: int = rows[int(pick * len(rows))]["pid"]
        self._note.signal(process="postgres backend", role=self.role, pid=pid, signal="KILL", by="schedule")
        os.kill(pid, signal.SIGKILL)
        return pid

    async def set_read_only(self, wanted: bool) -> None:
        """Let every transaction that begins from now on be read-only, in sessions that are open too; or no more."""
        await self.ask(
            f"ALTER SYSTEM {'SET' if wanted else 'RESET'} default_transaction_read_only{' = on' if wanted else ''}"
        )
        await self.ask("SELECT pg_reload_conf()")

    async def ask(self, statement: str) -> list[Any]:
        """Run one statement that may be run twice, whatever default the server has for others, once it answers.

        Raises TimeoutError.
        """
        async with asyncio.timeout(ANSWER_WITHIN_S):
            while True:
                try:
                    return await self._ask_once(statement)
                except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
                    await asyncio.sleep(LOOK_S)  # going down, coming up, or the machine is busy

    async def _ask_once(self, statement: str) -> list[Any]:
        conn = await asyncpg.connect(
            self.url, timeout=ASK_WITHIN_S, server_settings={"default_transaction_read_only": "off"}
        )
        try:
            rows: list[Any] = await conn.fetch(statement, timeout=ASK_WITHIN_S)
            return rows
        finally:
            conn.terminate()

    async def answers(self) -> None:
        """Wait until it takes connections. Raises TimeoutError."""
        await self.ask("SELECT 1")


class Valkey(_Server):
    """A Redis that forgets everything when it ends."""

    role: Role = "redis"
    _file = "valkey.json"

    async def _launch(self) -> embedded.Server:
        return await embedded.start_valkey(self._data)

    async def command(self, *words: str) -> None:
        """Run one command. Raises RedisError."""
        client: Any = Redis.from_url(self.url, socket_timeout=ASK_WITHIN_S)
        async with client:
            await client.execute_command(*words)

    async def restore_memory(self) -> None:
        """Give it room again, and the policy it was started with."""
        try:
            await self.command("CONFIG", "SET", "maxmemory", "64mb", "maxmemory-policy", "volatile-ttl")
        except RedisError:
            if self.is_alive:
                raise  # one that has ended comes back with its own settings
