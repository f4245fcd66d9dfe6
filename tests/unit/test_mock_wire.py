"""What the mock lets pass as a mail, and what it says otherwise."""

from __future__ import annotations

import json

import pytest

from providers.mock import wire

GOOD = {"from": "a@x.com", "to": ["b@x.com"], "subject": "Hi", "text": "Hello"}


def parsed(content: object, *, batch: bool = False) -> wire.Request | wire.Refusal:
    return wire.parse(content if isinstance(content, bytes) else json.dumps(content).encode(), batch=batch)


def test_a_good_mail_passes_with_one_recipient_or_several() -> None:
    request = parsed({**GOOD, "to": "Ada <b@x.com>", "headers": {"X-Tone": "kind"}})
    assert isinstance(request, wire.Request)
    assert request.mails[0].to == ("Ada <b@x.com>",)
    assert request.mails[0].headers == {"X-Tone": "kind"}


@pytest.mark.parametrize(
    ("changes", "status", "name", "mentions"),
    [
        ({"from": None}, 422, "missing_required_field", "`from`"),
        ({"to": []}, 422, "missing_required_field", "`to`"),
        ({"subject": ""}, 422, "missing_required_field", "`subject`"),
        ({"text": None}, 422, "missing_required_field", "`html` or `text`"),
        ({"html": 5}, 422, "validation_error", "`html`"),
        ({"to": "nobody"}, 422, "validation_error", "`to`"),
        ({"to": [5]}, 422, "validation_error", "`to`"),
        ({"to": ["b@x.com"] * 51}, 422, "validation_error", "50"),
        ({"cc": "nobody"}, 422, "validation_error", "`cc`"),
        ({"subject": "Hi\r\nBcc: eve@x.com"}, 422, "validation_error", "`subject`"),
        ({"headers": {"X-A": "b\nc"}}, 422, "validation_error", "`headers`"),
        ({"headers": {"X A": "b"}}, 422, "validation_error", "`headers`"),
        ({"headers": []}, 422, "validation_error", "`headers`"),
        ({"subject": "half a pair: \ud800"}, 400, "validation_error", "JSON"),
    ],
)
def test_what_is_wrong_is_named(changes: dict[str, object], status: int, name: str, mentions: str) -> None:
    refusal = parsed({**GOOD, **changes})
    assert isinstance(refusal, wire.Refusal)
    assert (refusal.status, refusal.name) == (status, name)
    assert mentions in refusal.message


@pytest.mark.parametrize("raw", [b"", b"{", b'{"a": NaN}', b"\xff", b"[" * 100_000, b"1" * 5_000])
def test_what_is_not_json_is_refused_calmly(raw: bytes) -> None:
    refusal = parsed(raw)
    assert isinstance(refusal, wire.Refusal)
    assert refusal.status == 400


def test_a_batch_holds_one_to_a_hundred_and_names_the_bad_one() -> None:
    assert isinstance(parsed([GOOD] * 100, batch=True), wire.Request)
    for content in ([], [GOOD] * 101, GOOD):
        assert isinstance(parsed(content, batch=True), wire.Refusal)
    refusal = parsed([GOOD, {**GOOD, "to": None}], batch=True)
    assert isinstance(refusal, wire.Refusal)
    assert refusal.message.startswith("[1] ")


def test_the_fingerprint_sees_values_and_not_spelling() -> None:
    one = wire.fingerprint(json.loads('{"a": 1, "b": [1, 2]}'))
    assert one == wire.fingerprint(json.loads('{ "b":[1,2],"a":1 }'))
    assert one != wire.fingerprint(json.loads('{"a": 1, "b": [2, 1]}'))


@pytest.mark.parametrize("key", ["", "a b", "x" * 257, "schlüssel", "a\n"])
def test_a_key_is_visible_ascii(key: str) -> None:
    refusal = wire.check_key(key)
    assert refusal is not None
    assert refusal.name == "invalid_idempotency_key"
    assert wire.check_key("x" * 256) is None


def test_the_caller_is_read_from_percent_encoding_and_nonsense_is_left_out() -> None:
    caller = wire.caller({"X-Notifier-User": "u%201%20%C3%BC", "X-Notifier-Generation": "x", "X-Notifier-Kind": "a@b"})
    assert caller == wire.Caller(worker=None, generation=None, user="u 1 ü", kind="a@b")
