"""The fingerprint: what is the same content to a repeat, and what is not."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from notifier.domain.event import API, Event, Profile, fingerprint

CONTENT = {"type": "user.signed_up", "user": {"id": "u_1", "name": "Zoë", "attributes": {"a": [1, 2], "b": None}}}

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
documents = st.dictionaries(st.text(max_size=5), json_values, max_size=4)


def shuffled(value: Any) -> Any:
    """The same document with its keys the other way round."""
    match value:
        case dict():
            return {key: shuffled(value[key]) for key in reversed(value)}
        case list():
            return [shuffled(item) for item in value]
        case _:
            return value


@given(documents)
def test_key_order_and_white_space_do_not_count(content: dict[str, Any]) -> None:
    spaced = json.loads(json.dumps(shuffled(content), indent=3))
    assert fingerprint(spaced) == fingerprint(content)


@given(documents, documents)
def test_other_content_is_another_fingerprint(left: dict[str, Any], right: dict[str, Any]) -> None:
    same = json.dumps(left, sort_keys=True) == json.dumps(right, sort_keys=True)
    assert (fingerprint(left) == fingerprint(right)) == same


@pytest.mark.parametrize(
    "other",
    [
        {**CONTENT, "type": "user.signed_Up"},
        {**CONTENT, "data": {}},
        {**CONTENT, "user": {**CONTENT["user"], "name": "Zoe"}},
        {**CONTENT, "user": {**CONTENT["user"], "name": "Zoe\u0308"}},
        {**CONTENT, "user": {**CONTENT["user"], "attributes": {"a": [2, 1], "b": None}}},
        {**CONTENT, "user": {**CONTENT["user"], "attributes": {"a": [1, 2]}}},
        {**CONTENT, "user": {**CONTENT["user"], "attributes": {"a": ["1", 2], "b": None}}},
    ],
)
def test_whatever_differs_counts(other: dict[str, Any]) -> None:
    assert fingerprint(other) != fingerprint(CONTENT)


def test_the_fingerprint_is_what_it_always_was() -> None:
    """Stored rows are compared with it after a deploy."""
    assert (
        fingerprint({"b": "ü", "a": [1, None, 1.5]}).hex()
        == "dc63adf18766512fba6ab93005db31b8758369a087fc912218452382924a3ceb"
    )


def test_what_json_cannot_say_is_a_bug() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        fingerprint({"x": float("nan")})


def test_an_event_is_named_by_its_door_and_id() -> None:
    assert Event(API, "evt_1", "t", "u", None, b"", Profile(), {}).ref == "api/evt_1"


@pytest.mark.parametrize("field", ["email", "name", "timezone", "locale", "attributes"])
def test_a_profile_is_empty_when_it_says_nothing(field: str) -> None:
    assert Profile().is_empty
    assert not Profile(**{field: {} if field == "attributes" else ""}).is_empty
