"""The command line by itself: what it refuses, with which exit code, in words and not in a traceback."""

from __future__ import annotations

import asyncio
import errno
import os
import re
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pytest

from notifier import cli, observe
from notifier.domain.errors import NotReady
from notifier.lifecycle import Ready, run_until_stopped

ROOT = Path(__file__).parents[2]
ANSI = re.compile(r"\x1b\[[0-9;]*m")  # some CI systems ask for colours
LONG_RUNNING = ["api", "worker", "scheduler", "mock-provider"]


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    returncode: int
    stdout: str
    stderr: str


class Notifier(Protocol):
    """Runs one command with these settings."""

    def __call__(self, *argv: str, **settings: str) -> Done: ...


@pytest.fixture
def notifier(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Notifier:
    """The command line in this process, in an empty directory; only its log format is left out."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("NOTIFIER_MOCK_SMTP_PORT", "0")
    monkeypatch.setattr(observe, "configure_logging", lambda: None)

    def run(*argv: str, **settings: str) -> Done:
        for name, value in settings.items():
            monkeypatch.setenv(f"NOTIFIER_{name}", value)
        monkeypatch.setattr(sys, "argv", ["notifier", *argv])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        code = ended.value.code
        output, errors = (ANSI.sub("", text) for text in capsys.readouterr())
        return Done(code if isinstance(code, int) else 0, output, errors)

    return run


def test_it_is_also_a_module(tmp_path: Path) -> None:
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    argv = [sys.executable, "-W", "error", "-m", "notifier", "migrate"]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=30)
    assert done.returncode == 2
    assert done.stderr.startswith("notifier: NOTIFIER_DATABASE_URL is not set")


@pytest.mark.parametrize("command", ["api", "worker", "scheduler", "migrate", "status"])
def test_without_a_database_it_refuses(command: str, notifier: Notifier) -> None:
    done = notifier(command)
    assert done.returncode == 2
    assert done.stderr.startswith("notifier: NOTIFIER_DATABASE_URL is not set")
    assert "Traceback" not in done.stderr


def test_an_api_without_keys_refuses(notifier: Notifier) -> None:
    done = notifier("api", DATABASE_URL="postgresql://127.0.0.1:1/x")
    assert done.returncode == 2
    assert done.stderr.startswith("notifier: NOTIFIER_API_KEYS is not set")


@pytest.mark.parametrize(
    ("settings", "code", "text"),
    [
        ({"DATABASE_URL": "postgresql://127.0.0.1:1/x"}, 1, "notifier: no PostgreSQL answers at 127.0.0.1:1"),
        ({"CLAIM_TTL_S": "5"}, 2, "NOTIFIER_PROVIDER_TIMEOUT_S"),
        ({"FAILPOINTS": "nowhere=kill"}, 2, "notifier: NOTIFIER_FAILPOINTS: cannot read"),
        ({"MOCK_URL": "mock:8025"}, 2, "notifier: NOTIFIER_MOCK_URL: give http://host[:port]"),
        ({"MAIL_FROM": "nobody"}, 2, "notifier: NOTIFIER_MAIL_FROM: give one address"),
        ({"API_KEYS": '{"": ["read"]}'}, 2, "notifier: NOTIFIER_API_KEYS: a key is empty"),
        ({"WROKERS": "5"}, 2, "notifier: unknown setting NOTIFIER_WROKERS: did you mean NOTIFIER_WORKERS?"),
    ],
)
def test_what_is_wrong_is_one_message(settings: dict[str, str], code: int, text: str, notifier: Notifier) -> None:
    done = notifier("migrate", **settings)
    assert done.returncode == code
    assert text in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("name", ["MOCK_PORT", "MOCK_SMTP_PORT"])
def test_a_taken_port_is_named_by_its_setting(notifier: Notifier, name: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        settings = {"MOCK_PORT": "0", name: str(taken.getsockname()[1])}
        done = notifier("mock-provider", **settings)
    assert done.returncode == 1
    assert f"set NOTIFIER_{name} to another one" in done.stderr
    assert "Traceback" not in done.stderr


def assert_words(done: Done, code: int, *words: str) -> None:
    """It ended with this code and a message with these words, and no traceback."""
    assert done.returncode == code, done.stderr
    for word in words:
        assert word in done.stderr
    assert done.stderr.startswith("notifier: ") or code == 2
    assert "Traceback" not in done.stderr


def test_a_second_mock_on_one_directory_is_told_of_the_first(
    notifier: Notifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from providers.mock import ledger

    monkeypatch.setattr(ledger, "LOCK_WAIT_S", 0.1)
    (tmp_path / "data" / "mock").mkdir(parents=True)
    held = ledger._lock(tmp_path / "data" / "mock" / "mock.lock")
    try:
        done = notifier("mock-provider", DATA_DIR=str(tmp_path / "data"), MOCK_PORT="0")
    finally:
        os.close(held)
    assert_words(done, 1, "another mock provider is using", "set NOTIFIER_DATA_DIR to another directory")


@pytest.mark.parametrize("path", ["file", "file/below"])
def test_a_mock_without_a_directory_says_so(notifier: Notifier, tmp_path: Path, path: str) -> None:
    (tmp_path / "file").write_text("")
    done = notifier("mock-provider", DATA_DIR=path, MOCK_PORT="0")
    assert_words(done, 1, "is not a directory: set NOTIFIER_DATA_DIR to another path")


def test_a_mock_whose_file_is_damaged_says_so(notifier: Notifier, tmp_path: Path) -> None:
    (tmp_path / "data" / "mock").mkdir(parents=True)
    (tmp_path / "data" / "mock" / "mock.sqlite3").write_text("not a database " * 100)
    done = notifier("mock-provider", DATA_DIR="data", MOCK_PORT="0")
    assert_words(done, 1, "mock.sqlite3 cannot be used", "move it away")


@pytest.mark.parametrize("host", ["192.0.2.1", "no.such.host.invalid", "not a host"])
def test_a_host_that_is_not_here_is_named_by_its_setting(notifier: Notifier, host: str) -> None:
    done = notifier("mock-provider", HOST=host, MOCK_PORT="0")
    assert_words(done, 1, f"cannot listen on NOTIFIER_HOST={host}", "127.0.0.1")


def test_a_ready_file_that_cannot_be_written_is_named(notifier: Notifier, tmp_path: Path) -> None:
    (tmp_path / "ready").mkdir()
    done = notifier("mock-provider", "--ready-file", "ready", MOCK_PORT="0")
    assert_words(done, 1, "cannot write --ready-file ready")


@pytest.mark.parametrize("ttl", ["-1", "nan", "inf", "soon"])
def test_a_senseless_memory_for_keys_is_a_typing_error(notifier: Notifier, ttl: str) -> None:
    assert_words(notifier("mock-provider", "--key-ttl-s", ttl, MOCK_PORT="0"), 2, "--key-ttl-s")


def test_a_memory_of_no_seconds_is_none_and_not_the_default(
    notifier: Notifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    from providers.mock import app

    asked: list[float] = []

    async def serve(*, key_ttl_s: float, **_: object) -> None:
        asked.append(key_ttl_s)

    monkeypatch.setattr(app, "serve", serve)
    for argv in (["--key-ttl-s", "0"], []):
        assert notifier("mock-provider", *argv).returncode == 0
    assert asked == [0, 86_400]


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(errno.EACCES, "error while attempting to bind on address"), "set NOTIFIER_X to one above 1023"),
        (OSError("could not bind on any address out of [...]"), "cannot listen on NOTIFIER_HOST=h"),
        (OSError(errno.ENOSPC, "No space left on device", "f"), "no space left on the disk of f"),
        (ConnectionResetError(), "went away during the start"),
    ],
)
async def test_what_the_system_refuses_before_the_first_answer_is_said_in_words(error: OSError, words: str) -> None:
    async def serve(_stop: asyncio.Event, _ready: Ready) -> None:
        raise error

    with pytest.raises(NotReady, match=re.escape(words)):
        await run_until_stopped(serve, ready_file=None, parent_fd=None, host="h", port_settings={7: "NOTIFIER_X"})


async def test_the_same_error_later_is_ours_and_stays_what_it_is() -> None:
    async def serve(_stop: asyncio.Event, ready: Ready) -> None:
        ready("http://h", None)
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        await run_until_stopped(serve, ready_file=None, parent_fd=None)


@pytest.mark.parametrize("umask", [0o000, 0o022])
def test_what_a_mock_by_itself_keeps_is_for_its_owner_only(tmp_path: Path, umask: int) -> None:
    from providers.mock.ledger import Ledger

    def modes() -> dict[str, int]:
        made = [tmp_path / "data", *(tmp_path / "data").rglob("*")]
        return {path.name: path.stat().st_mode & 0o777 for path in made}

    before = os.umask(umask)
    try:
        for _ in range(2):
            ledger = Ledger(tmp_path / "data" / "mock")
            files = ("mock.lock", "mock.sqlite3", "mock.sqlite3-wal", "mock.sqlite3-shm")
            assert modes() == {"data": 0o700, "mock": 0o700} | dict.fromkeys(files, 0o600)
            ledger.close()
            for path in (tmp_path / "data" / "mock").iterdir():  # as an earlier build left it
                path.chmod(0o644)
            (tmp_path / "data" / "mock" / "mock.lock").chmod(0o600)
            (tmp_path / "data" / "mock").chmod(0o755)
    finally:
        os.umask(before)


@pytest.mark.parametrize("argv", [["rn"], ["api", "--redy-file", "x"], ["worker", "--ready-file", "no/such/dir/f"]])
def test_a_typing_error_is_exit_code_2(argv: list[str], notifier: Notifier) -> None:
    assert notifier(*argv, DATABASE_URL="postgresql://127.0.0.1:1/x").returncode == 2


@pytest.mark.parametrize("command", ["run", "migrate", "status", *LONG_RUNNING])
def test_every_help_teaches_with_an_example(command: str, notifier: Notifier) -> None:
    done = notifier(command, "--help")
    assert done.returncode == 0
    assert "Example:" in done.stdout
    assert ("--ready-file" in done.stdout) == (command in [*LONG_RUNNING, "run"])
    assert "--parent-fd" not in done.stdout


def test_the_help_of_run_lists_every_setting(notifier: Notifier) -> None:
    from notifier.settings import Settings

    text = notifier("run", "--help").stdout
    assert [name for name in Settings.model_fields if f"NOTIFIER_{name.upper()} " not in text] == []
