"""The lab's virtual time: naps, pauses and kills do what they do to real processes."""

from __future__ import annotations

import pytest

from notifier.proof.lab.loop import JobFailed, Loop, Process, Signal, nap


def a_process(loop: Loop) -> Process:
    return Process(loop, 0, "p")


def test_naps_end_in_the_order_of_time_and_then_of_asking() -> None:
    loop, seen = Loop(), []

    async def one(name: str, seconds: float) -> None:
        await nap(seconds)
        seen.append((name, loop.now))

    process = a_process(loop)
    for name, seconds in (("late", 2), ("first", 1), ("second", 1)):
        process.spawn(one(name, seconds))
    loop.run(10)
    assert seen == [("first", 1), ("second", 1), ("late", 2)]
    assert loop.now == 10


def test_a_killed_process_runs_no_further_line() -> None:
    loop, seen = Loop(), []

    async def work() -> None:
        seen.append("begun")
        await nap(5)
        seen.append("never")

    process = a_process(loop)
    process.spawn(work(), lambda failure: seen.append("never"))
    loop.at(3, process.kill)
    loop.run(10)
    assert seen == ["begun"]


def test_a_pause_stops_everything_in_the_process_and_loses_nothing() -> None:
    loop, seen = Loop(), []

    async def beat() -> None:
        for _ in range(4):
            await nap(1)
            seen.append(loop.now)

    process = a_process(loop)
    process.spawn(beat())
    loop.at(1.5, lambda: process.pause(10))
    loop.run(20)
    assert seen == [1, 11.5, 12.5, 13.5]


def test_a_signal_ends_a_nap_early_and_only_once() -> None:
    loop, signal, seen = Loop(), Signal(), []

    async def work() -> None:
        await nap(5, signal)
        seen.append(loop.now)
        await nap(5)
        seen.append(loop.now)

    a_process(loop).spawn(work())
    for at in (1, 2, 3):
        loop.at(at, lambda: signal.fire(loop))
    loop.run(20)
    assert seen == [1, 6]


def test_a_nap_that_ended_by_itself_is_not_woken_again() -> None:
    loop, signal, seen = Loop(), Signal(), []

    async def work() -> None:
        await nap(1, signal)
        await nap(10)
        seen.append(loop.now)

    a_process(loop).spawn(work())
    loop.at(2, lambda: signal.fire(loop))
    loop.run(20)
    assert seen == [11]


def test_a_failure_reaches_whoever_gave_the_work_and_a_bug_reaches_everybody() -> None:
    loop, heard = Loop(), []

    async def fails() -> None:
        raise JobFailed

    async def is_broken() -> None:
        raise ValueError("a bug")

    a_process(loop).spawn(fails(), lambda failure: heard.append(type(failure)))
    loop.run(1)
    assert heard == [JobFailed]
    a_process(loop).spawn(is_broken())
    with pytest.raises(ValueError, match="a bug"):
        loop.run(2)
