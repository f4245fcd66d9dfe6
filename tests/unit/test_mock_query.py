"""The search language: what is a term, what it means, and what cannot be read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.mock.query import FIELDS, Condition, QueryInvalid, parse, quoted


def one(text: str) -> Condition:
    query = parse(text)
    assert not query.words
    [condition] = query.lines
    return condition


def test_nothing_asked_is_everything() -> None:
    assert not parse("")
    assert not parse("  \t ")
    assert not parse('""')


def test_terms_are_parted_by_white_space_and_quotes_hold_together() -> None:
    assert parse(' Welcome "Step by STEP"  Ü ').words == ("welcome", "step by step", "ü")
    assert parse('user:u_1 "to:ada" kind:"a b"').words == ("to:ada",)
    assert len(parse('user:u_1 "to:ada" kind:"a b"').lines) == 2


def test_what_is_no_field_is_a_word() -> None:
    assert parse("http://example.com 10:30 form:ada").words == ("http://example.com", "10:30", "form:ada")


@pytest.mark.parametrize(
    ("text", "column", "values"),
    [
        ("user:U_1", "user", ("U_1",)),
        ('key:"a b"', "key", ("a b",)),
        ("kind:digest", "kind", ("digest", 7, "digest@")),
        ("subject:Ada", "folded_subject", ("ada",)),
        ("to:Ada", "folded_to", (" ada",)),
        ("from:@Example.com", "folded_from", ("@example.com ",)),
        ("FROM:x", "folded_from", (" x",)),
        ("after:2026-11-29", "created_at >=", ("2026-11-29T00:00:00.000000+00:00",)),
        ("before:2026-11-29T10:00:00Z", "created_at <", ("2026-11-29T10:00:00.000000+00:00",)),
        ("before:2026-11-29t12:30+02:00", "created_at <", ("2026-11-29T10:30:00.000000+00:00",)),
        ('after:"2026-11-29 10:00"', "created_at >=", ("2026-11-29T10:00:00.000000+00:00",)),
    ],
)
def test_each_field_asks_its_column(text: str, column: str, values: tuple[object, ...]) -> None:
    condition = one(text)
    assert column in condition.sql
    assert condition.values == values


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("before:yesterday", "before: takes a date such as before:2026-11-29"),
        ("after:2026-02-30", "“2026-02-30” is neither"),
        ("after:0001-01-01T00:00+14:00", "is neither"),
        ("to:", "to: needs a value right behind the colon, for example to:ada"),
        ("subject: hello", "subject: needs a value"),
        ('user:""', "user: needs a value"),
        ('hello "big world', 'The quote that begins with "big world is not closed'),
        ('subject:"x', "is not closed"),
        ('subject:"x""', "is not closed"),
        ('"', "is not closed"),
        ("x" * 1_001, "at most 1000 characters"),
    ],
)
def test_what_cannot_be_read_is_said(text: str, said: str) -> None:
    with pytest.raises(QueryInvalid) as caught:
        parse(text)
    assert said in str(caught.value)


PIECES = ['"', ":", " ", "a", "%", "_", "'", "to:", "before:", "ß", "\x00"]


@given(st.lists(st.sampled_from(PIECES), max_size=30).map("".join))
def test_any_text_is_read_or_refused_and_values_never_become_sql(text: str) -> None:
    try:
        query = parse(text)
    except QueryInvalid:
        return
    for condition in query.lines:
        assert condition.sql.count("?") == len(condition.values)
        assert "%" not in condition.sql and '"' not in condition.sql


def test_every_field_has_a_meaning() -> None:
    for field in FIELDS:
        assert one(f"{field}:2026-11-29").values


@pytest.mark.parametrize("value", ["u_1", 'a"b', '"', '""', "a b", "it's", 'x" user:"y'])
def test_a_value_in_quotes_is_found_as_it_is(value: str) -> None:
    assert parse(f"user:{quoted(value)} kind:onboarding").lines[0].values == (value,)
