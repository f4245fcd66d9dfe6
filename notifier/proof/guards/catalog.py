"""All guards, in the order of an event's way through the house.

The identity of a batch is none of them yet: nothing is sent in batches, and the claim passes over rows that have one.
"""

from __future__ import annotations

from notifier.proof.guards.deciding import DECIDING
from notifier.proof.guards.guard import Guard
from notifier.proof.guards.moving import MOVING
from notifier.proof.guards.sending import SENDING

GUARDS: tuple[Guard, ...] = (*DECIDING, *MOVING, *SENDING)
