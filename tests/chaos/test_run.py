"""The real `notifier run`, nothing stood in for: killed whole, killed in parts, and stopped."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from notifier.embedded.process import birth, read_note
from tests.support.servers import end_servers, remove_data
from tests.support.stack import until, users

pytestmark = pytest.mark.database
MAIL_WITHIN_S = 3.0  # promised: one second; the rest is for a busy machine
PARTS = ("postgres", "redis", "api", "scheduler", "mock")


@dataclass(slots=True)
class Run:
    """One `notifier run` after the other on one DATA_DIR, and what a client of it does."""

    folder: Path
    http: aiohttp.ClientSession
    process: asyncio.subprocess.Process | None = None

    @property
    def data_dir(self) -> Path:
        return self.folder / "data"

    @property
    def facts(self) -> dict[str, Any]:
        """The ready file, as it is now."""
        return dict(read_note(self.folder / "ready.json"))

    @property
    def pids(self) -> dict[str, int]:
        """Part → process, of everything but the supervisor."""
        noted = self.facts["pids"]
        workers = {f"worker-{number}": pid for number, pid in enumerate(noted["workers"], 1)}
        return {name: noted[name] for name in PARTS} | workers

    async def start(self, **settings: str) -> None:
        """Start it and wait until it says that everything answers."""
        ports = dict.fromkeys(("API_PORT", "MOCK_PORT", "MOCK_SMTP_PORT"), "0")
        own = {"DATA_DIR": str(self.data_dir), "WORKERS": "2", "STOP_GRACE_S": "5", **ports, **settings}
        environ = {name: value for name, value in os.environ.items() if not name.upper().startswith("NOTIFIER_")}
        environ |= {f"NOTIFIER_{name}": value for name, value in own.items()}
        environ["PYTHONPATH"] = str(Path(__file__).parents[2])
        with (self.folder / "run.log").open("ab") as output:
            self.process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "notifier",
                "run",
                "--ready-file",
                str(self.folder / "ready.json"),
                cwd=self.folder,
                env=environ,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        process = self.process

        def is_up() -> bool:
            assert process.returncode is None, self.log
            return bool(self.facts) and self.facts["pids"]["supervisor"] == process.pid

        await until(is_up, "the ready file is there")

    async def end(self, number: signal.Signals) -> int:
        """Send the supervisor a signal and wait for its end."""
        assert self.process is not None
        self.process.send_signal(number)
        async with asyncio.timeout(20):
            return await self.process.wait()

    @property
    def log(self) -> str:
        return (self.folder / "run.log").read_text()[-3000:]

    async def signup(self, user: str, *, within_s: float = 15) -> float:
        """Repeat one signup until it is accepted, as a client should; gives when it was."""
        event = {
            "id": str(uuid.uuid4()),
            "type": "user.signed_up",
            "user": {"id": user, "email": f"{user}@example.com"},
        }
        deadline = time.monotonic() + within_s
        while True:
            facts, seen = self.facts, "no answer"
            url, headers = f"{facts.get('api')}/v1/events", {"Authorization": f"Bearer {facts.get('api_key')}"}
            try:  # between two runs there is no ready file, and so no address
                async with self.http.post(url, json=event, headers=headers) as answer:
                    seen = f"{answer.status} {await answer.text()}"
                    if answer.status in (200, 202):
                        return time.monotonic()
                    assert answer.status in (409, 503), seen
            except (aiohttp.ClientError, TimeoutError):
                pass
            assert time.monotonic() < deadline, f"not accepted within {within_s} s: {seen}"
            await asyncio.sleep(0.05)

    async def mails(self) -> Counter[str]:
        """User → welcome mails that the mock took; nothing while it is away."""
        try:
            async with self.http.get(f"{self.facts.get('mock')}/api/messages", params={"limit": "10000"}) as answer:
                found = (await answer.json())["messages"]
        except (aiohttp.ClientError, TimeoutError):
            return Counter()
        return Counter(message["user"] for message in found if message["kind"] == "onboarding")

    async def until_mailed(self, *expected: str, deadline_s: float = 15) -> Counter[str]:
        async def there() -> bool:
            mails = await self.mails()
            return all(mails[user] for user in expected)

        await until(there, f"mails for {expected}", deadline_s=deadline_s)
        return await self.mails()


@pytest.fixture
async def run(tmp_path: Path) -> AsyncIterator[Run]:
    """Nothing started yet; whatever is left of it afterwards is ended by its own id."""
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as http:
        running = Run(tmp_path, http)
        yield running
    if running.process and running.process.returncode is None:
        running.process.kill()
        await running.process.wait()
    end_servers(running.data_dir)
    remove_data(running.data_dir)


async def assert_a_mail_in_time(run: Run) -> str:
    """A signup is in the inbox shortly after its 202; answers who signed up."""
    [user] = users(1)
    accepted = await run.signup(user)
    await run.until_mailed(user, deadline_s=accepted + MAIL_WITHIN_S - time.monotonic())
    return user


async def test_it_mails_in_time_and_sigterm_ends_every_process(run: Run) -> None:
    await run.start()
    await assert_a_mail_in_time(run)
    pids = {"supervisor": run.facts["pids"]["supervisor"]} | run.pids
    assert len(pids) == 8 and all(birth(pid) for pid in pids.values())
    assert await run.end(signal.SIGTERM) == 0, run.log
    assert [name for name, pid in pids.items() if birth(pid)] == []
    assert "Traceback" not in run.log


async def test_killed_whole_under_load_it_loses_nobody_and_mails_nobody_twice(run: Run) -> None:
    await run.start()
    accepted: list[str] = []

    async def one(number: int, user: str) -> None:
        await asyncio.sleep(number * 0.05)
        await run.signup(user, within_s=30)
        accepted.append(user)

    people = users(60)
    signing_up = asyncio.gather(*(one(number, user) for number, user in enumerate(people)))
    await until(lambda: len(accepted) >= 10, "some are accepted")
    await run.end(signal.SIGKILL)
    assert len(accepted) < len(people)
    await run.start()
    await signing_up
    mails = await run.until_mailed(*people)
    assert mails == Counter(people)
    assert await run.end(signal.SIGTERM) == 0, run.log


async def test_each_part_that_is_killed_comes_back_and_mails_go_on(run: Run) -> None:
    await run.start()
    people = [await assert_a_mail_in_time(run)]
    for name in ("api", "worker-1", "redis", "postgres"):
        before = run.pids[name]
        os.kill(before, signal.SIGKILL)
        [user] = users(1)
        await run.signup(user)
        people.append(user)
        await until(_is_another(run, name, before), f"{name} is back")
        await run.until_mailed(*people)
    await assert_a_mail_in_time(run)
    mails = await run.mails()
    assert [mails[user] for user in people] == [1] * len(people)
    assert await run.end(signal.SIGTERM) == 0, run.log
    ended = [json.loads(line) for line in (run.folder / "run.log").read_text().splitlines() if line.startswith("{")]
    assert {line["child"] for line in ended if line["event"] == "child.ended"} >= {"api", "worker-1"}


async def test_by_smtp_the_mails_come_to_the_same_inbox_also_after_the_mock_was_killed(run: Run) -> None:
    await run.start(PROVIDER="smtp")
    people = [await assert_a_mail_in_time(run)]
    listener, before = run.facts["smtp"], run.pids["mock"]
    os.kill(before, signal.SIGKILL)
    [user] = users(1)
    await run.signup(user)
    await until(_is_another(run, "mock", before), "the mock is back")
    await run.until_mailed(*people, user)
    assert run.facts["smtp"] == listener
    assert await run.mails() == Counter([*people, user])
    async with run.http.get(f"{run.facts['mock']}/api/messages") as answer:
        assert {message["transport"] for message in (await answer.json())["messages"]} == {"smtp"}
    assert await run.end(signal.SIGTERM) == 0, run.log


def _is_another(run: Run, name: str, before: int) -> Callable[[], bool]:
    return lambda: run.pids[name] != before and birth(run.pids[name]) is not None
