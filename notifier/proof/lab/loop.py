"""Virtual time: coroutines that run in processes which can be killed and paused, driven by one heap."""

from __future__ import annotations

import heapq
import types
from collections.abc import Callable, Coroutine, Generator
from dataclasses import dataclass, field
from typing import Any, TypeVarTuple

Given = TypeVarTuple("Given")
Work = Coroutine[Any, Any, None]


class JobFailed(Exception):
    """The code of a strategy raised: its caller sees it, and whoever gave it the work."""


@dataclass(slots=True, eq=False)
class Signal:
    """Wakes whoever naps on it."""

    _waiting: list[tuple[Task, int]] = field(default_factory=list)

    def fire(self, loop: Loop) -> None:
        """Wake all who nap on it now."""
        waiting, self._waiting = self._waiting, []
        for task, turn in waiting:
            loop.at(loop.now, task.step, turn)

    def wait(self, task: Task, turn: int) -> None:
        """Remember who naps, and which nap it is: an earlier one that ended by itself must not be woken again."""
        self._waiting.append((task, turn))


@dataclass(frozen=True, slots=True)
class _Nap:
    seconds: float
    signal: Signal | None


@types.coroutine
def nap(seconds: float, signal: Signal | None = None) -> Generator[_Nap, None, None]:
    """Let virtual time pass in this coroutine; `signal` ends it early."""
    yield _Nap(seconds, signal)


FOR_EVER = 1e12


class Loop:
    """The clock, and what is to happen when. Two things at the same time happen in the order they were asked for."""

    def __init__(self) -> None:
        self.now = 0.0
        self._heap: list[tuple[float, int, Callable[..., None], tuple[object, ...]]] = []
        self._asked = 0

    def at(self, when: float, act: Callable[[*Given], None], *given: *Given) -> None:
        """Do `act` at `when`, or now if that has passed."""
        self._asked += 1
        heapq.heappush(self._heap, (max(when, self.now), self._asked, act, given))

    def run(self, until: float) -> None:
        """Let everything happen that is to happen before `until`."""
        while self._heap and self._heap[0][0] <= until:
            self.now, _, act, given = heapq.heappop(self._heap)
            act(*given)
        self.now = until


class Task:
    """One coroutine in a process. `done` hears how it ended, unless its process died first."""

    def __init__(self, process: Process, work: Work, done: Callable[[JobFailed | None], None] | None) -> None:
        self._process, self._work, self._done = process, work, done
        self._turn = 0

    def step(self, turn: int) -> None:
        """Go on from the nap number `turn`; not while the process is paused, and never once it is dead."""
        process = self._process
        if turn != self._turn or not process.is_alive:
            return
        if process.paused_until > process.loop.now:
            process.loop.at(process.paused_until, self.step, turn)
            return
        self._turn += 1
        turn = self._turn
        try:
            asked: _Nap = self._work.send(None)
        except (StopIteration, JobFailed) as end:
            process.tasks.pop(self, None)
            if self._done is not None:
                self._done(end if isinstance(end, JobFailed) else None)
            return
        if asked.seconds < FOR_EVER:
            process.loop.at(process.loop.now + asked.seconds, self.step, turn)
        if asked.signal is not None:
            asked.signal.wait(self, turn)

    def drop(self) -> None:
        """Forget it in the middle, as SIGKILL does: no line of it runs any more."""
        self._work.close()


@dataclass(slots=True, eq=False)
class Process:
    """One process: everything in it stops together, the heartbeat thread with the work."""

    loop: Loop
    slot: int
    name: str
    is_alive: bool = True
    paused_until: float = 0.0
    tasks: dict[Task, None] = field(default_factory=dict)

    @property
    def is_running(self) -> bool:
        """Whether it gets anything done just now."""
        return self.is_alive and self.paused_until <= self.loop.now

    def spawn(self, work: Work, done: Callable[[JobFailed | None], None] | None = None) -> Task:
        """Start a coroutine in this process."""
        task = Task(self, work, done)
        self.tasks[task] = None
        self.loop.at(self.loop.now, task.step, 0)
        return task

    def kill(self) -> None:
        """SIGKILL."""
        self.is_alive = False
        for task in self.tasks:
            task.drop()
        self.tasks.clear()

    def pause(self, seconds: float) -> None:
        """Stop everything in it for a while: a long collection, a starved CPU, a machine that is being moved."""
        self.paused_until = max(self.paused_until, self.loop.now + seconds)
