"""One finding of the lab with real processes: a worker is killed in the middle of a send, and the job comes again."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
from redis.asyncio import Redis
from rich.console import Console

from notifier import embedded
from notifier.embedded.place import remove
from notifier.store.migrate import migrate

API_KEY = "lab-key"
WITHIN_S = 60.0
MOMENTS = ("worker.before_send", "worker.mid_send", "worker.after_send")


@dataclass(frozen=True, slots=True)
class Finding:
    """What the provider had taken at the end, and what the second try said of itself."""

    mails: int
    last_words: str
    lock_left_s: int = 0


@dataclass(frozen=True, slots=True)
class Around:
    """What both ways share: servers, and a mock provider and an API that run."""

    folder: Path
    environ: dict[str, str]
    http: aiohttp.ClientSession
    mock: str
    api: str
    parent_fd: int

    async def mails_to(self, user: str) -> int:
        """How many mails the provider took for a user."""
        async with self.http.get(f"{self.mock}/api/messages?limit=1000") as response:
            return sum(message["user"] == user for message in (await response.json())["messages"])


@contextlib.asynccontextmanager
async def around(folder: Path, database_url: str, redis_url: str) -> AsyncIterator[Around]:
    """Start the mock provider and our API, and end them."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("NOTIFIER_")}
    own = {
        "DATABASE_URL": database_url,
        "REDIS_URL": redis_url,
        "API_KEYS": json.dumps({API_KEY: ["events", "read"]}),
        "DATA_DIR": str(folder / "data"),
        "API_PORT": "0",
        "MOCK_PORT": "0",
        "MOCK_SMTP_PORT": "0",
        "CLAIM_TTL_S": "3",
        "PROVIDER_TIMEOUT_S": "1",
        "BACKOFF_MAX_S": "20",
    }
    environ |= {f"NOTIFIER_{name}": value for name, value in own.items()}
    theirs, ours = os.pipe()  # whoever we start ends when our end is gone
    try:
        async with aiohttp.ClientSession() as http, _running(folder, environ, theirs, "mock-provider") as mock:
            environ["NOTIFIER_MOCK_URL"] = mock["url"]
            async with _running(folder, environ, theirs, "api") as api:
                yield Around(folder, environ, http, mock["url"], api["url"], theirs)
    finally:
        os.close(ours)
        os.close(theirs)


async def claim_for_a_day(at: Around, user: str) -> Finding:
    """Kill fix 5, as it is printed, in the middle of its send, and let the job come again."""
    first = await _worker(at, user, "--stall")
    assert first.stdout is not None
    async with asyncio.timeout(WITHIN_S):
        while await first.stdout.readline() != b"is in the middle of the send\n":
            assert not first.stdout.at_eof(), "the worker ended by itself"
    first.send_signal(signal.SIGKILL)
    await first.wait()
    second = await _worker(at, user)
    async with asyncio.timeout(WITHIN_S):
        said, _ = await second.communicate()
    async with Redis.from_url(at.environ["NOTIFIER_REDIS_URL"]) as redis:
        left_s = await redis.ttl(f"onboarding:lock:{user}")
    return Finding(await at.mails_to(user), said.decode().splitlines()[-1], left_s)


async def ours(at: Around, user: str, moment: str) -> Finding:
    """Kill our worker round its send, and let another go on."""
    async with _running(at.folder, at.environ, at.parent_fd, "worker", f"{moment}=kill*1") as victim:
        event = {
            "id": f"evt_{user}",
            "type": "user.signed_up",
            "user": {"id": user, "email": f"{user}@example.com"},
        }
        headers = {"Authorization": f"Bearer {API_KEY}"}
        async with at.http.post(f"{at.api}/v1/events", json=event, headers=headers) as response:
            response.raise_for_status()
            [notification] = [n["id"] for n in (await response.json())["notifications"] if n["kind"] == "onboarding"]
        async with asyncio.timeout(WITHIN_S):
            assert await victim["process"].wait() == -signal.SIGKILL
        url = f"{at.api}/v1/notifications/{notification}"
        async with _running(at.folder, at.environ, at.parent_fd, "worker"), asyncio.timeout(WITHIN_S):
            state = await _state(at.http, url, headers)
            while state in ("pending", "sending"):
                await asyncio.sleep(0.1)
                state = await _state(at.http, url, headers)
        return Finding(await at.mails_to(user), state)


async def _state(http: aiohttp.ClientSession, url: str, headers: dict[str, str]) -> str:
    async with http.get(url, headers=headers) as response:
        return str((await response.json())["state"])


async def _worker(at: Around, user: str, *more: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "notifier.proof.lab.real_worker",
        *("--redis", at.environ["NOTIFIER_REDIS_URL"], "--provider", at.mock, "--user", user, *more),
        stdout=asyncio.subprocess.PIPE,
    )


@contextlib.asynccontextmanager
async def _running(
    folder: Path, environ: dict[str, str], parent_fd: int, command: str, failpoints: str = ""
) -> AsyncIterator[dict[str, Any]]:
    """One process of the service: its ready file, and its handle as `process`; ended at the end, if it still lives."""
    with (
        tempfile.NamedTemporaryFile(dir=folder, prefix=command, suffix=".json") as ready,
        tempfile.TemporaryFile() as log,
    ):
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "notifier",
            command,
            *("--ready-file", ready.name, "--parent-fd", str(parent_fd)),
            env=environ | ({"NOTIFIER_FAILPOINTS": failpoints} if failpoints else {}),
            pass_fds=[parent_fd],
            stdout=log,
            stderr=log,
        )
        try:
            async with asyncio.timeout(WITHIN_S):
                while not (text := _read(ready.name)):
                    assert process.returncode is None, f"{command} ended by itself"
                    await asyncio.sleep(0.05)
            yield {**json.loads(text), "process": process}
        finally:
            if process.returncode is None:
                process.terminate()
                await process.wait()


def _read(path: str) -> str:
    return Path(path).read_text("utf-8")


def show(console: Console) -> int:
    """Find it on servers of our own, and say what was seen; 1 if it was not the finding."""
    with tempfile.TemporaryDirectory(prefix="notifier-lab-") as folder:
        return asyncio.run(_show(console, Path(folder)))


async def _show(console: Console, folder: Path) -> int:
    data_dir = folder / "servers"
    postgres = await embedded.start_postgres(data_dir, durable=False)
    valkey = await embedded.start_valkey(data_dir)
    try:
        await migrate(postgres.url)
        async with around(folder, postgres.url, valkey.url) as at:
            theirs = await claim_for_a_day(at, "u1")
            console.print(f"24 h claim, keyed send, killed in the middle of the send: {theirs.mails} mails.")
            console.print(f"  The second try: {theirs.last_words}; the lock stays for {theirs.lock_left_s} s.")
            found = theirs.mails == 0
            for number, moment in enumerate(MOMENTS, start=2):
                own = await ours(at, f"u{number}", moment)
                console.print(f"ours, killed at {moment}: {own.mails} mail, {own.last_words}.")
                found = found and (own.mails, own.last_words) == (1, "sent")
    finally:
        await embedded.stop(valkey)
        await embedded.stop(postgres)
        remove(data_dir)
    return 0 if found else 1
