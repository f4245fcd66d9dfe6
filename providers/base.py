"""What every way out promises: a message goes in, an outcome comes back as a value."""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from types import MappingProxyType
from typing import NamedTuple, Protocol, runtime_checkable


class Family(enum.StrEnum):
    """What a provider does with the second call under one key."""

    REJECT = "reject"  # answers that it has it already
    REPLAY = "replay"  # answers as it did the first time
    DROP = "drop"  # answers as if new, delivers nothing
    NONE = "none"  # knows no keys: the second call is a second mail


class Message(NamedTuple):
    """One mail as it goes out. Pure data: the same message gives the same bytes on every attempt.

    `dated`: when it became owed in seconds since 1970, the Date of the mail where we write one ourselves (SMTP).
    """

    sender: str
    to: str
    subject: str
    html: str
    text: str
    headers: Mapping[str, str] = MappingProxyType({})
    tags: Mapping[str, str] = MappingProxyType({})
    dated: float | None = None


@dataclass(frozen=True, slots=True)
class Accepted:
    """The provider took it now; `message_id` as the provider names it, if it does."""

    message_id: str | None = None


@dataclass(frozen=True, slots=True)
class Duplicate:
    """The provider says it took this key before."""

    message_id: str | None = None


@dataclass(frozen=True, slots=True)
class Rejected:
    """Refused for good, and certainly not taken by this call."""

    reason: str


@dataclass(frozen=True, slots=True)
class RetryLater:
    """Certainly not taken; ask again, no sooner than `wait_at_least`.

    `answered`: the provider itself said so (429). False: it was never reached (DNS, connect, TLS).
    `counted`: it uses up an attempt, where asking for a whole day would help nobody (a full mailbox).
    """

    reason: str
    wait_at_least: timedelta = timedelta(0)
    answered: bool = True
    counted: bool = False


@dataclass(frozen=True, slots=True)
class Ambiguous:
    """The request was (partly) written and no definite answer came: it may have been taken.

    `counted`: False where the answer says "still at it" (an in-flight conflict) and so uses up no attempt.
    """

    reason: str
    wait_at_least: timedelta = timedelta(0)
    counted: bool = True


@dataclass(frozen=True, slots=True)
class BodyMismatch:
    """The key was used before with another body: something was taken under it, but not these bytes."""

    reason: str = "body_mismatch"


@dataclass(frozen=True, slots=True)
class ConfigError:
    """Our credentials or our request are wrong for every message: nothing is taken until somebody mends it."""

    reason: str
    wait_at_least: timedelta = timedelta(0)


Outcome = Accepted | Duplicate | Rejected | RetryLater | Ambiguous | BodyMismatch | ConfigError


@dataclass(frozen=True, slots=True)
class Traits:
    """What the rest of the house may assume of a provider account.

    `account` names provider and account without a secret, e.g. "mock:1f0c…": a message in doubt is only ever
    repeated where it was first tried. `window`: how long a key is surely remembered, counted from the first call.
    `batch_max`: how many mails one call takes under one key; 1 where there is no such call.
    """

    name: str
    account: str
    family: Family
    window: timedelta
    batch_max: int = 1

    @property
    def has_keys(self) -> bool:
        """Whether a repeat under the same key is harmless inside the window."""
        return self.family is not Family.NONE


HandOver = Callable[[], Awaitable[bool]]
Written = Callable[[], Awaitable[None]]


class Provider(Protocol):
    """One way out. `send` never raises for anything the network or the provider does."""

    @property
    def traits(self) -> Traits:
        """What may be assumed; constant for the life of the object."""
        ...

    async def send(
        self,
        message: Message,
        key: str,
        context: Mapping[str, str],
        hand_over: HandOver | None = None,
        written: Written | None = None,
    ) -> Outcome | None:
        """Make one call, at most; give up after the provider time-out.

        `context`: worker, generation, user and kind, for a provider that shows them (the mock); others ignore it.
        `hand_over` is awaited before the first byte that may make the provider take the mail: whatever fails before
        is certain. When it says False, or nothing in time, nothing is handed over, and the answer is None: no call.
        `written` is awaited once the request has been written and before the answer is read.
        """
        ...

    async def close(self) -> None:
        """Let go of connections."""
        ...


@runtime_checkable
class BatchProvider(Provider, Protocol):
    """A way out that takes several mails in one call: all of them or none."""

    async def send_batch(
        self,
        messages: Sequence[Message],
        key: str,
        contexts: Sequence[Mapping[str, str]],
        hand_over: HandOver | None = None,
        written: Written | None = None,
    ) -> list[Outcome] | None:
        """Make one call, at most, as `send` does; an outcome for each message, in their order.

        The outcomes are of one sort, and differ only in how the provider names the messages.
        """
        ...
