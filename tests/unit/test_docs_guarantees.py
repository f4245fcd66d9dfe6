"""docs/guarantees.md: every test it names exists, every fault family is one, and its guards are those of the list."""

from __future__ import annotations

import re
from pathlib import Path

from notifier.proof.guards.catalog import GUARDS
from notifier.proof.guards.guard import Guard

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "guarantees.md").read_text()
FAMILIES = {
    "kill",
    "freeze",
    "processes",
    "postgres",
    "redis",
    "provider",
    "network",
    "clocks",
    "rolling",
    "forget",
    "pause",
    "refuse",
    "all",
}


def section(title: str) -> str:
    return TEXT.split(f"\n## {title}\n")[1].split("\n## ")[0]


def rows(title: str) -> list[list[str]]:
    """The cells of each row of the table in a section, without its head."""
    lines = [line for line in section(title).splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def named(text: str) -> list[str]:
    return re.findall(r"`(tests/[\w/.]+::\w+)`", text)


def test_every_test_it_names_exists() -> None:
    assert len(named(TEXT)) > 90
    missing = [
        name
        for name in named(TEXT)
        if not re.search(rf"def {name.partition('::')[2]}\(", (ROOT / name.partition("::")[0]).read_text())
    ]
    assert missing == []


def test_every_fault_family_it_names_is_one() -> None:
    found = [family for listed in re.findall(r"chaos: ([a-z, ]+)", TEXT) for family in listed.strip().split(", ")]
    assert set(found) == FAMILIES


def test_every_promise_and_every_failure_says_what_shows_it() -> None:
    assert [row[0] for row in rows("What is promised")] == [f"I{number}" for number in range(8)]
    for title in ("What is promised", "When something breaks"):
        for row in rows(title):
            assert named(row[-1]) or "chaos: " in row[-1], row


def test_the_guards_are_those_of_the_list() -> None:
    told = {row[0]: (row[1], row[2].replace("`", "").split(), named(row[3]), row[4]) for row in rows("Guards")}
    assert told == {guard.name: (guard.holds, list(guard.files), list(guard.tests), seen(guard)) for guard in GUARDS}


def seen(guard: Guard) -> str:
    if guard.chaos is None:
        return f"no: {guard.unseen}"
    chaos = guard.chaos
    window = "" if chaos.window_s is None else f" --window {chaos.window_s:g}"
    batch = "" if chaos.batch == 1 else f" --batch {chaos.batch}"
    return f"chaos: {chaos.faults.replace(',', ', ')}{' --keyless' * chaos.keyless}{window}{batch}"


def test_all_fifteen_questions_are_answered_with_a_test() -> None:
    parts = section("Fifteen questions about coordination").strip().split("\n\n")
    answers = [part for part in parts if part.startswith("**")]
    assert len(answers) == 15
    assert [answer for answer in answers if not named(answer)] == []
