"""What a run is asked to do, and what it has found so far."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from notifier.proof.bench.figures import Measured
from notifier.proof.bench.meters import calibrate
from notifier.proof.bench.processes import Talking, driver
from notifier.proof.bench.sides import Side
from notifier.proof.bench.stage import Stage


@dataclass(frozen=True, slots=True)
class Wish:
    """One run. `scale` multiplies how many mails and events everything is done with; `quick` leaves out what is long.

    `growth`: rows of history at which growth is measured. `slots`: calls in hand per worker of ours and of the floor.
    """

    seed: int
    rounds: int
    works: Sequence[str]
    sides: Sequence[Side]
    workers: Sequence[int]
    callers: Sequence[int]
    clients: Sequence[int]
    growth: Sequence[int]
    scale: float = 1.0
    quick: bool = False
    slots: int | None = None

    def with_sides(self, sides: Sequence[Side]) -> Wish:
        """The same with other sides."""
        return replace(self, sides=sides)

    def number(self, usual: int, multiple_of: int = 1) -> int:
        """So many as this run's size wants, at least one lot."""
        return max(1, round(usual * self.scale / multiple_of)) * multiple_of


@dataclass(slots=True)
class Bench:
    """A run under way. `skipped`: what was not measured, and why."""

    wish: Wish
    stage: Stage
    peers_python: str | None = None
    measured: list[Measured] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)

    def python_of(self, side: Side) -> str:
        """Which Python runs a side's drivers."""
        return self.peers_python if side.kind == "peer" and self.peers_python else self.stage.python

    @contextlib.asynccontextmanager
    async def drivers(self, side: Side, module: str, number: int = 1) -> AsyncIterator[Sequence[Talking]]:
        """Start so many drivers of a side, each in a process of its own."""
        async with contextlib.AsyncExitStack() as stack:
            yield [
                await stack.enter_async_context(driver(self.stage.folder, module, self.python_of(side)))
                for _ in range(number)
            ]

    def add(
        self,
        work: str,
        side: str,
        setting: str,
        round_number: int,
        *,
        number: int,
        seconds: float,
        before_s: float,
        costs: Mapping[str, Any] | None = None,
        more: Mapping[str, float] | None = None,
        way: str = "",
    ) -> Measured:
        """Note a measurement, with the loop as it is now beside the one before."""
        measured = Measured(
            work=work,
            side=side,
            setting=setting,
            round=round_number,
            number=number,
            seconds=seconds,
            calibration_s=(before_s, calibrate()),
            more=more or {},
            way=way,
            **(costs or {}),
        )
        self.measured.append(measured)
        return measured
