"""Where calls of every kind come together: keys in flight, the acceptance, what is noted and told."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Literal

from providers.mock.faults import DuplicateMode
from providers.mock.ledger import Ledger
from providers.mock.records import AttemptRecord, MessageRecord
from providers.mock.stream import Hub
from providers.mock.tables import KeyRecord, find_key

Repeat = Literal["duplicate", "replayed", "dropped", "body_mismatch"]


class Desk:
    """One for all transports, so that a key in flight over one is in flight over the other. `count` hears verdicts."""

    def __init__(self, ledger: Ledger, hub: Hub, count: Callable[[str], None]) -> None:
        self._ledger = ledger
        self._hub = hub
        self._count = count
        self._in_flight: set[str] = set()

    def calling(self) -> contextlib.AbstractContextManager[None]:
        """Show a call as in flight while it is under way."""
        return self._hub.calling()

    def is_busy(self, key: str | None) -> bool:
        """Whether the first call with this key is still running."""
        return key in self._in_flight

    @contextlib.contextmanager
    def holding(self, key: str | None) -> Iterator[None]:
        """Keep the key in flight; a call that ends without acceptance frees it by ending."""
        if key is not None:
            self._in_flight.add(key)
        try:
            yield
        finally:
            if key is not None:
                self._in_flight.discard(key)

    async def known(self, key: str | None, ttl_s: float) -> KeyRecord | None:
        """The acceptance under this key, unless it is older than `ttl_s`."""
        if key is None:
            return None
        return await self._ledger.read(lambda connection: find_key(connection, key, time.time() - ttl_s))

    async def take(
        self,
        key: str | None,
        fingerprint: str,
        ttl_s: float,
        messages: Sequence[MessageRecord],
        attempt: AttemptRecord,
    ) -> KeyRecord | None:
        """Accept and tell everybody, once it is committed; or return the key's earlier acceptance and do nothing."""
        known = await self._ledger.take(key, fingerprint, ttl_s, messages, attempt)
        if known is None:
            self._count("accepted")
            for message in messages:
                self._hub.publish("message", message.summary())
        return known

    async def note(self, attempt: AttemptRecord) -> None:
        """Write down a call that took nothing, and tell everybody."""
        seq = await self._ledger.record(attempt)
        self._count(attempt.verdict)
        self._hub.publish("attempt", replace(attempt, seq=seq).as_json())


def verdict_on_repeat(known: KeyRecord, fingerprint: str, mode: DuplicateMode) -> Repeat:
    """What the second call under a remembered key is."""
    if known.fingerprint != fingerprint:
        return "body_mismatch"
    if mode == "replay":
        return "replayed"
    return "dropped" if mode == "drop" else "duplicate"
