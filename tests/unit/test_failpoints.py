"""Failpoints: what arms them, what they do, and that unarmed they do nothing."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import Iterator

import pytest

from notifier import failpoints
from notifier.domain.errors import SettingsError
from notifier.failpoints import FailpointError, Point, arm, is_armed, reach


@pytest.fixture(autouse=True)
def _disarm() -> Iterator[None]:
    yield
    arm("")


@pytest.fixture
def signals(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, signal.Signals]]:
    """What would have been sent."""
    sent: list[tuple[int, signal.Signals]] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: sent.append((pid, number)))
    return sent


async def test_unarmed_every_point_is_passed(signals: list[object]) -> None:
    arm("")
    for point in Point:
        await reach(point)
        assert not is_armed(point)
    assert signals == []


@pytest.mark.parametrize(("action", "number"), [("kill", signal.SIGKILL), ("freeze", signal.SIGSTOP)])
async def test_kill_and_freeze_signal_this_process(action: str, number: signal.Signals, signals: list[object]) -> None:
    arm(f"worker.after_claim={action}")
    await reach(Point.WORKER_AFTER_SEND)
    assert signals == []
    await reach(Point.WORKER_AFTER_CLAIM)
    assert signals == [(os.getpid(), number)]


async def test_error_raises_there() -> None:
    arm("ingest.before_commit=error")
    with pytest.raises(FailpointError, match=r"ingest\.before_commit"):
        await reach(Point.INGEST_BEFORE_COMMIT)


async def test_pause_holds_the_task_and_not_the_process() -> None:
    arm("worker.mid_send=pause:0.05")
    waiting = asyncio.create_task(reach(Point.WORKER_MID_SEND))
    await asyncio.sleep(0)
    assert not waiting.done()
    await asyncio.wait_for(waiting, 5)


async def test_only_the_first_n_times(signals: list[object]) -> None:
    arm("worker.after_send=kill*2")
    for _ in range(5):
        await reach(Point.WORKER_AFTER_SEND)
    assert len(signals) == 2


async def test_probability(signals: list[object], monkeypatch: pytest.MonkeyPatch) -> None:
    arm("worker.after_send=kill@0.3")
    for drawn in (0.0, 0.29, 0.3, 0.99):
        monkeypatch.setattr(random, "random", lambda drawn=drawn: drawn)
        await reach(Point.WORKER_AFTER_SEND)
    assert len(signals) == 2


async def test_a_draw_that_fails_uses_up_none_of_the_n(signals: list[object], monkeypatch: pytest.MonkeyPatch) -> None:
    arm("worker.after_send=kill@0.5*1")
    for drawn in (0.9, 0.9, 0.1, 0.1):
        monkeypatch.setattr(random, "random", lambda drawn=drawn: drawn)
        await reach(Point.WORKER_AFTER_SEND)
    assert len(signals) == 1


def test_several_at_once_and_arming_again_forgets_the_old() -> None:
    arm(" worker.after_claim=kill ; ingest.after_lock=pause:2.5;")
    assert is_armed(Point.WORKER_AFTER_CLAIM)
    assert is_armed(Point.INGEST_AFTER_LOCK)
    arm("worker.after_send=freeze@0.1*1")
    assert [point for point in Point if is_armed(point)] == [Point.WORKER_AFTER_SEND]


@pytest.mark.parametrize(
    "text",
    [
        "worker.after_clam=kill",
        "worker.after_claim",
        "worker.after_claim=explode",
        "worker.after_claim=pause",
        "worker.after_claim=pause:x",
        "worker.after_claim=kill*-1",
        "worker.after_claim=kill@often",
        "=kill",
    ],
)
def test_what_cannot_be_read_is_refused_and_arms_nothing(text: str) -> None:
    arm("worker.after_send=kill")
    with pytest.raises(SettingsError, match="NOTIFIER_FAILPOINTS: cannot read") as caught:
        arm(f"worker.after_settle=kill;{text}")
    assert all(point in str(caught.value) for point in Point)
    assert set(failpoints._armed) == {Point.WORKER_AFTER_SEND}
