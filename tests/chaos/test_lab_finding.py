"""A finding of the lab with real processes: a claim for a day loses the mail of a killed worker; ours does not."""

from __future__ import annotations

import re

import pytest

from notifier.proof.lab.main import main
from notifier.proof.lab.real import MOMENTS


def test_a_claim_for_a_day_loses_the_mail_of_a_killed_worker_and_ours_does_not(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--real"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "24 h claim, keyed send, killed in the middle of the send: 0 mails." in said
    assert "The second try: somebody has the lock: returns;" in said
    left = re.search(r"the lock stays for (\d+) s", said)
    assert left is not None
    assert int(left[1]) > 86_000  # so that every try of this day ends the same way
    for moment in MOMENTS:
        assert f"ours, killed at {moment}: 1 mail, sent." in said
