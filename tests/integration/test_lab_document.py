"""docs/why.md says what the code finds: its table is a fresh run's, and so is the number ours left uncertain."""

from __future__ import annotations

from pathlib import Path

from notifier.proof.lab.main import SEED, SEEDS, USERS
from notifier.proof.lab.report import markdown
from notifier.proof.lab.run import Totals, compare
from notifier.proof.lab.strategies import ALL

DOCUMENT = Path(__file__).parents[2] / "docs" / "why.md"


def test_the_figures_are_those_of_a_fresh_run() -> None:
    totals = [Totals(strategy) for strategy in ALL]
    for _ in compare(totals, range(SEED, SEED + SEEDS), USERS):
        pass
    written, ours = DOCUMENT.read_text("utf-8"), totals[-1]
    assert markdown(totals) in written, "run scripts/strategy_lab.py --markdown FILE --picture docs/why, and put it in"
    assert f" {ours.announced} of its mails, too, went out after a login" in " ".join(written.split())
    assert f"left {ours.uncertain} of {ours.mails} mails `uncertain`" in " ".join(written.split())
