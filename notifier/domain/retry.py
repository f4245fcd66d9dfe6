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
        """How long to wait once `failure` tries in a row have failed, 1 or more.

        The ceiling doubles with each; `jitter`, from 0 up to but not 1, says where below it: never lower than a tenth,
        because a run of low draws would otherwise call without pause.
        Source: AWS Architecture Blog, "Exponential Backoff And Jitter" (2015).
        """
        assert failure >= 1
        assert 0 <= jitter < 1
        ceiling_s = min(self.first_s * 2 ** min(failure - 1, _DOUBLINGS_MAX), self.max_s)
        return timedelta(seconds=ceiling_s * (0.1 + 0.9 * jitter))
