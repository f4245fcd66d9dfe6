"""The same work again after trouble that goes away by itself, within one budget of time."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from notifier.domain.errors import Busy
from notifier.store.database import RETRYABLE, Connection, Database

T = TypeVar("T")

BUDGET_S = 4.0
LOCK_TIMEOUT_S = 2.0
PAUSE_FIRST_S = 0.02
PAUSE_MAX_S = 0.5


async def until_committed(database: Database, work: Callable[[Connection], Awaitable[T]]) -> T:
    """Run `work` in a transaction until it commits. Raises Busy when deadlocks and lock waits use up the budget.

    After Busy, or one of UNAVAILABLE, nobody knows whether the last try was committed.
    """
    deadline = time.monotonic() + BUDGET_S
    pause_s = PAUSE_FIRST_S
    try:
        async with asyncio.timeout(BUDGET_S):
            while True:
                lock_timeout_s = max(0.05, min(LOCK_TIMEOUT_S, deadline - time.monotonic()))
                try:
                    async with database.transaction(lock_timeout_s=lock_timeout_s) as conn:
                        return await work(conn)
                except RETRYABLE:
                    await asyncio.sleep(pause_s * (0.5 + random.random()))
                    pause_s = min(pause_s * 2, PAUSE_MAX_S)
    except TimeoutError:
        raise Busy("somebody else is at work on the same rows; repeat the request") from None
