"""Rows that go into a statement as JSON: their times, and all of them, as text."""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache
from typing import Any

from notifier import json_text

# One event names the same few moments again and again, in its own row, in those of its user and decisions and in its
# answer; writing them out anew each time costs more than all the JSON around them.
to_text = lru_cache(maxsize=4_096)(datetime.isoformat)


def to_json(rows: Any) -> str:
    """Rows as the text that a statement takes."""
    return json_text.to_json(rows).decode()
