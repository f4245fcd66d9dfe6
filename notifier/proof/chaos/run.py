"""One run: the stage is set, load and faults go their ways, all comes to rest, and the history is judged."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from notifier.proof import history
from notifier.proof.chaos.collect import collect
from notifier.proof.chaos.load import Load
from notifier.proof.chaos.load_plan import FOLLOWUP_DELAY_S, plan_load
from notifier.proof.chaos.outside import Outside, open_outside
from notifier.proof.chaos.quiet import await_quiet
from notifier.proof.chaos.recorder import Recorder
from notifier.proof.chaos.schedule import Planned, plan_faults
from notifier.proof.chaos.screen import Progress, Screen
from notifier.proof.chaos.stage import TIMINGS, WINDOW_S, Stage, open_stage
from notifier.proof.checker import Verdict, judge

CLAIM_TTL_S = float(TIMINGS["CLAIM_TTL_S"])
PROVIDER_TIMEOUT_S = float(TIMINGS["PROVIDER_TIMEOUT_S"])
POLL_S = float(TIMINGS["POLL_S"])
COUNT_EVERY_S = 1.0
PATIENCE_S = 60.0
FAILED_MOST = 0.1  # of the faults: a busy machine may not get to some of them in time
HEARD_LEAST = 0.5  # of the users; where fewer were answered, there was nothing to lose or to double
ARMED_LEAST = 3  # so many failpoints armed and none come to is no bad luck


@dataclass(frozen=True, slots=True)
class Wish:
    """What is to be run. `seconds`: how long load and faults go on; `patience_s`: how long rest is waited for.

    `window_s`: how long the provider knows a key, and is taken to. `batch_max`: how many mails go in one call.
    `by_name`: those of the families that must be done, or the run counts for nothing.
    """

    seed: int
    seconds: float
    users: int
    families: tuple[str, ...]
    has_keys: bool = True
    window_s: float = WINDOW_S
    batch_max: int = 1
    patience_s: float = PATIENCE_S
    keep: bool = False
    by_name: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of it. `planned` and `faults`: how often each fault was to be done, and was.

    `calls`: how many the provider had, by its verdict.
    `armed` and `reached`: how many failpoints there were to come to in time, and at how many it happened.
    `skipped`: families that were not done, and why; `failed`: what the rig itself could not do, in words.
    `quiet_after_s`: from the end of the last fault, or the last step of the load if that was later.
    """

    wish: Wish
    verdict: Verdict
    planned: Mapping[tuple[str, str], int]
    faults: Mapping[tuple[str, str], int]
    armed: int
    reached: int
    skipped: Mapping[str, str]
    failed: Sequence[str]
    quiet_after_s: float | None
    seconds: float
    calls: Mapping[str, int]
    folder: Path | None = None

    @property
    def failed_much(self) -> bool:
        """Whether the rig failed at more than a busy machine explains, or at all there was of a family."""
        tried = {family for family, _ in self.planned}
        done = {family for family, _ in self.faults}
        return len(self.failed) > sum(self.planned.values()) * FAILED_MOST or bool(self.failed and tried - done)

    @property
    def shortcomings(self) -> Sequence[str]:
        """Why the run shows less than was asked for, whatever the verdict."""
        absent = [f"{family}: {why}" for family, why in self.skipped.items() if family in self.wish.by_name]
        missed = self.armed >= ARMED_LEAST and not self.reached
        idle = bool(self.wish.families) and not self.faults
        heard = self.verdict.totals["signups_acknowledged"]
        unheard = heard < self.wish.users * HEARD_LEAST
        return [
            *(self.failed if self.failed_much else []),
            *absent,
            *([f"any of the {self.armed} steps that were armed"] if missed else []),
            *(["a single fault"] if idle else []),
            *([f"enough: only {heard} signups of {self.wish.users} users were ever acknowledged"] if unheard else []),
        ]

    @property
    def is_good(self) -> bool:
        """Whether every promise was kept while everything that was asked for was broken."""
        return self.verdict.is_good and not self.shortcomings


