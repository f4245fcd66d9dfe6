"""Where a notification may stand, which moves there are, and what an outcome leads to: doubt in one place."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import NamedTuple, assert_never
from uuid import UUID

from notifier.domain.retry import RetryPolicy
from providers.base import (
    Accepted,
    Ambiguous,
    BodyMismatch,
    ConfigError,
    Duplicate,
    Outcome,
    Rejected,
    RetryLater,
)


class State(enum.StrEnum):
    """The eight states; the first three are open."""

    SCHEDULED = "scheduled"
    PENDING = "pending"
    SENDING = "sending"
    SENT = "sent"
    CANCELED = "canceled"
    SKIPPED = "skipped"
    FAILED = "failed"
    UNCERTAIN = "uncertain"


MOVES: Mapping[State, frozenset[State]] = MappingProxyType(
    {
        State.SCHEDULED: frozenset({State.PENDING, State.CANCELED, State.SKIPPED}),
        State.PENDING: frozenset({State.SENDING, State.CANCELED, State.SKIPPED, State.FAILED}),
        State.SENDING: frozenset(
            {State.SENT, State.PENDING, State.FAILED, State.UNCERTAIN, State.SKIPPED, State.CANCELED}  # erased
        ),
        State.SENT: frozenset(),
        State.CANCELED: frozenset({State.SCHEDULED, State.PENDING}),  # retry, after an operator's cancel only
        State.SKIPPED: frozenset({State.SCHEDULED, State.PENDING, State.CANCELED}),  # retry
        State.FAILED: frozenset({State.PENDING, State.CANCELED}),  # retry
        State.UNCERTAIN: frozenset({State.SENT, State.PENDING, State.CANCELED, State.SKIPPED}),  # evidence, resolve
    }
)


@dataclass(frozen=True, slots=True)
class NotificationRow:
    """A notification as ingest reads it under the user lock. Times are the database's; `since` fields are real time."""

    id: UUID
    user_id: str
    kind: str
    state: State
    reason: str | None
    decided_at: datetime
    due_at: datetime
    cancel_on: tuple[str, ...]
    cancel_from: datetime
    claimed_at: datetime | None
    doubt_since: datetime | None
    settled_at: datetime | None

    @property
    def state_is_closed(self) -> bool:
        """Whether no event moves it any more."""
        return self.state in (State.SENT, State.CANCELED, State.SKIPPED, State.FAILED, State.UNCERTAIN)

    @property
    def can_still_be_canceled(self) -> bool:
        """Whether a canceling event may still take it: it waits, or is owed and surely was never taken."""
        return self.state is State.SCHEDULED or (self.state is State.PENDING and self.doubt_since is None)

    @property
    def is_too_late(self) -> bool:
        """Whether an event that concerns it comes too late: claimed, in doubt, or sent."""
        return self.state in (State.SENDING, State.SENT, State.UNCERTAIN) or self.doubt_since is not None

    @property
    def since(self) -> datetime | None:
        """Since when it has been too late: sent, in doubt, or claimed."""
        if self.state is State.SENT:
            return self.settled_at
        return self.doubt_since or self.claimed_at


class Settlement(NamedTuple):
    """What an attempt led to. `state` PENDING means: try again after `wait`.

    `doubt`: whether the row is in doubt from now on. `counted`: whether the attempt is used up.
    """

    state: State
    reason: str | None
    doubt: bool
    evidence: str | None = None
    message_id: str | None = None
    wait: timedelta = timedelta(0)
    counted: bool = True


def may_repeat(has_keys: bool, same_account: bool, window_left: timedelta) -> bool:
    """Whether a row in doubt may be tried again: the provider still knows the key, and it is the same provider."""
    return has_keys and same_account and window_left > timedelta(0)


def safe_repeat_until(
    doubt_since: datetime | None, *, has_keys: bool, same_account: bool, window: timedelta, margin: timedelta
) -> datetime | None:
    """Until when a row in doubt may be tried again; None where there is no doubt, or no safe repeat at all.

    `margin`: the time a claim may last, since the call may come that much later than the question.
    """
    if doubt_since is None or not may_repeat(has_keys, same_account, window):
        return None
    return doubt_since + window - margin


def sent(outcome: Accepted | Duplicate) -> Settlement:
    """What follows where the provider has taken the mail, now or before; nothing else is asked then."""
    return Settlement(
        State.SENT, None, False, "accepted" if isinstance(outcome, Accepted) else "duplicate", outcome.message_id
    )


def settle(
    outcome: Outcome,
    *,
    policy: RetryPolicy,
    attempt: int,
    waits: int,
    doubt: bool,
    may_repeat: bool,
    given_up_waiting: bool,
    jitter: float,
    probe: bool = False,
) -> Settlement:
    """What follows from one call. `attempt` counts from 1; `doubt`: an earlier attempt may have been taken.

    `probe`: the call only asked whether the provider is back (open breaker), so it uses up no attempt.
    """
    doubt = doubt or isinstance(outcome, Ambiguous)
    given_up = State.UNCERTAIN if doubt else State.FAILED  # once in doubt, "failed" would be a guess
    delay = policy.delay(attempt + waits, jitter)
    match outcome:
        case Accepted() | Duplicate():
            return sent(outcome)
        case Rejected(reason):
            return Settlement(given_up, reason, doubt)
        case BodyMismatch():  # something was taken under the key, but not these bytes
            return Settlement(State.UNCERTAIN, "body_mismatch", True)
        case RetryLater(reason) if given_up_waiting:
            return Settlement(given_up, "gave_up_waiting", doubt)
        case RetryLater(reason, counted=True) if attempt >= policy.attempts_max and not probe:
            return Settlement(given_up, reason, doubt)
        case RetryLater(reason, wait_at_least, counted=counted):
            wait = max(delay, wait_at_least)
            return Settlement(State.PENDING, reason, doubt, wait=wait, counted=counted and not probe)
        case ConfigError(reason, wait_at_least):
            return Settlement(State.PENDING, reason, doubt, wait=max(delay, wait_at_least), counted=False)
        case Ambiguous(reason) if not may_repeat:
            return Settlement(State.UNCERTAIN, reason, True)
        case Ambiguous(reason, wait_at_least, counted):
            used_up = counted and not probe
            if used_up and attempt >= policy.attempts_max:
                return Settlement(State.UNCERTAIN, "attempts_exhausted", True)
            return Settlement(State.PENDING, reason, True, wait=max(delay, wait_at_least), counted=used_up)
        case _:
            assert_never(outcome)


def stopped_by_rule(reason: str, doubt: bool, state: State = State.SKIPPED) -> Settlement:
    """A rule ended it at the last step, without a call: `state`, or uncertain once in doubt."""
    return Settlement(State.UNCERTAIN if doubt else state, reason, doubt, counted=False)
