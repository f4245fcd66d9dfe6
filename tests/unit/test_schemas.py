"""The wire, inwards: any bytes at all are an event or a problem that points at what is wrong."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from email_validator import EmailNotValidError, validate_email
from hypothesis import example, given
from hypothesis import strategies as st

from notifier.domain.event import API, LOGIN_WEBHOOK, Event, Profile, canonical
from notifier.http.json_body import _read_slowly, parse_json
from notifier.http.problems import Problem
from notifier.http.schemas import (
    DEPTH_MAX,
    _is_storable,
    _unstorable,
    check_storable,
    parse_event,
    parse_login,
)

MINIMAL = {"id": "evt_1", "type": "user.signed_up", "user": {"id": "u_1"}}
FULL = {
    "id": "evt_1",
    "type": "user.signed_up",
    "occurred_at": "2026-11-29T11:00:00+01:00",
    "user": {
        "id": "u_1",
        "email": "Ada@EXAMPLE.com",
        "name": "Ada <b>",
        "timezone": "Europe/London",
        "locale": "en-GB",
        "attributes": {"plan": "pro", "n": 10**40, "x": [1.5, None, True]},
    },
    "data": {"cart": [{"sku": "ä"}]},
}


def with_user(**fields: Any) -> dict[str, Any]:
    return {**MINIMAL, "user": {"id": "u_1", **fields}}


def refused(document: Any, header_id: str | None = None) -> Problem:
    with pytest.raises(Problem) as problem:
        parse_event(document, header_id)
    return problem.value


def either(parse: Callable[..., Event], *arguments: Any) -> Event | Problem:
    """What came of it; any other exception is a bug."""
    try:
        return parse(*arguments)
    except Problem as problem:
        return problem


def pointers(problem: Problem) -> list[str]:
    body = problem.body()
    json.dumps(body).encode()
    return [error["pointer"] for error in body["errors"]]


# ---------------------------------------------------------------------------------------------- bytes


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"", "Expecting value"),
        (b"{", "Expecting property name"),
        (b"{'a': 1}", "Expecting property name"),
        (b'{"a": 1,}', ""),
        (b'{"a": 1} x', "Extra data"),
        (b'{"a": NaN}', "no NaN in it"),
        (b"[Infinity]", "no Infinity in it"),
        (b"[-Infinity]", "no -Infinity in it"),
        (b'{"a": 1, "a": 1}', "twice"),
        (b'{"x": [{"a": 1, "b": 2, "a": 3}]}', "twice"),
        (b'"\x01"', "control character"),
        (b"\xff\xfe", "UTF-8"),
        (b'"\xed\xa0\x80"', "UTF-8"),
        (b"\xef\xbb\xbf{}", "BOM"),
        (b"[" * 100_000, "nested"),
        (b'{"a":' * 100_000, "nested"),
        (b"1" * 5_000, "too long"),
        (b"[1" + b"0" * 100_000 + b"]", "too long"),
    ],
)
def test_what_is_not_json_is_400_and_says_why(raw: bytes, says: str) -> None:
    with pytest.raises(Problem) as problem:
        parse_json(raw)
    assert (problem.value.status, problem.value.slug) == (400, "not-json")
    assert says in problem.value.detail


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (b" {}\n", {}),
        (b'"\\ud83d\\ude00"', "\U0001f600"),
        (b'"\xc3\xa4"', "ä"),
        (b"[1e3, -0.0, 12]", [1000.0, -0.0, 12]),
    ],
)
def test_json_is_read(raw: bytes, value: Any) -> None:
    assert parse_json(raw) == value


@given(
    st.binary(max_size=60)
    | st.text(max_size=40).map(str.encode)
    | st.text('{}[]",:\\u0d8eE+-.1nulltrue ', max_size=30).map(str.encode)
)
def test_any_bytes_are_a_document_or_400(raw: bytes) -> None:
    with contextlib.suppress(Problem):
        parse_json(raw)


_numbers = st.from_regex(r"-?(0|[1-9][0-9]{0,24})(\.[0-9]{1,22})?([eE][+-]?[0-9]{1,3})?", fullmatch=True)
_strings = st.text(max_size=4).map(json.dumps) | st.text(max_size=4).map(
    lambda text: json.dumps(text, ensure_ascii=False)
)
_names = st.sampled_from(['"a"', '"b"', '"\\u0061"', '""'])
_written = st.recursive(
    _numbers | _strings | st.sampled_from(["true", "null", "NaN", "-Infinity"]),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: f"[{' , '.join(items)}]")
        | st.lists(st.tuples(_names, inner), max_size=3).map(
            lambda items: "{" + ",".join(f"{name}:{value}" for name, value in items) + "}"
        )
    ),
    max_leaves=12,
)


@given(_written)
@example('{"a":{"b":"\x7f"},"a":1}')
@example("18446744073709551616")
@example("-9223372036854775809")
@example('{"a":1,"a":"\\u0022\\u0022"}')
@example("[9999999999999999999,1e400]")
def test_the_fast_reader_gives_what_the_slow_one_does(text: str) -> None:
    def read(reader: Callable[[bytes], Any]) -> str:
        try:
            return repr(reader(text.encode("utf-8", "surrogatepass")))
        except Problem as problem:
            return problem.detail

    assert read(parse_json) == read(_read_slowly)


# ---------------------------------------------------------------------------------------------- an event


def test_all_that_an_event_can_say() -> None:
    event = parse_event(FULL, None)
    assert event == Event(
        source=API,
        id="evt_1",
        type="user.signed_up",
        user_id="u_1",
        occurred_at=datetime(2026, 11, 29, 10, tzinfo=UTC),
        fingerprint=event.fingerprint,
        profile=Profile("Ada@example.com", "Ada <b>", "Europe/London", "en-GB", FULL["user"]["attributes"]),
        data={"cart": [{"sku": "ä"}]},
    )


def test_little_is_required() -> None:
    event = parse_event(MINIMAL, None)
    assert (event.occurred_at, event.profile, event.data) == (None, Profile(), {})
    assert event.profile.is_empty


@pytest.mark.parametrize(
    "field", ["occurred_at", "data", "user.email", "user.name", "user.timezone", "user.locale", "user.attributes"]
)
def test_null_says_nothing(field: str) -> None:
    document = {**MINIMAL, field: None} if "." not in field else with_user(**{field.partition(".")[2]: None})
    assert parse_event(document, None).profile.is_empty


def test_the_id_may_come_in_the_header_or_in_both_and_is_no_content() -> None:
    without = {name: value for name, value in MINIMAL.items() if name != "id"}
    events = [
        parse_event(MINIMAL, None),
        parse_event(MINIMAL, "evt_1"),
        parse_event(without, "evt_1"),
        parse_event({**without, "id": None}, "evt_1"),
    ]
    assert {event.id for event in events} == {"evt_1"}
    assert len({event.fingerprint for event in events}) == 1


@pytest.mark.parametrize(
    ("document", "header"), [({**MINIMAL, "id": None}, None), (MINIMAL, "evt_2"), ({**MINIMAL, "id": 1}, "1")]
)
def test_no_id_or_two_ids_are_400(document: Any, header: str | None) -> None:
    problem = refused(document, header)
    assert (problem.status, pointers(problem)) == (400, ["/id"])


@pytest.mark.parametrize("id_", ["", "a b", "a\tb", "ä", "x" * 256, "\x7f", 5, True, {}, ["evt_1"], 1.5])
def test_an_id_is_visible_ascii(id_: Any) -> None:
    problem = refused({**MINIMAL, "id": id_})
    assert (problem.status, pointers(problem)) == (422, ["/id"])


@pytest.mark.parametrize("id_", ["!", "~", "x" * 255, '"quoted"'])
def test_every_such_id_is_taken(id_: str) -> None:
    assert parse_event({**MINIMAL, "id": id_}, None).id == id_


@pytest.mark.parametrize("document", [None, [], [MINIMAL], "x", 1, True, 1.5])
def test_an_event_is_an_object(document: Any) -> None:
    problem = refused(document)
    assert (problem.status, pointers(problem)) == (422, [""])


@pytest.mark.parametrize(
    ("document", "pointer"),
    [
        ({**MINIMAL, "type": ""}, "/type"),
        ({**MINIMAL, "type": "x" * 129}, "/type"),
        ({**MINIMAL, "type": "a\nb"}, "/type"),
        ({**MINIMAL, "type": 1}, "/type"),
        ({"id": "e", "user": {"id": "u"}}, "/type"),
        ({"id": "e", "type": "t"}, "/user"),
        ({**MINIMAL, "user": None}, "/user"),
        ({**MINIMAL, "user": "u_1"}, "/user"),
        ({**MINIMAL, "user": {}}, "/user/id"),
        ({**MINIMAL, "typo": 1}, "/typo"),
        ({**MINIMAL, "a/b~c": 1}, "/a~1b~0c"),
        (with_user(mail="x"), "/user/mail"),
        (with_user(id=""), "/user/id"),
        (with_user(id="x" * 256), "/user/id"),
        (with_user(id="a\x1fb"), "/user/id"),
        (with_user(id="a\u2028b"), "/user/id"),
        (with_user(id="a\x85b"), "/user/id"),
        (with_user(id=17), "/user/id"),
        (with_user(name="x" * 256), "/user/name"),
        (with_user(name="a\r\nBcc: b@c.de"), "/user/name"),
        (with_user(name=["a"]), "/user/name"),
        (with_user(timezone="Mars/Olympus"), "/user/timezone"),
        (with_user(timezone="../../etc/passwd"), "/user/timezone"),
        (with_user(timezone=""), "/user/timezone"),
        (with_user(locale="e"), "/user/locale"),
        (with_user(locale="en\n"), "/user/locale"),
        (with_user(locale="x" * 36), "/user/locale"),
        (with_user(attributes=[]), "/user/attributes"),
        (with_user(attributes="x"), "/user/attributes"),
        ({**MINIMAL, "data": []}, "/data"),
        ({**MINIMAL, "data": 1}, "/data"),
    ],
)
def test_what_is_wrong_is_pointed_at(document: Any, pointer: str) -> None:
    problem = refused(document)
    assert (problem.status, pointers(problem)) == (422, [pointer])
    assert problem.detail.startswith(pointer)


@pytest.mark.parametrize("id_", ["x" * 255, "ü", "\U0001f600" * 255, " ", "a/b", "<script>"])
def test_a_user_id_is_any_text_without_control_characters(id_: str) -> None:
    assert parse_event(with_user(id=id_), None).user_id == id_


@pytest.mark.parametrize(
    "email",
    [
        "",
        "ada",
        "ada@",
        "@example.com",
        "ada@example",
        "ada@localhost",
        "ada@exa mple.com",
        "ada@example..com",
        "ada@-example.com",
        "a@b@example.com",
        "Ada <ada@example.com>",
        "ada@example.com\nBcc: x@example.com",
        "ada@example.com, eve@example.com",
        '"ada"@example.com',
        "ada@[127.0.0.1]",
        "ada@xn--.com",
        "ada@\u2024.com",
        f"ada@{'x' * 320}.com",
        7,
    ],
)
def test_an_address_is_one_that_mail_can_go_to(email: Any) -> None:
    assert pointers(refused(with_user(email=email))) == ["/user/email"]


@pytest.mark.parametrize(
    ("email", "stored"),
    [
        ("ada@example.com", "ada@example.com"),
        ("Ada@Example.COM", "Ada@example.com"),
        ("ada+x@sub.example.co.uk", "ada+x@sub.example.co.uk"),
        ("ada@bücher.example.org", "ada@bücher.example.org"),
    ],
)
def test_an_address_is_kept_in_one_form(email: str, stored: str) -> None:
    assert parse_event(with_user(email=email), None).profile.email == stored


_LOCALS = st.text(alphabet='abzAZ09._+-@"é ', max_size=70)
_DOMAINS = st.text(alphabet="abzA09.-ü@[", max_size=20) | st.sampled_from(["example.com", "Example.ORG", "bücher.de"])


@given(local=_LOCALS, domain=_DOMAINS)
def test_a_plain_address_is_what_the_library_says_it_is(local: str, domain: str) -> None:
    """The short way takes no address that the library refuses, refuses none that it takes, and writes it as it does."""
    address = f"{local}@{domain}"
    try:
        checked = validate_email(address, check_deliverability=False, globally_deliverable=False)
    except EmailNotValidError:
        expected = None
    else:
        expected = checked.normalized if "." in checked.domain else None
    document = with_user(email=address)
    if expected is None:
        assert pointers(refused(document)) == ["/user/email"]
    else:
        assert parse_event(document, None).profile.email == expected


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.just(10**301) | st.just("a\x00b"),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(_JSON)
def test_the_quick_look_lets_nothing_through(document: Any) -> None:
    try:
        text = canonical(document)
    except ValueError:
        return
    if _is_storable(text):
        assert list(_unstorable(document, "", 0)) == []


# ---------------------------------------------------------------------------------------------- times


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-11-29T10:00:00Z", datetime(2026, 11, 29, 10, tzinfo=UTC)),
        ("2026-11-29t10:00:00z", datetime(2026, 11, 29, 10, tzinfo=UTC)),
        ("2026-11-29 10:00:00+00:00", datetime(2026, 11, 29, 10, tzinfo=UTC)),
        ("2026-11-29T10:00:00-00:00", datetime(2026, 11, 29, 10, tzinfo=UTC)),
        ("2026-11-29T10:00:00.5+05:30", datetime(2026, 11, 29, 4, 30, 0, 500_000, tzinfo=UTC)),
        ("2026-11-29T10:00:00.123456789Z", datetime(2026, 11, 29, 10, 0, 0, 123_456, tzinfo=UTC)),
        ("1970-01-01T00:00:00Z", datetime(1970, 1, 1, tzinfo=UTC)),
        ("9999-12-31T23:59:59.999999Z", datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)),
        ("2024-02-29T23:59:59+23:59", datetime(2024, 2, 29, 0, 0, 59, tzinfo=UTC)),
    ],
)
def test_a_time_with_its_offset_is_one_instant(text: str, moment: datetime) -> None:
    assert parse_event({**MINIMAL, "occurred_at": text}, None).occurred_at == moment


@pytest.mark.parametrize(
    "text",
    [
        "",
        "now",
        "2026-11-29",
        "2026-11-29T10:00:00",
        "2026-11-29T10:00Z",
        "20261129T100000Z",
        "2026-W48-7T10:00:00Z",
        "2026-11-29T10:00:00+0100",
        "2026-11-29T10:00:00Z ",
        "2026-11-29T10:00:00Z\n",
        "2026-11-29T10:00:00,5Z",
        "2026-02-29T10:00:00Z",
        "2026-13-01T10:00:00Z",
        "2026-11-29T24:00:00Z",
        "2026-11-29T10:60:00Z",
        "2026-11-29T10:00:00+24:00",
        "2026-11-29T10:00:00+99:99",
        "0000-01-01T00:00:00Z",
        "0001-01-01T00:00:00Z",
        "0001-01-01T00:00:00+23:59",
        "9999-12-31T23:59:59-23:59",
        "1969-12-31T23:59:59Z",
        "1970-01-01T00:30:00+01:00",
        "٢٠٢٦-11-29T10:00:00Z",
        "2026-11-29T10:00:00.١Z",
        1_795_000_000,
        1.5,
        True,
        [],
        {},
    ],
)
def test_anything_else_is_no_time(text: Any) -> None:
    problem = refused({**MINIMAL, "occurred_at": text})
    assert (problem.status, pointers(problem)) == (422, ["/occurred_at"])


# ---------------------------------------------------------------------------------------------- what cannot be kept


def nested(depth: int, leaf: Any = 1) -> Any:
    for _ in range(depth):
        leaf = [leaf]
    return leaf


@pytest.mark.parametrize(
    ("value", "pointer"),
    [
        ("a\x00b", "/data/x"),
        ("\ud800", "/data/x"),
        ("a\udfffb", "/data/x"),
        ("\ude00\ud83d", "/data/x"),
        ({"a": ["x", {"b/c": "\x00"}]}, "/data/x/a/1/b~1c"),
        ({"\x00": 1}, "/data/x"),
        ({"\udc80": 1}, "/data/x"),
        (float("inf"), "/data/x"),
        (float("-inf"), "/data/x"),
        (float("nan"), "/data/x"),
        (10**301, "/data/x"),
        (-(10**301), "/data/x"),
        (nested(DEPTH_MAX), "/data/x" + "/0" * (DEPTH_MAX - 1)),
    ],
)
def test_what_the_database_could_not_hold_is_pointed_at(value: Any, pointer: str) -> None:
    problem = refused({**MINIMAL, "data": {"x": value}})
    assert (problem.status, pointers(problem)) == (422, [pointer])


@pytest.mark.parametrize("value", ["\x01\x1f\x7f", "\uffff\U0010ffff", 10**300, 1e308, 5e-324, nested(DEPTH_MAX - 2)])
def test_what_it_can_hold_is_taken(value: Any) -> None:
    assert parse_event({**MINIMAL, "data": {"x": value}}, None).data == {"x": value}


@pytest.mark.parametrize(
    "raw",
    [
        b'{"x": 1e400}',
        b'{"x": "\\u0000"}',
        b'{"x": "\\ud800"}',
        b'{"\\ud800x": 1}',
        b'{"x": ' + b"[" * 80 + b"]" * 80 + b"}",
    ],
)
def test_escapes_do_not_smuggle_it_in(raw: bytes) -> None:
    assert refused({**MINIMAL, "data": parse_json(raw)}).status == 422


@pytest.mark.parametrize("document", [nested(900), {**MINIMAL, "data": {"x": nested(900)}}], ids=["bare", "event"])
def test_the_deepest_that_can_be_read_is_refused_without_falling_over(document: Any) -> None:
    assert refused(document).status == 422


def test_a_long_list_of_mistakes_is_cut() -> None:
    assert len(pointers(refused({**MINIMAL, "data": {"x": ["\x00"] * 100}}))) == 20
    assert len(pointers(refused({**MINIMAL, **{f"f{n}": 1 for n in range(100)}}))) == 20


# ---------------------------------------------------------------------------------------------- a login


def test_a_login_names_its_user_and_may_say_more() -> None:
    document = {
        "type": "user.logged_in",
        "timestamp": "2026-11-29T10:00:00Z",
        "data": {"user_id": "u_1", "ip": "::1"},
        "more": 1,
    }
    event = parse_login(document, "msg_1")
    assert (event.source, event.id, event.type, event.user_id) == (LOGIN_WEBHOOK, "msg_1", "user.logged_in", "u_1")
    assert event.occurred_at == datetime(2026, 11, 29, 10, tzinfo=UTC)
    assert (event.profile, event.data) == (Profile(), {})
    assert event.fingerprint != parse_login({**document, "more": 2}, "msg_1").fingerprint
    assert event.fingerprint == parse_login(dict(reversed(document.items())), "msg_2").fingerprint


@pytest.mark.parametrize(
    ("document", "pointer"),
    [
        (None, ""),
        ([], ""),
        ({}, "/type"),
        ({"type": "user.signed_up", "data": {"user_id": "u"}}, "/type"),
        ({"type": "user.logged_in"}, "/data"),
        ({"type": "user.logged_in", "data": None}, "/data"),
        ({"type": "user.logged_in", "data": {}}, "/data/user_id"),
        ({"type": "user.logged_in", "data": {"user_id": ""}}, "/data/user_id"),
        ({"type": "user.logged_in", "data": {"user_id": 1}}, "/data/user_id"),
        ({"type": "user.logged_in", "data": {"user_id": "u", "x": "\x00"}}, "/data/x"),
        ({"type": "user.logged_in", "timestamp": "soon", "data": {"user_id": "u"}}, "/timestamp"),
        ({"type": "user.logged_in", "data": {"user_id": "u"}, "x": nested(99)}, "/x" + "/0" * DEPTH_MAX),
    ],
)
def test_a_login_that_is_none_is_pointed_at(document: Any, pointer: str) -> None:
    with pytest.raises(Problem) as problem:
        parse_login(document, "msg_1")
    assert problem.value.status == 422
    assert pointer in pointers(problem.value)


# ---------------------------------------------------------------------------------------------- anything at all

texts = st.text(st.characters(), max_size=12) | st.sampled_from(["\x00", "\ud800", "a@b.co", "en", "UTC", "x" * 256])
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([10**301, -(10**310), 2**64])
    | st.floats()
    | texts
    | st.datetimes().map(lambda moment: moment.isoformat() + "Z")
)
json_values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3), max_leaves=6
)
objects = st.dictionaries(texts, json_values, max_size=3)
# near misses find more than noise does: mostly an event, with a few things replaced
events = st.fixed_dictionaries(
    {
        "type": st.just("user.signed_up") | json_values,
        "user": st.fixed_dictionaries(
            {"id": st.just("u_1") | json_values},
            optional={
                "email": st.emails() | json_values,
                "name": texts,
                "timezone": st.just("UTC") | json_values,
                "locale": st.just("en") | json_values,
                "attributes": objects,
            },
        )
        | json_values,
    },
    optional={"id": st.just("evt_1") | json_values, "occurred_at": json_values, "data": objects, "more": json_values},
)


@given(document=events | json_values, header=st.none() | st.just("evt_1"))
def test_any_document_is_an_event_or_a_problem_that_points(document: Any, header: str | None) -> None:
    event = either(parse_event, document, header)
    if isinstance(event, Problem):
        assert event.status in (400, 422)
        assert pointers(event)
        return
    assert len(event.fingerprint) == 32
    for part in (event.data, event.profile.attributes, [event.id, event.type, event.user_id, event.profile.name]):
        json.dumps(part, allow_nan=False, ensure_ascii=False).encode()
    for text in (event.id, event.type, event.user_id, event.profile.email or "", event.profile.name or ""):
        assert "\x00" not in text
        assert len(text.splitlines()) <= 1
    assert event.occurred_at is None or event.occurred_at.tzinfo is UTC


@given(
    st.fixed_dictionaries(
        {"type": st.just("user.logged_in") | json_values, "data": st.just({"user_id": "u"}) | json_values}
    )
    | json_values
)
def test_any_document_is_a_login_or_a_problem_that_points(document: Any) -> None:
    event = either(parse_login, document, "msg_1")
    if isinstance(event, Problem):
        assert event.status == 422
        assert pointers(event)
    else:
        assert event.type == "user.logged_in"


@given(json_values)
def test_what_is_storable_survives_the_way_into_the_database_and_back(document: Any) -> None:
    try:
        check_storable(document)
    except Problem:
        return
    text = json.dumps(document, allow_nan=False)
    assert "\\u0000" not in text.replace("\\\\", "")
    assert parse_json(text.encode()) == document
