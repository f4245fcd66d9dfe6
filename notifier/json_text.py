"""JSON out, compact and fast: what the fast writer refuses, the library's own writes."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import orjson

_anything = json.JSONEncoder(separators=(",", ":"), default=datetime.isoformat).encode


def to_json(value: Any) -> bytes:
    """Write a value of JSON's own types and times in UTC, those as datetime.isoformat() does.

    In UTF-8; in ASCII where it holds what the fast writer does not know, like a huge number. No NaN may get here: one
    writer makes null of it.
    """
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError:
        return _anything(value).encode()
