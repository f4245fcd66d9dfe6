"""Waiting for a state: look again until it is there, and fail with what was seen last when it never comes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

PAUSE_S = 0.03


def eventually(look: Callable[[], T], *, within_s: float = 30) -> T:
    """The first true value that `look` answers."""
    deadline = time.monotonic() + within_s
    while not (seen := look()):
        assert time.monotonic() < deadline, f"after {within_s} s still {seen!r}"
        time.sleep(PAUSE_S)
    return seen


async def eventually_in_loop(look: Callable[[], Awaitable[T]], *, within_s: float = 30) -> T:
    """As `eventually`, where other tasks have to go on meanwhile."""
    deadline = time.monotonic() + within_s
    while not (seen := await look()):
        assert time.monotonic() < deadline, f"after {within_s} s still {seen!r}"
        await asyncio.sleep(PAUSE_S)
    return seen
