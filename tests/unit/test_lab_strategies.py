"""The lab on two seeds: each strategy fails as it is described, ours does not, and would without any of its guards."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path

import pytest

from notifier.proof.lab.judge import Fault, judge
from notifier.proof.lab.main import USERS, complaints, main
from notifier.proof.lab.run import Totals, compare
from notifier.proof.lab.script import write
from notifier.proof.lab.strategies import ALL, Guard, Ours, Strategy
from notifier.proof.lab.strategies.base import DAY_EX, World
from notifier.proof.lab.strategies.claims import ClaimBeforeKeyedSend, ClaimForADay
from notifier.proof.lab.strategies.flags import FlagAfterSend, FlagBeforeSend
from notifier.proof.lab.world import Run

REPOSITORY = Path(__file__).parents[2]


@cache
def on_two_seeds() -> tuple[Totals, ...]:
    totals = tuple(Totals(strategy) for strategy in ALL)
    for _ in compare(totals, (1, 2), USERS):
        pass
    return totals


def totals_of(
    strategy: type[Strategy], seeds: Sequence[int], made: Callable[[World], Strategy] | None = None
) -> Totals:
    totals = Totals(strategy)
    for seed in seeds:
        totals.add(write(seed, USERS), made or strategy)
    return totals


@pytest.mark.parametrize("index", range(len(ALL)), ids=[strategy.name for strategy in ALL])
def test_each_strategy_fails_as_it_is_described(index: int) -> None:
    totals = on_two_seeds()[index]
    assert totals.unshown == []
    for fault in totals.strategy.shows:
        assert totals.first[fault].lines, "a case to read"
    assert totals.is_clean == (totals.strategy is Ours)


def test_the_same_seed_gives_the_same_counts_and_stories_whatever_the_hash_seed() -> None:
    def counted(hash_seed: str) -> str:
        code = "import json; from tests.unit.test_lab_strategies import everything; print(json.dumps(everything()))"
        environ = {**os.environ, "PYTHONHASHSEED": hash_seed}
        return subprocess.run(
            [sys.executable, "-c", code], cwd=REPOSITORY, env=environ, capture_output=True, text=True, check=True
        ).stdout

    assert counted("1") == counted("2") == json.dumps(everything()) + "\n"


def everything() -> list[object]:
    totals = [Totals(strategy) for strategy in ALL]
    for _ in compare(totals, (3,), 60):
        pass
    return [[t.strategy.name, t.faults, {f: (s.mail, s.lines) for f, s in t.first.items()}] for t in totals]


def test_the_flag_after_the_send_as_printed_is_never_asked() -> None:
    class AsPrinted(FlagAfterSend):
        claim_s = DAY_EX

    printed, plain = totals_of(AsPrinted, (1, 2)).faults, totals_of(ClaimForADay, (1, 2)).faults
    assert printed[Fault.LOST] == plain[Fault.LOST]
    assert printed[Fault.DUPLICATED] == plain[Fault.DUPLICATED]


def test_a_key_behind_the_claim_for_a_day_saves_none_of_the_mails_the_claim_loses() -> None:
    script = write(1, USERS)
    lost = [
        judge(script, Run(script, strategy).to_the_end(), strategy.kinds)[Fault.LOST]
        for strategy in (ClaimForADay, ClaimBeforeKeyedSend, FlagBeforeSend)
    ]
    assert lost[0] == lost[1] == lost[2] != []


def test_the_flag_before_the_send_is_the_claim_for_a_day_under_another_name() -> None:
    by_name = {totals.strategy.name: totals.faults for totals in on_two_seeds()}
    assert by_name["flag-before"] == by_name["nx-24h"]


def test_ours_is_clean_on_other_seeds_too() -> None:
    assert totals_of(Ours, range(100, 106)).is_clean


@pytest.mark.parametrize(
    ("guard", "fault"),
    [
        (Guard.UNIQUE, Fault.DUPLICATED),
        (Guard.FENCE, Fault.WRONGLY_FAILED),
        (Guard.LOGIN, Fault.AFTER_LOGIN),
        (Guard.CANCEL, Fault.AFTER_LOGIN),
        (Guard.DOUBT, Fault.AFTER_LOGIN),
        (Guard.DOUBT, Fault.WRONGLY_FAILED),
        (Guard.KEY, Fault.DUPLICATED),
    ],
)
def test_without_a_guard_ours_fails_in_this_world(guard: Guard, fault: Fault) -> None:
    without = partial(Ours, without=[guard])
    assert any(totals_of(Ours, [seed], without).faults[fault] for seed in range(1, 21))


def test_without_the_lease_nothing_changes_for_it_is_a_hint() -> None:
    assert totals_of(Ours, range(1, 4), partial(Ours, without=[Guard.LEASE])).is_clean


def test_what_was_not_found_is_complained_of() -> None:
    unclean, unshown = Totals(Ours, seeds=1), Totals(ClaimForADay, seeds=2)
    unclean.faults[Fault.LOST] = 3
    assert complaints([unclean]) == ["ours is not clean: 3 lost; see --show ours"]
    assert "nx-24h did not show 'lost'" in complaints([unshown])[0]
    unshown.seeds = 1
    assert complaints([unshown]) == []


def test_the_command_writes_all_it_is_asked_for_and_judges(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--seeds", "2", "--json", str(tmp_path / "l.json"), "--picture", str(tmp_path / "l")]
    asked += ["--histories", str(tmp_path / "h"), "--markdown", str(tmp_path / "l.md"), "--show", "nx-24h"]
    assert main(asked) == 0
    written = json.loads((tmp_path / "l.json").read_text())
    assert [entry["name"] for entry in written["strategies"]] == [strategy.name for strategy in ALL]
    ours = written["strategies"][-1]
    assert {fault: found["mails"] for fault, found in ours["faults"].items()} == {fault.value: 0 for fault in Fault}
    assert (tmp_path / "l.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "l.svg").read_text()
    assert "somebody has it, so it returns" in (tmp_path / "h" / "nx-24h-lost.txt").read_text()
    assert "| ours | 480 | 0 | 0 | 0 | 0 |" in (tmp_path / "l.md").read_text()
    assert "somebody has it, so it returns" in capsys.readouterr().out


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "1", "--users", "10", "--json", str(tmp_path / "not" / "there.json")]) == 1
    assert "not/there.json" in capsys.readouterr().err


def test_taking_a_guard_out_ends_with_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "1", "--users", "60", "--without", "key"]) == 1
    assert "ours is not clean" in capsys.readouterr().err
