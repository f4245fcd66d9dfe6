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
    return new_id_texts(1)[0]


def new_id_texts(number: int) -> list[str]:
    """So many of them; asking the system for chance costs more than a row."""
    stamp = f"{time.time_ns() // 1_000_000 & 0xFFFF_FFFF_FFFF:012x}"
    head, chance = f"{stamp[:8]}-{stamp[8:]}-7", os.urandom(10 * number).hex()
    return [
        f"{head}{chance[at : at + 3]}-{_VARIANT[chance[at + 3]]}{chance[at + 4 : at + 7]}-{chance[at + 7 : at + 19]}"
        for at in range(0, 20 * number, 20)
    ]


_VARIANT = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}
