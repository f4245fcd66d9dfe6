"""The commands as a family: every help has an example, completion works and is light, and the release is told."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from notifier import cli, version
from tests.support.command import ROOT

HEAVY = ("asyncpg", "aiohttp", "redis", "sqlalchemy", "apscheduler", "structlog")


def walk(command: Any, *words: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield words, command
    for name, below in getattr(command, "commands", {}).items():
        yield from walk(below, *words, name)


COMMANDS = dict(walk(typer.main.get_command(cli.app)))


@pytest.mark.parametrize("words", [words for words in COMMANDS if words], ids=" ".join)
def test_every_help_teaches_with_an_example(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.app([*words, "--help"], prog_name="notifier")
    assert not ended.value.code
    text = capsys.readouterr().out
    assert "Example" in text
    assert "--parent-fd" not in text


def test_the_family_is_complete() -> None:
    assert {" ".join(words) for words in COMMANDS} >= {
        *("notifications list", "notifications show", "notifications cancel", "notifications retry"),
        *("notifications resolve", "switch list", "switch set", "switch show", "switch end", "events send"),
        *("doctor", "status", "run", "migrate", "api", "worker", "scheduler", "mock-provider"),
        "restored",
    }


def test_it_tells_its_release_and_loads_little_for_it() -> None:
    code = f"import sys, notifier.cli; print([name for name in {HEAVY!r} if name in sys.modules])"
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    for argv, said in ((["-c", code], "[]\n"), (["-m", "notifier", "--version"], f"notifier {version()}\n")):
        done = subprocess.run([sys.executable, *argv], env=env, capture_output=True, text=True, check=True)
        assert done.stdout == said


def complete(line: str, folder: Path, **settings: str) -> list[str]:
    """What bash is offered at the end of the line; like bash, a colon is a word of its own."""
    words = [part for word in line.split(" ") for part in split_at_colons(word)]
    env = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error", **settings}
    env |= {"COMP_WORDS": "\n".join(words), "COMP_CWORD": str(len(words) - 1), "_NOTIFIER_COMPLETE": "complete_bash"}
    code = (
        "import sys\nfrom notifier.cli import main\n"
        "try:\n    main()\n"
        f"finally:\n    assert not [name for name in {HEAVY!r} if name in sys.modules]"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, env=env, capture_output=True, text=True)
    assert done.stderr == ""
    return done.stdout.split("\n")[:-1] if done.stdout.strip() else []


def split_at_colons(word: str) -> list[str]:
    parts = []
    for index, part in enumerate(word.split(":")):
        parts += [":", part] if index else [part]
    return [part for part in parts[:-1] if part] + ([parts[-1]] if parts[-1] or len(parts) == 1 else [])


def test_bash_is_offered_commands_states_kinds_and_switches(tmp_path: Path) -> None:
    (tmp_path / "j.toml").write_text('[kinds.digest]\non = "x"\n[kinds.farewell]\non = "y"\n')
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    offered = {
        line: complete(line, tmp_path)
        for line in (
            "notifier notif",
            "notifier notifications list --state s",
            "notifier notifications show --kind ",
            "notifier switch set pause:f",
            "notifier switch end pause:",
            "notifier switch set pause:provider:",
        )
    }
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert offered == {
        "notifier notif": ["notifications"],
        "notifier notifications list --state s": ["scheduled", "sending", "sent", "skipped"],
        "notifier notifications show --kind ": ["onboarding", "followup"],
        "notifier switch set pause:f": ["followup"],
        "notifier switch end pause:": ["onboarding", "followup", "provider:mock", "provider:smtp"],
        "notifier switch set pause:provider:": ["mock", "smtp"],
    }
    spent_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert spent_s / len(offered) < 0.6  # of processor time, and a slow machine's; 0.2 s on an idle one
    named = {"NOTIFIER_JOURNEYS_FILE": str(tmp_path / "j.toml")}
    assert complete("notifier notifications list --kind ", tmp_path, **named) == ["digest", "farewell"]
    gone = {"NOTIFIER_JOURNEYS_FILE": str(tmp_path / "gone.toml")}
    assert complete("notifier notifications list --kind ", tmp_path, **gone) == []


def test_bash_itself_takes_what_is_shown_for_it(tmp_path: Path) -> None:
    (tmp_path / "notifier").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m notifier "$@"\n')
    (tmp_path / "notifier").chmod(0o755)
    script = (
        'eval "$(notifier --show-completion bash)"; '
        "COMP_WORDS=(notifier switch set pause : onb); COMP_CWORD=5; _notifier_completion notifier; "
        'printf "%s\\n" "${COMPREPLY[@]}"; complete -p notifier'
    )
    env = os.environ | {"PYTHONPATH": str(ROOT), "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "--norc", "-c", script], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.splitlines() == ["onboarding", "complete -o default -F _notifier_completion notifier"]
    assert done.stderr == ""
