"""UUIDv7: an id that sorts by when it was made, so that indexes grow at one end."""

from __future__ import annotations

import os
import time
from uuid import UUID


def new_id() -> UUID:
    """Make an id. Time-ordered to the millisecond for locality only: nothing is decided by it (RFC 9562 §5.7)."""
    milliseconds = time.time_ns() // 1_000_000
    value = (milliseconds & 0xFFFF_FFFF_FFFF) << 80 | int.from_bytes(os.urandom(10), "big")
    value = value & ~(0xF << 76) | 0x7 << 76
    value = value & ~(0x3 << 62) | 0x2 << 62
    return UUID(int=value)
