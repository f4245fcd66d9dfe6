"""The list of guards: each stands where it says, exactly once, and its tests exist."""

from __future__ import annotations

from pathlib import Path

import pytest

from notifier.proof.chaos.families import choose
from notifier.proof.guards.catalog import GUARDS
from notifier.proof.guards.guard import Change, Chaos, Guard, Moved, without

ROOT = Path(__file__).resolve().parents[2]
PLAIN = Guard("plain", "an example", (Change("a.py", "if held:", "if True:"),), ("tests/unit/test_a.py::test_a",))


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.name)
def test_it_can_be_taken_out_of_the_present_code(guard: Guard) -> None:
    as_it_is = {path: (ROOT / path).read_text() for path in guard.files}
    changed = without(guard, as_it_is)
    for path, text in changed.items():
        assert text != as_it_is[path]
        compile(text, path, "exec")


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.name)
def test_its_tests_exist(guard: Guard) -> None:
    assert guard.tests
    for test in guard.tests:
        path, _, name = test.partition("::")
        assert f"def {name}(" in (ROOT / path).read_text(), test


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.name)
def test_it_is_seen_from_outside_or_says_why_not(guard: Guard) -> None:
    assert (guard.chaos is None) == bool(guard.unseen)
    if guard.chaos is not None:
        choose(guard.chaos.faults)
        assert guard.chaos.minutes <= 1


def test_names_are_not_used_twice() -> None:
    names = [guard.name for guard in GUARDS]
    assert len(set(names)) == len(names)


def test_no_two_take_out_the_same() -> None:
    changes = [guard.changes for guard in GUARDS]
    assert len(set(changes)) == len(changes)


@pytest.mark.parametrize(("text", "times"), [("nothing of the kind", 0), ("if held: a\nif held: b", 2)])
def test_text_that_moved_is_said_and_nothing_is_changed(text: str, times: int) -> None:
    with pytest.raises(Moved, match=rf"guard plain: .* stands {times} times in a\.py") as moved:
        without(PLAIN, {"a.py": text})
    assert "mend its entry" in str(moved.value)


def test_several_changes_of_one_file_are_made_one_after_the_other() -> None:
    twice = Guard("twice", "an example", (*PLAIN.changes, Change("a.py", "run()", "pass")), ())
    assert without(twice, {"a.py": "if held: run()"}) == {"a.py": "if True: pass"}


def test_a_chaos_run_is_asked_for_with_what_differs_from_what_is_usual() -> None:
    usual = ("--minutes", "0.7", "--users", "150", "--seed", "3", "--faults", "kill")
    assert Chaos(seed=3, faults="kill").arguments == usual
    assert Chaos(seed=3, faults="kill", keyless=True, window_s=2.0).arguments == (*usual, "--window", "2", "--keyless")
