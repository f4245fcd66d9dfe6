"""The real `notifier demo`: right in any surroundings, wrong when it should be, and gone without a trace."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import asyncpg
import psutil
import pytest

from notifier.embedded.place import SHARED, _shared_root
from notifier.embedded.process import read_note
from tests.support.poll import eventually
from tests.support.servers import end_servers, remove_data

pytestmark = pytest.mark.database
SOURCE = Path(__file__).parents[2]
WITHIN_S = 90  # on a busy machine; alone it takes about ten seconds


def hear_a_hang_up() -> None:
    """Whoever started the tests with nohup has not asked the demo to ignore it."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


class Demo:
    """One `notifier demo`, its files below a folder of the test's own."""

    def __init__(self, folder: Path, *options: str, **environ: str) -> None:
        self.temporary = folder / "temporary"
        self.temporary.mkdir()
        self.story, self.output = folder / "story.txt", folder / "output.txt"
        env = os.environ | {"TMPDIR": str(self.temporary), "PYTHONPATH": str(SOURCE), "FORCE_COLOR": ""} | environ
        with self.story.open("wb") as story, self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "notifier", "demo", "--people", "30", "--json", *options],
                cwd=folder,
                env=env,
                stdout=output,
                stderr=story,
                preexec_fn=hear_a_hang_up,
            )

    @property
    def folder(self) -> Path | None:
        return next(self.temporary.glob("notifier-demo-*"), None)

    def once_told(self, words: str) -> str:
        """The story so far, once it has these words."""

        def look() -> str:
            assert self.process.poll() is None, self.story.read_text()
            told = self.story.read_text()
            return told if words in told else ""

        return eventually(look, within_s=WITHIN_S)

    def ask(self, method: str, path: str) -> dict[str, Any]:
        """One call of the mock provider, at the address that was told."""
        mock = self.once_told("mails arrive: http").partition("mails arrive: ")[2].split()[0]
        with urlopen(Request(mock + path, method=method), timeout=5) as response:
            answer: dict[str, Any] = json.load(response)
        return answer

    def pids(self) -> list[int]:
        """Everything that runs, by the ready files; known once it is up."""
        assert self.folder
        noted: Any = read_note(self.folder / "run.json").get("pids", {"workers": []})
        beside: list[Any] = [read_note(file)["pid"] for file in self.folder.glob("worker-*.json")]
        return [pid for name, pid in noted.items() if name != "workers"] + noted["workers"] + beside

    def kill_leftovers(self) -> None:
        """End what a broken demo left behind: the processes in its ready files, if they still are those."""
        for pid in self.pids() if self.folder else []:
            with contextlib.suppress(psutil.Error):
                process = psutil.Process(pid)
                if str(self.temporary) in " ".join(process.cmdline()):
                    process.kill()

    def report(self) -> dict[str, Any]:
        report: dict[str, Any] = json.loads(self.output.read_text())
        return report

    def end(self, number: signal.Signals | None = None) -> int:
        if number:
            self.process.send_signal(number)
        return self.process.wait(timeout=WITHIN_S)


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Callable[..., Demo]]:
    """Start a demo; whatever is left of it is ended by its own id and removed."""
    demos: list[Demo] = []

    def start(*options: str, **environ: str) -> Demo:
        demos.append(Demo(tmp_path, *options, **environ))
        return demos[-1]

    yield start
    for demo in demos:
        if demo.process.poll() is None:
            demo.end(signal.SIGTERM)
        demo.kill_leftovers()
    for data_dir in (tmp_path / "temporary").glob("*/data"):
        end_servers(data_dir)
        remove_data(data_dir)


def wrong(report: dict[str, Any]) -> set[str]:
    return {row["name"] for row in report["rows"] if not row["ok"]}


async def test_it_is_right_whatever_is_set_around_it_and_can_be_kept(
    begin: Callable[..., Demo], tmp_path: Path, database_url: str, connection: asyncpg.Connection
) -> None:
    hostile = {
        "DATABASE_URL": database_url,
        "ONLY_TO": "nobody@example.com",
        "FAILPOINTS": "ingest.after_commit=kill",
        "WORKERS": "0",
        "DATA_DIR": "/proc/none",
        "NO_SUCH_NAME": "1",
    }
    (tmp_path / ".env").write_text("NOTIFIER_CLAIM_TTL_S=0.1\nNOTIFIER_ANOTHER=1\n")
    environ = {f"NOTIFIER_{name}": value for name, value in hostile.items()}
    demo = begin("--keep", **environ, notifier_poll_s="never", PGSSLMODE="verify-full", PGHOST="192.0.2.1")
    demo.once_told("until Ctrl-C")
    report = demo.report()
    assert report["ok"] and wrong(report) == set()
    found = {row["name"]: row["found"] for row in report["rows"]}
    assert found["people"] == 30
    assert demo.ask("GET", "/api/messages?limit=1")["total"] == found["mails"]
    kept, pids = demo.folder, demo.pids()
    assert demo.end(signal.SIGINT) == 0
    assert kept and (kept / "data" / "logs").is_dir()
    assert [pid for pid in pids if psutil.pid_exists(pid)] == []
    assert await connection.fetchval("SELECT count(*) FROM notifications") == 0


def test_a_mail_that_is_taken_twice_is_seen_named_and_fails_it(begin: Callable[..., Demo]) -> None:
    demo = begin()
    while "days pass" not in demo.once_told("sign up"):  # a provider that forgets: what it had comes again
        demo.ask("DELETE", "/api/keys")
    assert demo.end() == 1
    report = demo.report()
    assert not report["ok"] and {"twice", "killed", "late_calls"} <= wrong(report)
    [row] = [row for row in report["rows"] if row["name"] == "twice"]
    assert row["found"] >= 2 and all(name.endswith("@example.com (onboarding)") for name in row["wrong"])
    assert demo.folder is None


@pytest.mark.parametrize(
    ("words", "number", "code"),
    [
        ("people sign up", signal.SIGTERM, 143),
        ("Worker 4 is frozen", signal.SIGINT, 130),
        ("days pass", signal.SIGHUP, 129),
    ],
)
def test_a_signal_ends_it_and_leaves_nothing(
    begin: Callable[..., Demo], words: str, number: signal.Signals, code: int
) -> None:
    demo = begin()
    demo.once_told(words)
    data_dir = eventually(lambda: demo.folder) / "data"
    pids = demo.pids()
    assert demo.end(number) == code
    assert [pid for pid in pids if psutil.pid_exists(pid)] == []
    assert list(demo.temporary.iterdir()) == [] and not _shared_root(data_dir, SHARED).exists()
    assert demo.output.read_text() == ""
    assert "Traceback" not in demo.story.read_text()


def test_killed_itself_it_takes_everything_along(begin: Callable[..., Demo]) -> None:
    demo = begin()
    demo.once_told("1. People")
    pids = demo.pids()
    demo.end(signal.SIGKILL)
    eventually(lambda: not [pid for pid in pids if psutil.pid_exists(pid)], within_s=30)
