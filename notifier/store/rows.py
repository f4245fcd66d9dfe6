"""Rows that go into a statement as JSON."""

from __future__ import annotations

from typing import Any

from notifier import json_text


def to_json(rows: Any) -> str:
    """Rows as the text that a statement takes."""
    return json_text.to_json(rows).decode()
