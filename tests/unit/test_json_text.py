"""JSON out: the fast writer and the library's own say the same, and the fingerprint's text is the library's."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from notifier.domain.event import canonical
from notifier.domain.notification import State
from notifier.json_text import to_json

_FINITE = st.floats(allow_nan=False, allow_infinity=False)
_TEXT = st.text(st.characters(exclude_categories=["Cs"]))
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | _FINITE | _TEXT | st.just(-0.0) | st.just(10**300),
    lambda inner: st.lists(inner) | st.dictionaries(_TEXT, inner),
    max_leaves=20,
)


def exact(value: Any) -> Any:
    """The value with what == does not tell apart: kinds of numbers, and the sign of zero."""
    match value:
        case dict():
            return {name: exact(item) for name, item in value.items()}
        case list():
            return [exact(item) for item in value]
        case float():
            return ("float", value, math.copysign(1, value))
    return (type(value), value)


@given(_JSON)
def test_what_is_written_reads_as_what_it_was(document: Any) -> None:
    written = to_json(document)
    assert exact(json.loads(written)) == exact(document) == exact(json.loads(json.dumps(document)))


@pytest.mark.parametrize("number", [2**63, 2**64, -(2**64), 10**300])
def test_a_huge_whole_number_is_written_in_full(number: int) -> None:
    assert to_json({"data": [number]}) == b'{"data":[%d]}' % number


def test_half_of_a_surrogate_pair_is_left_to_whoever_reads() -> None:
    assert to_json(["\ud800"]) == b'["\\ud800"]'


@given(st.datetimes(timezones=st.just(UTC)))
def test_a_time_is_written_as_isoformat_does(moment: datetime) -> None:
    for beside in (1, 2**64):  # the second is what the fast writer refuses
        assert to_json([moment, beside]) == f'["{moment.isoformat()}",{beside}]'.encode()


def test_rows_may_hold_states_and_tuples() -> None:
    assert to_json({"state": State.SENT, "cancel_on": ("user.logged_in",)}) == (
        b'{"state":"sent","cancel_on":["user.logged_in"]}'
    )


@given(st.dictionaries(st.text(), _JSON))
def test_the_canonical_form_is_the_librarys(content: dict[str, Any]) -> None:
    """Fingerprints are kept: another spelling of a number or character would make a conflict of every repeat."""
    assert canonical(content) == json.dumps(content, sort_keys=True, separators=(",", ":"))


@pytest.mark.parametrize("endless", [math.nan, math.inf, -math.inf])
def test_the_canonical_form_refuses_what_is_no_number(endless: float) -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        canonical({"n": [endless]})


def test_the_canonical_form_refuses_what_is_nested_without_end() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(RecursionError):
        canonical({"deep": deep})
