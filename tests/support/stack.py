"""Real processes of the service, started, killed, frozen and asked from outside."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import secrets
import signal
import sys
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import asyncpg
from standardwebhooks import Webhook

KEY = "test-key"
SECRET = "whsec_" + base64.b64encode(b"a secret of the tests, 32 bytes!").decode()
DEADLINE_S = 30.0
TIMINGS = {
    "NOTIFIER_CLAIM_TTL_S": "3",
    "NOTIFIER_PROVIDER_TIMEOUT_S": "1",
    "NOTIFIER_BACKOFF_MAX_S": "3",
    "NOTIFIER_POLL_S": "0.5",
}


@dataclass(slots=True)
class Process:
    """One process of the service."""

    name: str
    handle: asyncio.subprocess.Process
    ready_file: Path
    log: Path
    url: str = ""

    @property
    def pid(self) -> int:
        return self.handle.pid

    @property
    def is_alive(self) -> bool:
        return self.handle.returncode is None

    @property
    def is_frozen(self) -> bool:
        return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"

    def signal(self, number: signal.Signals) -> None:
        if self.is_alive:
            self.handle.send_signal(number)

    async def ended(self, timeout: float = DEADLINE_S) -> int:
        async with asyncio.timeout(timeout):
            return await self.handle.wait()

    async def stop(self) -> int:
        """SIGTERM, and the exit code."""
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGTERM)
        return await self.ended()


@dataclass(slots=True)
class Stack:
    """An installation of its own: processes, keys, and questions from outside."""

    folder: Path
    environ: dict[str, str]
    http: aiohttp.ClientSession
    parent_fd: int  # its other end is ours: if the test run is killed, what it started stops by itself
    processes: list[Process] = field(default_factory=list)
    asking: tuple[str, asyncpg.Connection] | None = None

    async def start(self, command: str, name: str = "", **settings: str) -> Process:
        """Start one process and wait until it answers; `settings` without the prefix."""
        name = name or f"{command}-{len(self.processes)}"
        ready_file, log = self.folder / f"{name}.json", self.folder / f"{name}.log"
        ready_file.unlink(missing_ok=True)  # of an earlier start under this name
        own = {f"NOTIFIER_{key}": value for key, value in settings.items()}
        with log.open("ab") as output:
            handle = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "notifier",
                command,
                "--ready-file",
                str(ready_file),
                "--parent-fd",
                str(self.parent_fd),
                pass_fds=[self.parent_fd],
                env={**self.environ, **own},
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        process = Process(name, handle, ready_file, log)
        self.processes.append(process)
        await until(lambda: ready_file.exists() or not process.is_alive, f"{name} answers")
        assert process.is_alive, f"{name} ended: {log.read_text()[-2000:]}"
        process.url = json.loads(ready_file.read_text())["url"]
        return process

    async def start_all(self, *, workers: int = 1, **settings: str) -> None:
        """Mock provider first, then the others side by side."""
        mock = await self.start("mock-provider", "mock", **settings)
        self.environ["NOTIFIER_MOCK_URL"] = mock.url
        if self.environ.get("NOTIFIER_PROVIDER") == "smtp" and "NOTIFIER_SMTP_HOST" not in self.environ:
            listener = urlsplit(json.loads(mock.ready_file.read_text())["smtp"])
            self.environ |= {"NOTIFIER_SMTP_HOST": str(listener.hostname), "NOTIFIER_SMTP_PORT": str(listener.port)}
        await asyncio.gather(
            self.start("api", "api", **settings),
            self.start("scheduler", "scheduler", **settings),
            *(self.start("worker", f"worker-{number}", **settings) for number in range(workers)),
        )

    def __getitem__(self, name: str) -> Process:
        return next(process for process in reversed(self.processes) if process.name == name)

    # ------------------------------------------------------------------------------------------ the service

    async def post(self, path: str, document: Any, *, api: str = "api", **headers: str) -> tuple[int, dict[str, Any]]:
        data = document if isinstance(document, bytes) else json.dumps(document).encode()
        headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json", **headers}
        async with self.http.post(self[api].url + path, data=data, headers=headers) as response:
            return response.status, json.loads(await response.read() or b"{}")

    async def get(self, path: str) -> tuple[int, Any]:
        async with self.http.get(self["api"].url + path, headers={"Authorization": f"Bearer {KEY}"}) as response:
            return response.status, json.loads(await response.read())

    async def event(self, type_: str, person: str, *, id_: str = "", api: str = "api", **fields: Any) -> Any:
        """Send one event until it is accepted; gives the answer."""
        profile = {"email": f"{person}@example.com"} if type_ == "user.signed_up" else {}
        profile |= fields.pop("user", {})
        document = {"id": id_ or str(uuid.uuid4()), "type": type_, "user": {"id": person, **profile}, **fields}
        for _ in range(20):
            status, answer = await self.post("/v1/events", document, api=api)
            if status in (200, 202):
                return answer
            assert status in (409, 503), answer
            await asyncio.sleep(0.2)
        raise AssertionError(f"never accepted: {answer}")

    async def signup(self, user: str, **fields: Any) -> Any:
        return await self.event("user.signed_up", user, **fields)

    async def signups(self, users: Iterable[str], parallel: int = 20) -> None:
        gate = asyncio.Semaphore(parallel)

        async def one(user: str) -> None:
            async with gate:
                await self.signup(user)

        await asyncio.gather(*(one(user) for user in users))

    async def login(self, user: str, *, webhook_id: str = "", **body: Any) -> dict[str, Any]:
        """Send a signed login until it is accepted; gives the answer."""
        webhook_id = webhook_id or f"msg_{uuid.uuid4().hex}"
        document = {"type": "user.logged_in", "data": {"user_id": user}, **body}
        for _ in range(20):
            status, answer = await self.webhook(document, webhook_id)
            if status == 200:
                return answer
            assert status == 503, answer
            await asyncio.sleep(0.2)
        raise AssertionError(f"never accepted: {answer}")

    async def webhook(self, document: Any, webhook_id: str, *, secret: str = SECRET) -> tuple[int, dict[str, Any]]:
        raw = json.dumps(document)
        now = datetime.now(UTC)
        headers = {
            "webhook-id": webhook_id,
            "webhook-timestamp": str(int(now.timestamp())),
            "webhook-signature": Webhook(secret).sign(webhook_id, now, raw),
        }
        return await self.post("/v1/webhooks/login", raw.encode(), **headers)

    async def advance(self, seconds: float) -> None:
        status, answer = await self.post("/dev/clock", {"advance_s": seconds})
        assert status == 200, answer

    async def metric(self, process: str, name: str) -> float:
        """Sum over all labels of one metric of one process."""
        async with self.http.get(self[process].url + "/metrics") as response:
            lines = (await response.text()).splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.split("{")[0].split(" ")[0] == name)

    # ------------------------------------------------------------------------------------------ the provider

    async def faults(self, **faults: Any) -> None:
        async with self.http.put(self["mock"].url + "/api/faults", json=faults) as response:
            assert response.status == 200, await response.text()

    async def messages(self) -> list[dict[str, Any]]:
        async with self.http.get(self["mock"].url + "/api/messages?limit=10000") as response:
            found: list[dict[str, Any]] = (await response.json())["messages"]
            return found

    async def attempts(self) -> list[dict[str, Any]]:
        async with self.http.get(self["mock"].url + "/api/attempts?limit=10000") as response:
            found: list[dict[str, Any]] = (await response.json())["attempts"]
            return found

    async def mails(self) -> Counter[tuple[str, str]]:
        """(user, kind) → accepted mails."""
        return Counter((message["user"], message["kind"]) for message in await self.messages())

    async def until_mails(self, number: int, *, deadline_s: float = DEADLINE_S) -> Counter[tuple[str, str]]:
        async def enough() -> bool:
            async with self.http.get(self["mock"].url + "/api/messages?limit=1") as response:
                total: int = (await response.json())["total"]
            return total >= number

        await until(enough, f"{number} mails", deadline_s=deadline_s)
        return await self.mails()

    async def rows(self, query: str) -> list[asyncpg.Record]:
        conn = await asyncpg.connect(self.environ["NOTIFIER_DATABASE_URL"])
        try:
            return list(await conn.fetch(query))
        finally:
            await conn.close()

    async def states(self) -> Counter[str]:
        """State → notifications, as the database has them; asked often, and so on a connection that is kept."""
        query = "SELECT state, count(*) AS number FROM notifications GROUP BY state"
        url = self.environ["NOTIFIER_DATABASE_URL"]
        if self.asking is None or self.asking[0] != url or self.asking[1].is_closed():
            self.asking = (url, await asyncpg.connect(url))
        try:
            rows = await self.asking[1].fetch(query)
        except (asyncpg.PostgresConnectionError, asyncpg.OperatorInterventionError, asyncpg.InterfaceError, OSError):
            rows = await self.rows(query)  # the server is another one by now
        return Counter({row["state"]: row["number"] for row in rows})

    async def until_states(self, *, deadline_s: float = DEADLINE_S, **wanted: int) -> None:
        async def so() -> bool:
            found = await self.states()
            return all(found[state] == number for state, number in wanted.items())

        await until(so, f"states {wanted}", deadline_s=deadline_s)

    async def close(self) -> None:
        """Stop everything by its own pid, the hard way where it does not go the soft way; look at the logs."""
        if self.asking is not None:
            self.asking[1].terminate()
        for process in self.processes:
            process.signal(signal.SIGCONT)
            process.signal(signal.SIGTERM)
        for process in self.processes:
            try:
                await process.ended(10)
            except TimeoutError:
                process.signal(signal.SIGKILL)
                await process.ended()
        for process in self.processes:
            assert "Traceback" not in process.log.read_text(), process.log.read_text()[-3000:]


async def until(
    true: Callable[[], bool] | Callable[[], Awaitable[bool]], what: str, *, deadline_s: float = DEADLINE_S
) -> None:
    """Poll until something is true; an assertion error after the deadline."""
    deadline = time.monotonic() + deadline_s
    while True:
        answer = true()
        if await answer if not isinstance(answer, bool) else answer:
            return
        assert time.monotonic() < deadline, f"not within {deadline_s:g} s: {what}"
        await asyncio.sleep(0.05)


@asynccontextmanager
async def open_stack(folder: Path, database_url: str, redis_url: str, **settings: str) -> AsyncIterator[Stack]:
    """An installation around a database and a Redis (or none); `settings` without the prefix."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("NOTIFIER_")}
    environ |= {
        "NOTIFIER_DATABASE_URL": database_url,
        "NOTIFIER_REDIS_URL": redis_url,
        "NOTIFIER_API_KEYS": json.dumps({KEY: ["events", "read", "operate"]}),
        "NOTIFIER_LOGIN_WEBHOOK_SECRETS": SECRET,
        "NOTIFIER_DATA_DIR": str(folder / "data"),
        "NOTIFIER_API_PORT": "0",
        "NOTIFIER_MOCK_PORT": "0",
        "NOTIFIER_MOCK_SMTP_PORT": "0",
        "NOTIFIER_CLOCK": "virtual",
        **TIMINGS,
        **{f"NOTIFIER_{name}": value for name, value in settings.items()},
    }
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=200), timeout=aiohttp.ClientTimeout(total=30)
    ) as http:
        parent_fd, our_end = os.pipe()
        stack = Stack(folder, environ, http, parent_fd)
        try:
            yield stack
        finally:
            await stack.close()
            os.close(parent_fd)
            os.close(our_end)


def users(number: int, prefix: str = "u") -> list[str]:
    """Fresh user ids."""
    salt = secrets.token_hex(3)
    return [f"{prefix}{index}-{salt}" for index in range(number)]
