"""The load, the history and the wait for quiet against real processes of the service, with nothing broken."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from notifier.proof import history
from notifier.proof.chaos.collect import collect
from notifier.proof.chaos.load import Load
from notifier.proof.chaos.load_plan import plan_load
from notifier.proof.chaos.outside import open_outside
from notifier.proof.chaos.quiet import await_quiet
from notifier.proof.chaos.recorder import Recorder
from tests.support.stack import KEY, SECRET, open_stack

SECONDS, USERS = 5.0, 40


async def test_the_load_is_heard_comes_to_rest_and_is_written_down(
    tmp_path: Path, database_url: str, redis_url: str
) -> None:
    file = tmp_path / "history.jsonl"
    recorder = Recorder(file)
    async with open_stack(tmp_path, database_url, redis_url, CLOCK="real") as stack:
        await stack.start_all()
        await stack.start("api", "api-2")
        urls = [stack["api"].url, stack["api-2"].url]
        async with (
            recorder.comparing(database_url),
            open_outside(recorder, urls, stack["mock"].url, KEY) as outside,
        ):
            load = Load(outside, recorder, SECRET, seed=1)
            started = time.monotonic()
            await load.play(plan_load(1, USERS, SECONDS), started, started + SECONDS + 20)
            assert await await_quiet(outside, 20)
            await collect(outside, recorder)
    recorder.close()
    assert len(load.heard) == USERS
    lines = list(history.load(file.read_text().splitlines()))
    requests = {line.n: line for line in lines if isinstance(line, history.Request)}
    answers = {line.n: line for line in lines if isinstance(line, history.Answer)}
    assert requests.keys() == answers.keys()
    statuses = Counter((requests[n].door, requests[n].act, answer.status) for n, answer in answers.items())
    assert not [key for key in statuses if key[2] is None or key[2] >= 500 or key[2] in (400, 401, 403, 422)], statuses
    opinions = {(line.user, line.kind): line for line in lines if isinstance(line, history.Opinion)}
    mails = Counter((line.user, line.kind) for line in lines if isinstance(line, history.Mail))
    assert len(opinions) == 2 * USERS
    assert mails == Counter(pair for pair, line in opinions.items() if line.state == "sent")
    assert {line.verdict for line in lines if isinstance(line, history.Attempt)} == {"accepted"}
    assert [line.document["violations"] for line in lines if isinstance(line, history.Invariants)] == [0]


async def test_the_time_on_the_lines_is_the_databases(tmp_path: Path, database_url: str, connection: Any) -> None:
    with closing(Recorder(tmp_path / "history.jsonl")) as recorder:
        recorder._at -= timedelta(hours=1)  # whatever this host's clock says
        async with recorder.comparing(database_url):
            before = recorder.at_of(time.monotonic())
            at = await connection.fetchval("SELECT clock_timestamp()")
            after = recorder.at_of(time.monotonic())
    assert before - timedelta(seconds=0.05) <= at <= after + timedelta(seconds=0.05)
    assert recorder.mono_of(recorder.at_of(5.0)) == pytest.approx(5.0)
