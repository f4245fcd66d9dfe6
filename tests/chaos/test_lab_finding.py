"""A finding of the lab with real processes: a claim for a day loses the mail of a killed worker; ours does not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from notifier.proof.lab.main import main
from notifier.proof.lab.real import MOMENTS, Around, around, claim_for_a_day, ours


@pytest.fixture
async def at(tmp_path: Path, database_url: str, redis_url: str) -> AsyncIterator[Around]:
    async with around(tmp_path, database_url, redis_url) as place:
        yield place


async def test_a_claim_for_a_day_in_front_of_a_keyed_send_loses_the_mail(at: Around) -> None:
    found = await claim_for_a_day(at, "u1")
    assert found.mails == 0
    assert found.last_words == "somebody has the lock: returns"
    assert found.lock_left_s > 86_000  # so that every try of this day ends the same way


@pytest.mark.parametrize("moment", MOMENTS)
async def test_ours_in_the_same_trouble_sends_it_once(at: Around, moment: str) -> None:
    found = await ours(at, "u1", moment)
    assert (found.mails, found.last_words) == (1, "sent")


def test_the_lab_shows_it_on_servers_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--real"]) == 0
    said = capsys.readouterr().out
    assert "killed in the middle of the send: 0 mails" in said
    assert said.count("1 mail, sent") == len(MOMENTS)
