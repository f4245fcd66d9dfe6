"""UUIDv7: an id that sorts by when it was made, so that indexes grow at one end."""

from __future__ import annotations

import os
import time
from uuid import UUID


def new_id() -> UUID:
    """Make an id. Time-ordered to the millisecond for locality only: nothing is decided by it (RFC 9562 §5.7)."""
    return UUID(new_id_text())


def new_id_text() -> str:
    """The same as text, for where nothing else is needed: a UUID object costs more than all the rest."""
    stamp = f"{time.time_ns() // 1_000_000 & 0xFFFF_FFFF_FFFF:012x}"
    chance = os.urandom(10).hex()
    variant = "89ab"[int(chance[3], 16) & 3]
    return f"{stamp[:8]}-{stamp[8:]}-7{chance[:3]}-{variant}{chance[4:7]}-{chance[7:19]}"
