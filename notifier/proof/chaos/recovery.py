"""How soon is a dead worker's call taken over: workers killed in mid-send one after another, several at a time."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
import os
import statistics
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from notifier.domain.errors import NotReady
from notifier.failpoints import Point
from notifier.proof import history
from notifier.proof.chaos.collect import collect
from notifier.proof.chaos.load import Load
from notifier.proof.chaos.load_plan import Happening, Say
from notifier.proof.chaos.outside import open_outside
from notifier.proof.chaos.pods import Pod, within
from notifier.proof.chaos.quiet import await_quiet
from notifier.proof.chaos.recorder import Recorder
from notifier.proof.chaos.run import CLAIM_TTL_S, Wish, begin
from notifier.proof.chaos.schedule import WORKERS
from notifier.proof.chaos.screen import Screen
from notifier.proof.chaos.stage import Stage, open_stage
from notifier.proof.checker import Verdict, judge

ARMED = f"{Point.WORKER_MID_SEND.value}=kill*1"
VICTIMS = 6  # at a time
SIGNUP_EVERY_S = 0.05
DIES_WITHIN_S = 60.0
CLAIMS_MAX = 2.0  # a call must be taken over within so many claim times
SPARE = 0.5  # deaths beyond those asked for: a request cut off in the making may never reach the provider's record
PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class Recovery:
    """What was measured. `kills`: how many were asked for, at least.

    `seconds`: from each death to the repeat of a call it had in hand, at the provider.
    A repeat with other deaths in between counts with its share of the time: one claim made good each of them.
    """

    kills: int
    seconds: tuple[float, ...]
    verdict: Verdict
    took_s: float

    @property
    def is_good(self) -> bool:
        """Whether every call that a dead worker left was taken over in time, and no rule was broken for any mail."""
        return self.verdict.is_good and len(self.seconds) >= self.kills and self.worst_claims <= CLAIMS_MAX

    @property
    def median_claims(self) -> float:
        """In claim times."""
        return statistics.median(self.seconds) / CLAIM_TTL_S if self.seconds else 0.0

    @property
    def worst_claims(self) -> float:
        """In claim times."""
        return max(self.seconds, default=0.0) / CLAIM_TTL_S


async def measure(kills: int, seed: int, file: Path, screen: Screen) -> Recovery:
    """Do it. Raises NotReady when the installation does not come up, or an armed worker does not die."""
    began = time.monotonic()
    with contextlib.closing(Recorder(file)) as recorder:
        begin(recorder, Wish(seed=seed, seconds=0.0, users=0, families=()))
        async with open_stage(recorder, families=(), seed=seed) as stage:
            await stage.await_ready()
            async with (
                recorder.comparing(stage.database_url),
                open_outside(recorder, stage.api_urls, stage.mock_url, stage.api_key) as outside,
            ):
                load = Load(outside, recorder, stage.webhook_secret, seed)
                async with _victims(stage, min(kills, VICTIMS)) as victims:
                    await _kill(kills + math.ceil(kills * SPARE), load, victims, screen)
                recorder.quiet(reached=await await_quiet(outside, PATIENCE_S), after_s=0.0)
                await collect(outside, recorder)
    return _measured(kills, file, time.monotonic() - began)


def _measured(kills: int, file: Path, took_s: float) -> Recovery:
    verdict = judge(list(history.load(file.read_text(encoding="utf-8").splitlines())))
    return Recovery(kills, tuple(sorted(one.seconds / one.claims for one in verdict.takeovers)), verdict, took_s)


@contextlib.asynccontextmanager
async def _victims(stage: Stage, number: int) -> AsyncIterator[Sequence[Pod]]:
    """Workers beside the stage's own, which are there to take over."""
    model = stage.scene.pods[WORKERS[0]].spec
    parent_fd, our_end = os.pipe()
    pods = [
        Pod(replace(model, name=f"victim-{one}"), folder=stage.folder, parent_fd=parent_fd, note=stage.scene.note)
        for one in range(1, number + 1)
    ]
    try:
        yield pods
    finally:
        await asyncio.gather(*(pod.end() for pod in pods))
        for handle in (parent_fd, our_end):
            os.close(handle)


async def _kill(kills: int, load: Load, victims: Sequence[Pod], screen: Screen) -> None:
    """Each victim dies, and dies again, until there were enough deaths; meanwhile people sign up."""
    deaths = itertools.count(1)
    turns = iter(range(kills))
    signing_up = asyncio.create_task(_sign_up(load))
    try:
        async with asyncio.TaskGroup() as group:
            for pod in victims:
                group.create_task(_kill_again(pod, turns, deaths, kills, screen))
    except ExceptionGroup as error:
        raise error.exceptions[0] from error
    finally:
        signing_up.cancel()
        await asyncio.wait({signing_up})


async def _kill_again(pod: Pod, turns: Iterator[int], deaths: Iterator[int], kills: int, screen: Screen) -> None:
    keeping = asyncio.create_task(pod.keep())  # it begins after the first life is armed
    try:
        for _ in turns:
            life = await pod.replace(failpoints=ARMED)
            if not await within(life.ended, DIES_WITHIN_S):
                raise NotReady(f"{pod.spec.name} had no call to die over in {DIES_WITHIN_S:g} s")
            screen.tell(f"{next(deaths)} of {kills} workers killed in mid-send")
    finally:
        keeping.cancel()
        await asyncio.wait({keeping})


async def _sign_up(load: Load) -> None:
    """One after the other, for ever."""
    started = time.monotonic()
    async with asyncio.TaskGroup() as group:
        for number in itertools.count():
            user = f"u-{number:05d}"
            signup = Happening("signup", user, f"evt-{user}", "user.signed_up", None, f"{user}@example.com")
            group.create_task(load.play([Say(0.0, (signup,))], time.monotonic(), started + 10 * DIES_WITHIN_S))
            await asyncio.sleep(SIGNUP_EVERY_S)


def report(console: Console, found: Recovery) -> None:
    """Print it."""
    number = len(found.seconds)
    console.print(
        f"\nAt least {found.kills} workers killed in mid-send in {found.took_s:.0f} s; {number} calls taken over"
    )
    if found.seconds:
        median_s, worst_s = statistics.median(found.seconds), max(found.seconds)
        console.print(f"From the death to the repeat at the provider, with claims of {CLAIM_TTL_S:g} s:")
        console.print(f"  median {median_s:.2f} s, {found.median_claims:.2f} claim times")
        console.print(f"  worst  {worst_s:.2f} s, {found.worst_claims:.2f} claim times; at most {CLAIMS_MAX:g}")
    for finding in found.verdict.violations:
        console.print(Text(f"{finding.rule}: {finding.sentence}", style="bold red"))
    words = ("All taken over in time.", "bold green") if found.is_good else ("Not as it must be.", "bold red")
    console.print(Text(words[0], style=words[1]))


def document(found: Recovery) -> dict[str, Any]:
    """The same for programs."""
    return {
        "ok": found.is_good,
        "kills": found.kills,
        "taken_over": len(found.seconds),
        "claim_ttl_s": CLAIM_TTL_S,
        "median_s": round(statistics.median(found.seconds), 3) if found.seconds else None,
        "worst_s": round(max(found.seconds), 3) if found.seconds else None,
        "median_claims": round(found.median_claims, 2),
        "worst_claims": round(found.worst_claims, 2),
        "took_s": round(found.took_s, 1),
        "violations": [f"{finding.rule}: {finding.sentence}" for finding in found.verdict.violations],
    }
