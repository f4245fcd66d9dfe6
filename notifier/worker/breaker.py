"""The breaker: when the provider gives no definite answer, one row at a time asks whether it is back."""

from __future__ import annotations

from dataclasses import dataclass

from notifier import observe
from providers.base import Ambiguous, ConfigError, Outcome, RetryLater

OPENS_AFTER = 10  # calls in a row without a definite answer
PROBE_FIRST_S = 1.0
PROBE_MAX_S = 30.0


@dataclass(slots=True)
class Breaker:
    """State of one process and one provider, in memory. Times are seconds of a monotonic clock."""

    failures: int = 0
    is_open: bool = False
    probe_at: float = 0.0
    _wait_s: float = PROBE_FIRST_S

    def allowance(self, free: int, now: float) -> int:
        """How many rows may be claimed: all free slots, or the one that probes, or none."""
        if not self.is_open:
            return free
        return min(free, 1) if now >= self.probe_at else 0

    def note(self, outcome: Outcome, now: float) -> None:
        """Learn from one outcome."""
        if isinstance(outcome, ConfigError):
            self._fail(now, opens=True)
        elif is_definite(outcome):
            self._close()
        else:
            self.failures += 1
            self._fail(now, opens=self.failures >= OPENS_AFTER)

    def _fail(self, now: float, *, opens: bool) -> None:
        if self.is_open and now >= self.probe_at:  # a failed probe; calls still under way teach nothing new
            self._wait_s = min(self._wait_s * 2, PROBE_MAX_S)
            self.probe_at = now + self._wait_s
        elif opens and not self.is_open:
            self.is_open = True
            self._wait_s = PROBE_FIRST_S
            self.probe_at = now + self._wait_s
            observe.BREAKER_OPEN.set(1)
            observe.log().warning("breaker_opened", failures=self.failures)

    def _close(self) -> None:
        self.failures = 0
        if self.is_open:
            self.is_open = False
            self._wait_s = PROBE_FIRST_S
            observe.BREAKER_OPEN.set(0)
            observe.log().info("breaker_closed")


def is_definite(outcome: Outcome) -> bool:
    """Whether the provider is there and said something about this call."""
    match outcome:
        case Ambiguous(counted=counted):
            return not counted  # "still at it" is an answer
        case RetryLater(answered=answered):
            return answered
        case ConfigError():
            return False
        case _:
            return True
