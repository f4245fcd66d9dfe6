"""`notifier run` as its user sees it: real processes, stand-ins for the children, real databases."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
import pytest

from notifier import embedded
from notifier.embedded.process import birth, free_port, port_is_free, read_note
from notifier.supervisor import screen
from tests.support.poll import eventually
from tests.support.servers import end_servers, remove_data

pytestmark = pytest.mark.database
PROGRAM = [sys.executable, str(Path(__file__).parents[1] / "support" / "stand_in_run.py"), "run"]


class Run:
    """One `notifier run` on a DATA_DIR."""

    def __init__(self, data_dir: Path, **settings: str) -> None:
        self.ready_file = data_dir.with_suffix(".json")
        self.started = time.monotonic()
        defaults = {
            "API_PORT": "0",
            "MOCK_PORT": "0",
            "MOCK_SMTP_PORT": "0",
            "WORKERS": "1",
            "STOP_GRACE_S": "5",
        }
        env = {f"NOTIFIER_{name}": value for name, value in (defaults | settings).items()}
        self.process = subprocess.Popen(
            [*PROGRAM, "--ready-file", str(self.ready_file)],
            env={**os.environ, "FORCE_COLOR": "", "NOTIFIER_DATA_DIR": str(data_dir)} | env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=data_dir.parent,
        )

    def facts(self) -> dict[str, Any]:
        """The ready file of this very process, as soon as it is there."""

        def look() -> dict[str, Any]:
            if self.process.poll() is not None:
                pytest.fail(f"ended with {self.process.returncode}: {self.process.communicate()[1]}")
            note = read_note(self.ready_file)
            pids = note.get("pids")
            return note if isinstance(pids, dict) and pids["supervisor"] == self.process.pid else {}

        return eventually(look)

    def once(self, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The ready file once it says so."""
        return eventually(lambda: facts if condition(facts := self.facts()) else {})

    def stop(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str, str]:
        """Exit code, output and log after a signal."""
        self.process.send_signal(number)
        return self.end()

    def end(self) -> tuple[int, str, str]:
        """Exit code, output and log, once it has ended."""
        output, errors = self.process.communicate(timeout=30)
        return self.process.returncode, output, errors


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Callable[..., Run]]:
    """Start runs on one DATA_DIR; whatever is left of them is ended by its own id."""
    data_dir = tmp_path / "data"
    runs: list[Run] = []

    def start(**settings: str) -> Run:
        runs.append(Run(data_dir, **settings))
        return runs[-1]

    yield start
    for run in runs:
        if run.process.poll() is None:
            run.process.kill()
            run.process.communicate()
    end_servers(data_dir)
    remove_data(data_dir)


def seen_by(url: str) -> dict[str, str]:
    """The settings of the stand-in behind a URL."""
    address = urlsplit(url)
    with socket.create_connection((address.hostname, address.port), timeout=5) as conn, conn.makefile() as file:
        seen: dict[str, str] = json.loads(file.readline())
        return seen


def pids_of(facts: dict[str, Any]) -> list[int]:
    pids = facts["pids"]
    return [pids[name] for name in ("postgres", "redis", "api", "scheduler", "mock") if pids[name]] + pids["workers"]


def slowness() -> float:
    """By how much longer a start takes here just now than where the bound was set; never less than 1."""
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", "import aiohttp, asyncpg, redis"], check=True)
    return max(1.0, (time.monotonic() - began) / 0.5)


def test_it_brings_everything_up_says_so_and_stops_cleanly(begin: Callable[..., Run], tmp_path: Path) -> None:
    run = begin(WORKERS="2", FAILPOINTS="worker.after_claim=kill")
    facts = run.facts()
    assert time.monotonic() - run.started < 10 * slowness()
    assert set(facts) == {
        "api",
        "mock",
        "smtp",
        "database_url",
        "redis_url",
        "api_key",
        "login_webhook_secret",
        "pids",
        "metrics",
    }
    assert set(facts["pids"]) == {"supervisor", "postgres", "redis", "api", "scheduler", "mock", "workers"}
    assert len(facts["pids"]["workers"]) == len(facts["metrics"]["workers"]) == 2
    assert stat.S_IMODE(run.ready_file.stat().st_mode) == 0o600
    for name in ("api_key", "login_webhook_secret"):
        file = tmp_path / "data" / name
        assert file.read_text().strip() == facts[name]
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    seen = seen_by(facts["api"])
    assert json.loads(seen["NOTIFIER_API_KEYS"]) == {facts["api_key"]: ["events", "read", "operate"]}
    assert json.loads(seen["NOTIFIER_LOGIN_WEBHOOK_SECRETS"]) == [facts["login_webhook_secret"]]
    worker = seen_by(facts["metrics"]["workers"][1])
    assert (worker["NOTIFIER_DATABASE_URL"], worker["NOTIFIER_REDIS_URL"]) == (
        facts["database_url"],
        facts["redis_url"],
    )
    assert worker["NOTIFIER_MOCK_URL"] == facts["mock"]
    assert "NOTIFIER_API_KEYS" not in worker
    code, output, log = run.stop(signal.SIGINT)
    assert code == 0, log
    assert screen.curl(facts["api"], "data") in output
    assert facts["mock"] in output
    assert facts["smtp"].startswith("smtp://127.0.0.1:") and facts["smtp"] in output
    assert not [pid for pid in pids_of(facts) if psutil.pid_exists(pid)]


