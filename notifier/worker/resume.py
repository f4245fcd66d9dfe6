"""Where the next claim begins: behind what is gone, so that it need not pass over its remains.

A claimed row leaves a dead entry at the front of the index until it is vacuumed. A look at everything, at the poll
interval, says where the first row of each kind stands. After it all that is due stands there or later, and behind a
full claim at or behind the last row taken; but for what was given back, was held by a switch or came late, which the
next look finds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from uuid import UUID

from notifier.store.deliveries import BEFORE_ALL, Claim, Look, Place

FULL_LOOK_S = 1.0
LATE = timedelta(seconds=1)  # what is committed so long after the time it is due from is still found at once


@dataclass(slots=True)
class Resume:
    """The places of one worker, by kind. Times of rows are the database's; those of looks are this process's own."""

    _places: dict[str, Place] = field(default_factory=dict)
    _others: Place = BEFORE_ALL  # where kinds begin that have no place of their own
    _looked_at: float = float("-inf")
    _is_full_look: bool = True  # the next claim, or the one that is on its way, begins at the very beginning
    _is_behind: bool = False  # it goes on behind a full one
    _is_sure: bool = True  # no claim that left something out came to an end since the last look at everything

    def see(self, look: Look, now: float) -> None:
        """Begin where a look at everything found the first row of each kind."""
        self._others = Place(look.at - LATE, UUID(int=0))
        self._places = {kind: min(place, self._others) for kind, place in look.due.items()}
        self._looked_at = now
        self._is_full_look, self._is_behind, self._is_sure = False, False, True

    def places(self, kinds: Sequence[str], now: float) -> list[Place]:
        """From where on to claim, for each kind; from the very beginning when the last such look is a second old."""
        if now - self._looked_at >= FULL_LOOK_S:
            self._is_full_look, self._others = True, BEFORE_ALL
        if self._is_full_look:
            self._looked_at = now
            self._is_behind, self._is_sure = False, True
            return [BEFORE_ALL] * len(kinds)
        return [self._places.get(kind, self._others) for kind in kinds]

    def learn(self, claims: Sequence[Claim], limit: int) -> bool:
        """Go on behind a full claim. Returns whether the next is to follow at once, and to look at everything.

        So it is at the end of a backlog, behind which a row that was given back may have waited for long.
        """
        if len(claims) < limit:
            self._places.clear()
            is_end, self._is_behind = self._is_behind, False
            self._is_sure = self._is_full_look
            self._is_full_look = is_end or self._others is BEFORE_ALL
            return is_end
        if self._is_full_look:
            self._places.clear()
            self._others = BEFORE_ALL
        self._is_full_look, self._is_behind = False, True
        last: dict[str, Place] = {}
        for claim in claims:
            kind, place = claim.kind.partition("@")[0], Place(claim.due_again_at, claim.id)
            last[kind] = max(place, last.get(kind, BEFORE_ALL))
        for kind, place in last.items():
            self._places[kind] = max(place, self._places.get(kind, BEFORE_ALL))
        return False

    @property
    def again_at(self) -> float:
        """When what the last claims left out is to be looked at; infinity where nothing was."""
        return float("inf") if self._is_sure else self._looked_at + FULL_LOOK_S
