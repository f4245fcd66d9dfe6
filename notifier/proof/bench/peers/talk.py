"""How a driver is spoken to: one JSON object a line on its standard input, one back on its standard output."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import uvloop

Command = Callable[..., Awaitable[Mapping[str, Any]]]


class Driver(Protocol):
    """What can be asked of a driver: its public coroutines, by name, with the keywords they take."""

    async def hello(self) -> Mapping[str, Any]:
        """Say which versions run here."""
        ...

    async def rest(self) -> Mapping[str, Any]:
        """Stop working and let go of everything."""
        ...


@dataclass(slots=True)
class Count:
    """Jobs done by this process. `first` and `last`: seconds of the machine's monotonic clock, the same everywhere."""

    done: int = 0
    first: float = 0.0
    last: float = 0.0

    def add(self, number: int = 1) -> None:
        """Count so many, now."""
        self.last = time.monotonic()
        if not self.done:
            self.first = self.last
        self.done += number

    def told(self) -> Mapping[str, Any]:
        """Answer with it."""
        return {"done": self.done, "first": self.first, "last": self.last}


async def each_of(number: int, callers: int, call: Callable[[int], Awaitable[object]]) -> Mapping[str, Any]:
    """Have so many callers make `number` calls, each its next when its last has ended; gives seconds and waits."""
    numbers = iter(range(number))
    waits: list[float] = []

    async def caller() -> None:
        for index in numbers:
            asked = time.perf_counter()
            await call(index)
            waits.append(time.perf_counter() - asked)

    started = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(callers)))
    seconds = time.perf_counter() - started
    waits.sort()
    return {
        "seconds": seconds,
        "made": len(waits),
        "p50_s": waits[len(waits) // 2],
        "p99_s": waits[min(len(waits) - 1, int(len(waits) * 0.99))],
    }


def talk(driver: Driver) -> None:
    """Answer commands until the other side hangs up. What goes wrong is an answer, too.

    On uvloop, as our own processes and the command lines of PgQueuer and Oban run; so no side is slower for its loop.
    """
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever a library prints is no answer
    uvloop.run(_talk(driver, lambda answer: _say(answers, answer)))


def _say(answers: Any, answer: Mapping[str, Any]) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


async def _talk(driver: Driver, say: Callable[[Mapping[str, Any]], None]) -> None:
    lines = asyncio.StreamReader(limit=2**24)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    while line := await lines.readline():
        asked = json.loads(line)
        try:
            command: Command = getattr(driver, asked.pop("do"))
            say(await command(**asked))
        except Exception as error:  # noqa: BLE001 - the other side tells it to whoever asked
            say({"error": f"{type(error).__name__}: {error}"})
    await driver.rest()
