"""All guards, in the order of an event's way through the house."""

from __future__ import annotations

from notifier.proof.guards.batching import BATCHING
from notifier.proof.guards.deciding import DECIDING
from notifier.proof.guards.guard import Guard
from notifier.proof.guards.moving import MOVING
from notifier.proof.guards.sending import SENDING

GUARDS: tuple[Guard, ...] = (*DECIDING, *MOVING, *SENDING, *BATCHING)