def test_keys_are_made_once_and_configured_ones_stay_valid(begin: Callable[..., Run], database_url: str) -> None:
    first = begin(DATABASE_URL=database_url)
    keys = [first.facts()["api_key"]]
    first.stop()
    again = begin(DATABASE_URL=database_url, API_KEYS='{"mine": ["read"]}', LOGIN_WEBHOOK_SECRETS="whsec_mine")
    facts = again.facts()
    keys.append(facts["api_key"])
    assert keys[0] == keys[1]
    seen = seen_by(facts["api"])
    assert json.loads(seen["NOTIFIER_API_KEYS"]) == {"mine": ["read"], keys[0]: ["events", "read", "operate"]}
    assert json.loads(seen["NOTIFIER_LOGIN_WEBHOOK_SECRETS"]) == ["whsec_mine", facts["login_webhook_secret"]]
    again.stop()


def test_what_dies_comes_back_on_its_port_without_failpoints(begin: Callable[..., Run], database_url: str) -> None:
    run = begin(DATABASE_URL=database_url, FAILPOINTS="worker.after_claim=kill")
    before = run.facts()
    assert seen_by(before["metrics"]["workers"][0])["NOTIFIER_FAILPOINTS"] == "worker.after_claim=kill"
    for name in ("api", "mock"):
        os.kill(before["pids"][name], signal.SIGKILL)
    os.kill(before["pids"]["workers"][0], signal.SIGKILL)
    after = run.once(
        lambda facts: all(facts["pids"][name] != before["pids"][name] for name in ("api", "mock", "workers"))
    )
    assert [after[name] for name in ("api", "mock", "smtp")] == [before[name] for name in ("api", "mock", "smtp")]
    assert after["pids"]["scheduler"] == before["pids"]["scheduler"]
    assert seen_by(after["metrics"]["workers"][0])["NOTIFIER_FAILPOINTS"] == ""
    code, _, log = run.stop()
    assert code == 0
    ended = [line for line in map(json.loads, log.splitlines()) if line["event"] == "child.ended"]
    assert {(line["child"], line["how"]) for line in ended} == {(n, "SIGKILL") for n in ("api", "mock", "worker-1")}


def test_a_database_that_dies_comes_back_at_its_address(begin: Callable[..., Run]) -> None:
    run = begin()
    before = run.facts()
    for name in ("postgres", "redis"):
        os.kill(before["pids"][name], signal.SIGKILL)
    after = run.once(lambda facts: all(facts["pids"][name] != before["pids"][name] for name in ("postgres", "redis")))
    assert [after[name] for name in ("database_url", "redis_url")] == [before[n] for n in ("database_url", "redis_url")]
    assert after["pids"]["api"] == before["pids"]["api"]
    run.stop()


def test_after_sigkill_children_stop_by_themselves_and_the_next_run_adopts_the_databases(
    begin: Callable[..., Run],
) -> None:
    ports = {name: str(free_port()) for name in ("API_PORT", "MOCK_PORT", "MOCK_SMTP_PORT")}
    first = begin(**ports)
    before = first.facts()
    first.process.kill()
    first.end()
    second = begin(**ports)
    after = second.facts()
    assert [after["pids"][name] for name in ("postgres", "redis")] == [before["pids"][n] for n in ("postgres", "redis")]
    assert after["database_url"] == before["database_url"]
    children = [before["pids"][name] for name in ("api", "scheduler", "mock")] + before["pids"]["workers"]
    eventually(lambda: all(birth(pid) is None for pid in children))
    code, _, _ = second.stop()
    assert code == 0
    assert birth(after["pids"]["postgres"]) is None


