"""Where the next claim goes on: behind what the last ones took, so that it need not pass over their remains.

A claimed row leaves a dead entry at the front of the index until it is vacuumed. While claims are full, all that is due
lies at or behind the last row taken, but for what was given back or committed late, which a look at everything finds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from notifier.store.deliveries import Claim

FULL_LOOK_S = 1.0
BEFORE_ALL = datetime.min.replace(tzinfo=UTC)


@dataclass(slots=True)
class Resume:
    """The points of one worker, by kind. Times of rows are the database's; the look's are this process's own."""

    _points: dict[str, datetime] = field(default_factory=dict)
    _looked_at: float = float("-inf")

    def points(self, kinds: Sequence[str], now: float) -> list[datetime]:
        """From where on to claim, for each kind; from the very beginning when the last such look is a second old."""
        if now - self._looked_at >= FULL_LOOK_S:
            self._points.clear()
        if not self._points:
            self._looked_at = now
        return [self._points.get(kind, BEFORE_ALL) for kind in kinds]

    @property
    def is_full_look(self) -> bool:
        """Whether the next claim begins at the very beginning, for every kind."""
        return not self._points

    def learn(self, claims: Sequence[Claim], limit: int) -> None:
        """Go on behind a full claim; one that was not full came to the end, and the next begins anew."""
        if len(claims) < limit:
            self._points.clear()
            return
        last: dict[str, float] = {}
        for claim in claims:
            if claim.due_again_at > last.get(claim.kind, 0.0):
                last[claim.kind] = claim.due_again_at
        for kind, due_again_at in last.items():
            name = kind.partition("@")[0]
            self._points[name] = max(datetime.fromtimestamp(due_again_at, UTC), self._points.get(name, BEFORE_ALL))
