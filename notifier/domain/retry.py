"""When to try again."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

_DOUBLINGS_MAX = 32  # beyond it every ceiling is the maximum anyway, and 2**n stays small


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How a notification is tried again; seconds of business time, except `give_up_after` (real time)."""

    first_s: float
    max_s: float
    attempts_max: int
    give_up_after: timedelta

    def delay(self, failure: int, jitter: float) -> timedelta:
        """Wait after the failure-th failure (from 1); jitter in [0, 1) picks the point.

        At least a tenth of the ceiling, so that luck cannot make a hot loop.
        Source: AWS Architecture Blog, "Exponential Backoff And Jitter" (2015).
        """
        assert failure >= 1
        assert 0 <= jitter < 1
        ceiling_s = min(self.first_s * 2 ** min(failure - 1, _DOUBLINGS_MAX), self.max_s)
        return timedelta(seconds=ceiling_s * (0.1 + 0.9 * jitter))