def test_two_runs_never_share_a_directory(begin: Callable[..., Run], database_url: str) -> None:
    first = begin(DATABASE_URL=database_url)
    first.facts()
    code, _, log = begin().end()
    assert code == 1
    assert f"another `notifier run` (pid {first.process.pid}) uses" in log
    assert first.stop()[0] == 0


@pytest.mark.parametrize("name", ["API_PORT", "MOCK_PORT", "MOCK_SMTP_PORT"])
def test_a_taken_port_is_named_at_once(begin: Callable[..., Run], tmp_path: Path, name: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        run = begin(**{name: str(port)})
        code, _, log = run.end()
    assert code == 1
    assert f"notifier: port {port} is taken: set NOTIFIER_{name} to" in log
    assert not (tmp_path / "data" / "postgres.json").exists()
    assert "Traceback" not in log


def test_a_child_that_refuses_its_configuration_ends_the_run_with_its_words(
    begin: Callable[..., Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STAND_IN_REFUSES", "scheduler")
    code, _, log = begin().end()
    assert code == 2
    assert "scheduler does not start (exit code 2): NOTIFIER_NONSENSE is not what it should be" in log
    assert "Traceback" not in log
    note = read_note(tmp_path / "data" / "postgres.json")
    assert birth(int(str(note["pid"]))) is None


def test_a_frozen_child_does_not_hold_up_the_stop(begin: Callable[..., Run], database_url: str) -> None:
    run = begin(DATABASE_URL=database_url)
    os.kill(run.facts()["pids"]["workers"][0], signal.SIGSTOP)
    stopped = time.monotonic()
    assert run.stop()[0] == 0
    assert time.monotonic() - stopped < 4


def test_a_second_signal_hurries_and_still_stops_the_databases_cleanly(
    begin: Callable[..., Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STAND_IN_LINGERS", "worker")
    run = begin(STOP_GRACE_S="30")
    facts = run.facts()
    run.process.send_signal(signal.SIGINT)
    eventually(lambda: birth(facts["pids"]["api"]) is None)
    assert birth(facts["pids"]["workers"][0])
    code, _, log = run.stop(signal.SIGINT)
    assert code == 0, log
    assert not [pid for pid in pids_of(facts) if psutil.pid_exists(pid)]
    assert "database system is shut down" in (tmp_path / "data" / "logs" / "postgres.log").read_text()


def test_a_database_that_has_to_move_takes_everybody_with_it(begin: Callable[..., Run]) -> None:
    run = begin()
    before = run.facts()
    run.process.send_signal(signal.SIGSTOP)  # so that somebody else is surely quicker
    os.kill(before["pids"]["postgres"], signal.SIGKILL)
    port = urlsplit(before["database_url"]).port
    eventually(lambda: birth(before["pids"]["postgres"]) is None and port_is_free(port or 0))
    with socket.create_server(("127.0.0.1", port)):
        run.process.send_signal(signal.SIGCONT)
        after = run.once(
            lambda facts: all(facts["pids"][name] != before["pids"][name] for name in ("postgres", "api", "workers"))
        )
    assert after["database_url"] != before["database_url"]
    assert seen_by(after["api"])["NOTIFIER_DATABASE_URL"] == after["database_url"]
    assert after["pids"]["mock"] == before["pids"]["mock"]
    run.stop()


def test_given_servers_are_used_and_left_alone(
    begin: Callable[..., Run], database_url: str, valkey: embedded.Server, tmp_path: Path
) -> None:
    run = begin(DATABASE_URL=database_url, REDIS_URL="", MOCK_URL="http://127.0.0.1:9", WORKERS="0")
    facts = run.facts()
    assert (facts["database_url"], facts["redis_url"], facts["mock"]) == (database_url, "", "http://127.0.0.1:9")
    assert facts["smtp"] is None
    assert [facts["pids"][name] for name in ("postgres", "redis", "mock", "workers")] == [None, None, None, []]
    assert seen_by(facts["api"])["NOTIFIER_REDIS_URL"] == ""
    assert run.stop()[0] == 0
    assert not (tmp_path / "data" / "postgres").exists()


def test_a_directory_that_cannot_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    code, _, log = Run(tmp_path / "file").end()
    assert code == 1
    assert "is not a directory: set NOTIFIER_DATA_DIR to another path" in log
