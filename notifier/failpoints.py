"""Steps with names, at which a test can end, stop or delay this process; unarmed they cost next to nothing."""

from __future__ import annotations

import asyncio
import enum
import os
import random
import re
import signal
from dataclasses import dataclass

from notifier.domain.errors import SettingsError


class Point(enum.StrEnum):
    """Every step that can be armed; each stands in one place of the code."""

    INGEST_AFTER_LOCK = "ingest.after_lock"
    INGEST_BEFORE_COMMIT = "ingest.before_commit"
    INGEST_AFTER_COMMIT = "ingest.after_commit"
    LOGIN_BETWEEN_CANCELS = "login.between_cancels"
    SCHEDULER_BEFORE_RELEASE = "scheduler.before_release"
    SCHEDULER_AFTER_RELEASE = "scheduler.after_release"
    WORKER_AFTER_CLAIM = "worker.after_claim"
    WORKER_AFTER_BEGIN = "worker.after_begin"
    WORKER_BEFORE_SEND = "worker.before_send"
    WORKER_MID_SEND = "worker.mid_send"
    WORKER_AFTER_SEND = "worker.after_send"
    WORKER_BEFORE_SETTLE = "worker.before_settle"
    WORKER_AFTER_SETTLE = "worker.after_settle"


class FailpointError(Exception):
    """Raised where a failpoint is armed with `error`."""


@dataclass(slots=True)
class _Armed:
    action: str
    seconds: float
    probability: float
    left: int | None


_FORM = re.compile(r"(kill|freeze|error|pause:(\d+(?:\.\d+)?))(?:@(\d+(?:\.\d+)?))?(?:\*(\d+))?")
_armed: dict[Point, _Armed] = {}


def arm(text: str) -> None:
    """Arm what `text` names and nothing else; raises SettingsError for what it cannot read."""
    armed: dict[Point, _Armed] = {}
    for part in filter(None, (piece.strip() for piece in text.split(";"))):
        name, _, form = part.partition("=")
        match = _FORM.fullmatch(form.strip())
        if name.strip() not in set(Point) or match is None:
            raise SettingsError(
                f"NOTIFIER_FAILPOINTS: cannot read {part!r}; write POINT=kill|freeze|error|pause:SECONDS[@P][*N] "
                f"with one of the points {', '.join(Point)}"
            )
        action, seconds, probability, left = match.groups()
        armed[Point(name.strip())] = _Armed(
            action.partition(":")[0],
            float(seconds or 0),
            float(probability or 1),
            int(left) if left else None,
        )
    _armed.clear()
    _armed.update(armed)


def is_armed(point: Point) -> bool:
    """Whether a test waits at this step, for steps that cost something to reach."""
    return point in _armed


async def reach(point: Point) -> None:
    """Mark a step. Does nothing unless armed."""
    if _armed and (armed := _armed.get(point)) is not None:
        await _act(point, armed)


async def _act(point: Point, armed: _Armed) -> None:
    if armed.probability < 1 and random.random() >= armed.probability:
        return
    if armed.left is not None:
        if armed.left <= 0:
            return
        armed.left -= 1
    match armed.action:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "freeze":
            os.kill(os.getpid(), signal.SIGSTOP)
        case "pause":
            await asyncio.sleep(armed.seconds)
        case _:
            raise FailpointError(f"failpoint {point} is armed with error")
