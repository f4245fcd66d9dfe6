"""Reading JSON as RFC 8259 has it and no wider, and as fast as that may be."""

from __future__ import annotations

import json
from typing import Any

import orjson

from notifier.http.problems import Problem

_AS_ZERO = bytes.maketrans(b"123456789", b"0" * 9)
_LONG_NUMBER = b"0" * 19  # the fast reader makes a rounded one of what 64 bits do not hold


class _NotJson(ValueError):
    """What Python's reader takes and JSON does not allow."""


def parse_json(raw: bytes) -> Any:
    """Read a body; a Problem (400) when it is not JSON.

    The fast reader takes the last of two fields of one name, which we refuse. Without escapes there are as many quotes
    in what came as in what it would write, if and only if it dropped none. What is not so simple, or wrong, is read
    slowly.
    """
    if b"\\" not in raw and _LONG_NUMBER not in raw.translate(_AS_ZERO):
        try:
            document = orjson.loads(raw)
            is_whole = orjson.dumps(document).count(b'"') == raw.count(b'"')
        except (orjson.JSONDecodeError, orjson.JSONEncodeError):
            is_whole = False  # the other one knows what to say of it
        if is_whole:
            return document
    return _read_slowly(raw)


def _read_slowly(raw: bytes) -> Any:
    try:
        text = raw.decode("utf-8")
        if text.startswith("\ufeff"):
            raise _NotJson("it begins with a BOM")
        return _JSON.decode(text)
    except (json.JSONDecodeError, _NotJson) as error:
        detail = f"the body is not JSON: {error}"
    except UnicodeDecodeError:
        detail = "the body is not JSON in UTF-8"
    except RecursionError:
        detail = "the body is nested too deep"
    except ValueError:  # Python's limit of 4300 digits
        detail = "the body holds a number that is too long"
    raise Problem("not-json", detail)


def _no_constant(name: str) -> None:
    raise _NotJson(f"there is no {name} in it")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _NotJson("a name stands twice in one object")
    return found


_JSON = json.JSONDecoder(parse_constant=_no_constant, object_pairs_hook=_unique)
