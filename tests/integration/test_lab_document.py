"""The whole lab, once: the command writes what it is asked for, and docs/why.md and the README say what it finds."""

from __future__ import annotations

import json
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from notifier.proof.lab.judge import Fault
from notifier.proof.lab.main import SEED, SEEDS, USERS, main
from notifier.proof.lab.strategies import ALL, Guard, Strategy

ROOT = Path(__file__).parents[2]
NUMBERS = {11: "eleven", 12: "twelve", 13: "thirteen", 14: "fourteen"}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, said = tmp_path_factory.mktemp("lab"), StringIO()
    asked = ["--json", f"{folder}/l.json", "--markdown", f"{folder}/l.md", "--picture", f"{folder}/l"]
    with redirect_stdout(said):
        assert main([*asked, "--histories", f"{folder}/h", "--show", "nx-24h"]) == 0
    (folder / "said").write_text(said.getvalue(), "utf-8")
    return folder


@pytest.fixture(scope="module")
def found(written: Path) -> dict[str, Any]:
    return dict(json.loads((written / "l.json").read_text("utf-8")))


@pytest.fixture(scope="module")
def page() -> str:
    return (ROOT / "docs" / "why.md").read_text("utf-8")


def test_the_command_writes_all_it_is_asked_for(written: Path, found: dict[str, Any]) -> None:
    assert (found["seeds"], found["users"]) == (list(range(SEED, SEED + SEEDS)), USERS)
    assert [entry["name"] for entry in found["strategies"]] == [strategy.name for strategy in ALL]
    ours = found["strategies"][-1]
    assert {fault: counted["mails"] for fault, counted in ours["faults"].items()} == {fault.value: 0 for fault in Fault}
    assert (written / "l.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (written / "l.svg").read_text("utf-8")
    for told in (written / "h" / "nx-24h-lost.txt", written / "said"):
        assert "somebody has it, so it returns" in told.read_text("utf-8")


def test_the_figures_of_the_page_are_those_of_a_fresh_run(written: Path, found: dict[str, Any], page: str) -> None:
    table, ours = (written / "l.md").read_text("utf-8"), found["strategies"][-1]
    assert table in page, "run scripts/strategy_lab.py --markdown FILE --picture docs/why, and put it in"
    assert f" {ours['announced']} of its mails, too, went out after a login" in " ".join(page.split())
    assert f"left {ours['uncertain']} of {ours['mails']} mails `uncertain`" in " ".join(page.split())


def test_page_and_readme_know_how_many_ways_and_guards_there_are(page: str) -> None:
    ways = NUMBERS[len(ALL) - 1]
    assert f"runs {ways} of them" in " ".join(page.split())
    assert f"how {ways} usual ways" in (ROOT / "README.md").read_text("utf-8")
    assert [guard for guard in Guard if f"`{guard}`" not in page] == []


@pytest.mark.parametrize("strategy", ALL, ids=[strategy.name for strategy in ALL])
def test_the_picture_has_every_way(strategy: type[Strategy]) -> None:
    assert f">{strategy.title}<" in (ROOT / "docs" / "why.svg").read_text("utf-8")
