"""The recorder: what it writes can be read back at once, and its two clocks agree."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from notifier.proof import history
from notifier.proof.chaos.recorder import ROUND_TRIP_MAX_S, Recorder

NOW = datetime(2026, 11, 29, 10, tzinfo=UTC)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "history.jsonl"


@pytest.fixture
def recorder(file: Path) -> Iterator[Recorder]:
    recorder = Recorder(file)
    yield recorder
    recorder.close()


def lines(file: Path) -> list[history.Line]:
    return list(history.load(file.read_text().splitlines()))


def test_a_line_stands_in_the_file_as_soon_as_it_is_written(recorder: Recorder, file: Path) -> None:
    n = recorder.request("signup", "events", user="u", id="e", occurred_at=NOW, email="u@example.com")
    assert [line.what for line in lines(file)] == ["request"]
    recorder.answer(n, 202, {"event": {"id": "e"}})
    recorder.answer(recorder.request("login", "webhook", user="u", id="l", resends=n), None)
    sent, told, again, lost = lines(file)
    assert isinstance(sent, history.Request)
    assert isinstance(again, history.Request)
    assert isinstance(told, history.Answer)
    assert isinstance(lost, history.Answer)
    assert (sent.n, told.n, told.status, again.resends, lost.status) == (n, n, 202, n, None)
    assert sent.mono <= told.mono <= again.mono <= lost.mono


def test_what_is_no_object_is_kept_all_the_same(recorder: Recorder, file: Path) -> None:
    recorder.answer(1, 500, ["odd"])
    [line] = lines(file)
    assert isinstance(line, history.Answer)
    assert line.body == {"body": ["odd"]}


def test_faults_stand_from_their_begin_to_their_end(recorder: Recorder, file: Path) -> None:
    recorder.fault(n=1, family="redis", name="stopped", phase="begin")
    recorder.fault(n=2, family="kill", name="worker.mid_send", phase="begin", hides_answers=True, detail={"pod": "w"})
    recorder.fault(n=1, family="redis", name="stopped", phase="end")
    assert dict(recorder.standing) == {2: "kill: worker.mid_send"}
    assert [line.what for line in lines(file)] == ["fault"] * 3


def test_every_kind_of_line_can_be_read_back(recorder: Recorder, file: Path) -> None:
    recorder.run(
        seed=1,
        faults=("kill",),
        claim_ttl_s=3,
        poll_s=1,
        provider_timeout_s=1,
        has_keys=True,
        window_s=86_400,
        followup_delay_s=259_200,
    )
    recorder.signal(process="worker-1", role="worker", pid=7, signal="KILL", worker="w-1", by="schedule")
    recorder.keys_forgotten()
    caller = {"key": "k", "user": "u", "kind": "onboarding", "to": ["u@example.com"]}
    recorder.attempt(NOW, seq=1, worker="w-1", generation=1, verdict="accepted", status=200, **caller)
    recorder.mail(NOW, seq=1, id="m", **caller)
    recorder.quiet(reached=True, after_s=1.23456)
    recorder.opinion(id="n", user="u", kind="onboarding", state="sent", reason=None, document={})
    recorder.invariants({"violations": 0})
    kinds = ["run", "signal", "keys_forgotten", "attempt", "mail", "quiet", "opinion", "invariants"]
    assert [line.what for line in lines(file)] == kinds


def test_what_has_a_time_of_its_own_keeps_it_and_gets_ours(recorder: Recorder, file: Path) -> None:
    later = datetime.now(UTC) + timedelta(seconds=5)
    recorder.mail(later, seq=1, id="m", key=None, user=None, kind=None, to=[])
    [line] = lines(file)
    assert line.at == later
    assert line.mono == pytest.approx(time.monotonic() + 5, abs=1)


def test_before_the_database_has_answered_it_is_this_hosts_time(recorder: Recorder, file: Path) -> None:
    recorder.keys_forgotten()
    assert abs(lines(file)[0].at - datetime.now(UTC)) < timedelta(seconds=1)


async def test_a_database_that_is_away_changes_nothing(recorder: Recorder) -> None:
    before = recorder.at_of(1.0)
    await recorder.compare("postgresql://nobody@127.0.0.1:9/nothing")
    assert recorder.at_of(1.0) == before


async def test_a_slow_comparison_is_made_again_until_one_is_quick(recorder: Recorder) -> None:
    delays = iter([0.3, 0.2, 0.0])

    async def ask() -> datetime:
        """A database that answers at once, and a way back that is slow at first."""
        at = datetime.now(UTC) + timedelta(hours=1)
        await asyncio.sleep(next(delays))
        return at

    await recorder.compare_with(ask)
    ahead = recorder.at_of(time.monotonic()) - datetime.now(UTC)
    assert abs(ahead - timedelta(hours=1)) < timedelta(seconds=0.03)


async def test_a_slower_comparison_replaces_none_that_was_quicker(recorder: Recorder) -> None:
    async def ask() -> datetime:
        return NOW

    async def ask_slowly() -> datetime:
        await asyncio.sleep(ROUND_TRIP_MAX_S * 2)
        return NOW + timedelta(days=1)

    await recorder.compare_with(ask_slowly)
    assert recorder.at_of(time.monotonic()) > NOW + timedelta(hours=23), "nothing better is known"
    await recorder.compare_with(ask)
    await recorder.compare_with(ask_slowly)
    assert recorder.at_of(time.monotonic()) < NOW + timedelta(hours=1)


def test_the_end_of_the_last_fault_is_known(recorder: Recorder) -> None:
    assert recorder.last_fault_ended is None
    recorder.fault(n=1, family="redis", name="stopped", phase="begin")
    assert recorder.last_fault_ended is None
    recorder.fault(n=1, family="redis", name="stopped", phase="end")
    assert recorder.last_fault_ended == pytest.approx(time.monotonic(), abs=1)
