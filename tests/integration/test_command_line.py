"""The command line by itself: what it refuses, with which exit code, in words and not in a traceback."""

from __future__ import annotations

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
        ({"WROKERS": "5"}, 2, "notifier: unknown setting NOTIFIER_WROKERS: did you mean NOTIFIER_WORKERS?"),
    ],
)
def test_what_is_wrong_is_one_message(settings: dict[str, str], code: int, text: str, notifier: Notifier) -> None:
    done = notifier("migrate", **settings)
    assert done.returncode == code
    assert text in done.stderr
    assert "Traceback" not in done.stderr


def test_a_taken_port_is_named_by_its_setting(notifier: Notifier) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = notifier("mock-provider", MOCK_PORT=str(taken.getsockname()[1]))
    assert done.returncode == 1
    assert "set NOTIFIER_MOCK_PORT to another one" in done.stderr
    assert "Traceback" not in done.stderr


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
