"""Where the next claim begins: behind what is gone, so that it need not pass over its remains.

A claimed row leaves a dead entry at the front of the index until it is vacuumed. A look at everything says where the
first row of each kind stands. After it all that is due stands there or later, and behind a full claim at or behind the
last row taken; but for what was given back, was held by a switch or came late, which the next look finds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from uuid import UUID

from notifier.store.deliveries import BEFORE_ALL, Claim, Look, Place

LOOK_S = 1.0  # so old is a look at most that a claim relies on, unless a newer one failed
LATE = timedelta(seconds=1)  # what is committed so long after the time it is due from is still found at once


@dataclass(slots=True)
class Resume:
    """The places of one worker, by kind, in the database's times.

    `is_unsure`: since the last look a claim left out what stands before its place.
    """

    is_unsure: bool = False
    _places: dict[str, Place] = field(default_factory=dict)
    _others: Place = BEFORE_ALL  # where kinds begin that have no place of their own

    def see(self, look: Look) -> None:
        """Begin where a look at everything found the first row of each kind."""
        self._others = Place(look.at - LATE, UUID(int=0))
        self._places = {kind: min(place, self._others) for kind, place in look.due.items()}
        self.is_unsure = False

    def places(self, kinds: Sequence[str]) -> list[Place]:
        """From where on to claim, for each kind."""
        return [self._places.get(kind, self._others) for kind in kinds]

    def learn(self, claims: Sequence[Claim], limit: int) -> None:
        """Go on behind a claim that was full; one that was not took all that stood at its places or later."""
        self.is_unsure = True
        if len(claims) < limit:
            self._places.clear()
            return
        last: dict[str, tuple[float, UUID]] = {}
        for claim in claims:
            reached = (claim.due_again_at, claim.id)
            if claim.kind not in last or reached > last[claim.kind]:
                last[claim.kind] = reached
        for kind, (due_at, id_) in last.items():
            name, place = kind.partition("@")[0], Place(datetime.fromtimestamp(due_at, UTC), id_)
            self._places[name] = max(place, self._places.get(name, BEFORE_ALL))