async def run(wish: Wish, file: Path, screen: Screen) -> Outcome:
    """Do it, the history in `file`. Raises NotReady when the installation does not come up or stops answering."""
    began = time.monotonic()
    with contextlib.closing(Recorder(file)) as recorder:
        begin(recorder, wish)
        async with open_stage(
            recorder,
            families=wish.families,
            seed=wish.seed,
            has_keys=wish.has_keys,
            window_s=wish.window_s,
            batch_max=wish.batch_max,
            keep=wish.keep,
        ) as stage:
            await stage.await_ready()
            async with (
                recorder.comparing(stage.database_url),
                open_outside(recorder, stage.api_urls, stage.mock_url, stage.api_key) as outside,
            ):
                load_ended = await _load_and_break(wish, stage, recorder, outside, screen)
                since = max(load_ended, recorder.last_fault_ended or load_ended)
                quiet_after_s = await _come_to_rest(wish, since, stage, recorder, outside)
                await collect(outside, recorder)
    return _judged(wish, file, stage, quiet_after_s, time.monotonic() - began)


def _judged(wish: Wish, file: Path, stage: Stage, quiet_after_s: float | None, seconds: float) -> Outcome:
    lines = list(history.load(file.read_text(encoding="utf-8").splitlines()))
    ends = [line for line in lines if isinstance(line, history.Fault) and line.phase == "end"]
    armed = [line.detail["reached"] for line in ends if "reached" in line.detail]
    done = [line for line in ends if "failed" not in line.detail and line.detail.get("reached", True)]
    faults = Counter((line.family, line.name) for line in done)
    calls = Counter(line.verdict for line in lines if isinstance(line, history.Attempt))
    return Outcome(
        wish,
        judge(lines),
        Counter((line.family, line.name) for line in ends),
        faults,
        len(armed),
        sum(armed),
        stage.skipped,
        tuple(stage.failed),
        quiet_after_s,
        seconds,
        calls,
        stage.folder if wish.keep else None,
    )


def begin(recorder: Recorder, wish: Wish) -> None:
    """Write the first line."""
    recorder.run(
        seed=wish.seed,
        faults=wish.families,
        claim_ttl_s=CLAIM_TTL_S,
        poll_s=POLL_S,
        provider_timeout_s=PROVIDER_TIMEOUT_S,
        has_keys=wish.has_keys,
        window_s=wish.window_s,
        batch_max=wish.batch_max,
        followup_delay_s=FOLLOWUP_DELAY_S,
    )


async def _load_and_break(wish: Wish, stage: Stage, recorder: Recorder, outside: Outside, screen: Screen) -> float:
    """Load and faults side by side, neither waiting for the other; then whoever was not heard may still be.

    Gives the time (monotonic) of the load's last step; what was not heard is repeated for longer.
    """
    load = Load(outside, recorder, stage.webhook_secret, wish.seed)
    steps = plan_load(wish.seed, wish.users, wish.seconds)
    faults = plan_faults(wish.seed, wish.seconds, wish.families)
    started = time.monotonic()
    give_up = started + wish.seconds + wish.patience_s
    watching = asyncio.create_task(_watch(wish, started, load, recorder, outside, screen))
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(load.play(steps, started, give_up))
            group.create_task(_break(stage, faults, started))
    except ExceptionGroup as error:
        raise error.exceptions[0] from error
    finally:
        watching.cancel()
    return started + (steps[-1].at_s if steps else 0.0)


async def _break(stage: Stage, faults: list[Planned], started: float) -> None:
    await stage.run_faults(faults, started)
    await stage.heal()


async def _come_to_rest(wish: Wish, since: float, stage: Stage, recorder: Recorder, outside: Outside) -> float | None:
    """How long it took from `since` (monotonic); None when it did not happen in time."""
    await stage.await_ready()
    reached = await await_quiet(outside, since + wish.patience_s - time.monotonic())
    after_s = time.monotonic() - since
    recorder.quiet(reached=reached, after_s=after_s)
    return after_s if reached else None


async def _watch(wish: Wish, started: float, load: Load, recorder: Recorder, outside: Outside, screen: Screen) -> None:
    while True:
        mails = await outside.ask_provider("/api/messages?limit=1")
        screen.show(
            Progress(
                left_s=max(0.0, started + wish.seconds - time.monotonic()),
                users=len(load.heard),
                mails=mails.body["total"] if mails.status == 200 else None,
                faults=tuple(recorder.standing.values()),
            )
        )
        await asyncio.sleep(COUNT_EVERY_S)
