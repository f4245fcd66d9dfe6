"""One showing: the stage is set, the story played and counted, and everything put away, whatever happens."""

from __future__ import annotations

import contextlib
import json
import logging
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import aiohttp
import structlog
from rich.console import Console

from notifier.demo.judge import Row, judge
from notifier.demo.outsider import Outsider, Person
from notifier.demo.screen import Screen
from notifier.demo.stage import Stage, open_stage
from notifier.demo.story import NotInTime, Story
from notifier.domain.errors import NotReady
from notifier.supervisor.conductor import Signals

EXIT_WRONG = 1
EXIT_BY_SIGNAL = 128
HTTP_WITHIN_S = 10.0
NAMES = ("Ada", "Alan", "Barbara", "Donald", "Edsger", "Frances", "Grace", "Joan", "Katherine", "Niklaus", "Radia")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of the story; `missing` says what did not happen in time."""

    rows: Sequence[Row]
    missing: str | None
    seconds: float

    @property
    def ok(self) -> bool:
        """Whether every number is what it must be."""
        return self.missing is None and all(row.ok for row in self.rows)


async def show(people: int, *, as_json: bool, keep: bool) -> int:
    """Play the story to `people` and answer the exit code: 0, 1 for a wrong number, 128 + N when signal N ended it.

    Raises NotReady when the installation does not come up or stops answering. Nothing is left behind, unless `keep`
    says so: then it goes on until a signal comes, and its files stay.
    """
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))  # the screen tells
    screen, signals = Screen(Console(stderr=as_json, highlight=False)), Signals()
    with signals.listening():
        screen.begin(people)
        async with open_stage(keep=keep) as stage:
            outcome = await signals.unless_stopped(_tell(stage, screen, people))
            if outcome is None:
                screen.say("Stopping, and putting everything away …")
            elif as_json:
                _write(outcome)
            else:
                screen.end(outcome.rows, outcome.missing)
            if outcome and keep:
                screen.goes_on(stage)
                await signals.stop.wait()
    if outcome is None:
        return EXIT_BY_SIGNAL + (signals.first or 0)
    return 0 if outcome.ok else EXIT_WRONG


async def _tell(stage: Stage, screen: Screen, people: int) -> Outcome:
    began = time.monotonic()
    async with (
        screen.live(),
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=HTTP_WITHIN_S)) as http,
    ):
        await stage.start_run()
        screen.is_up(stage)
        story = Story(stage, Outsider(http, stage.facts), screen, _people(people))
        missing = None
        try:
            try:
                await story.play()
            except NotInTime as error:
                missing = str(error)
                story.told.under_way = await story.outsider.under_way()
            rows = judge(story.told, await story.outsider.record())
        except (aiohttp.ClientError, TimeoutError) as error:
            raise NotReady(f"the demo's installation stopped answering ({type(error).__name__})") from error
        return Outcome(rows, missing, time.monotonic() - began)


def _people(number: int) -> list[Person]:
    names = [NAMES[index % len(NAMES)] for index in range(number)]
    return [Person(f"{name.lower()}-{index}", name) for index, name in enumerate(names, start=1)]


def _write(outcome: Outcome) -> None:
    document = {
        "ok": outcome.ok,
        "seconds": round(outcome.seconds, 1),
        "missing": outcome.missing,
        "rows": [asdict(row) | {"what": row.what.strip()} for row in outcome.rows],
    }
    with contextlib.suppress(OSError):  # whoever was to read it has gone
        sys.stdout.write(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
        sys.stdout.flush()
