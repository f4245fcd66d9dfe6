"""Keys and signatures: who is let in, and with which words the others are turned away."""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
from typing import Any, cast

import pytest
from aiohttp.test_utils import make_mocked_request
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from notifier.domain.errors import SettingsError
from notifier.http.auth import SIGNATURES_MAX, TOLERANCE_S, Actor, DatabaseClock, Keys, WebhookDoor
from notifier.http.problems import Problem
from notifier.settings import Settings
from notifier.store.database import Database

KEYS = Keys(Settings(api_keys={"k-events": ["events"], "k-all": ["events", "read", "operate"], "ключ": ["read"]}))


def let_in(scope: Any = "events", *scopes: Any, **headers: str) -> Actor:
    return KEYS.require(make_mocked_request("GET", "/", headers=headers), scope, *scopes)


def turned_away(*scopes: Any, **headers: str) -> Problem:
    with pytest.raises(Problem) as refused:
        let_in(*scopes or ("events",), **headers)
    return refused.value


# ---------------------------------------------------------------------------------------------- keys


@pytest.mark.parametrize("form", ["Bearer k-all", "bearer k-all", "BEARER k-all", "Bearer  k-all "])
def test_a_key_opens_what_its_scopes_say(form: str) -> None:
    assert let_in("operate", Authorization=form).scopes == {"events", "read", "operate"}
    assert let_in("read", "operate", Authorization=form)


def test_a_key_that_is_not_ascii_is_a_key() -> None:
    assert let_in("read", Authorization="Bearer ключ").scopes == {"read"}


@pytest.mark.parametrize(
    "form",
    ["", "Bearer", "Bearer ", "k-all", "Basic k-all", "Bearer k-al", "Bearer k-all2", "Bearer K-ALL", "k-all Bearer"],
)
def test_no_valid_key_is_401_and_says_how(form: str) -> None:
    problem = turned_away(Authorization=form)
    assert problem.status == 401
    assert problem.headers["WWW-Authenticate"].startswith("Bearer")
    assert "Authorization: Bearer" in problem.detail


def test_no_header_and_no_keys_are_401() -> None:
    assert turned_away().status == 401
    with pytest.raises(Problem):
        Keys(Settings()).require(make_mocked_request("GET", "/", headers={"Authorization": "Bearer "}), "read")


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer ", "Bearer   ", "bearer \t"])
def test_no_key_is_no_key_even_where_an_empty_one_was_configured(header: str) -> None:
    keys = Keys(Settings.model_construct(api_keys={SecretStr(""): frozenset({"read"})}))
    with pytest.raises(Problem) as caught:
        keys.require(make_mocked_request("GET", "/", headers={"Authorization": header}), "read")
    assert caught.value.status == 401


def test_a_valid_key_without_the_scope_is_403_and_names_it() -> None:
    problem = turned_away("read", "operate", Authorization="Bearer k-events")
    assert problem.status == 403
    assert "'read' or 'operate'" in problem.detail
    assert "k-events" not in problem.detail


def test_an_actor_is_a_fingerprint_that_tells_keys_apart_and_does_not_show_them() -> None:
    one, other = let_in(Authorization="Bearer k-events"), let_in(Authorization="Bearer k-all")
    assert one.name != other.name
    assert one.name == f"key:{hashlib.sha256(b'k-events').hexdigest()[:12]}"


@given(st.text(st.characters(exclude_characters="\r\n"), max_size=30))
def test_whatever_stands_there_is_a_key_or_401(text: str) -> None:
    assert turned_away(Authorization=f"Bearer x{text}").status == 401


# ---------------------------------------------------------------------------------------------- signatures

OLD, NEW = b"the old secret, 24 bytes", b"the new secret: 32 bytes of them"
BODY = '{"type":"user.logged_in","data":{"user_id":"zoë"}}'.encode()
NOW = 1_795_000_000
ID = "msg_1"


def encoded(secret: bytes) -> str:
    return "whsec_" + base64.b64encode(secret).decode()


def a_door(*secrets: str) -> WebhookDoor:
    # a clock that has just been read: nobody asks the database for the next half minute
    clock = DatabaseClock(cast("Database", None), time.monotonic(), NOW - time.monotonic())
    return WebhookDoor(Settings(login_webhook_secrets=secrets or (encoded(NEW),)), clock)


def signed(body: bytes = BODY, *, id_: str = ID, at: int = NOW, secret: bytes = NEW) -> str:
    """A signature as the Standard Webhooks text says, made without the library."""
    digest = hmac.new(secret, f"{id_}.{at}.".encode() + body, hashlib.sha256).digest()
    return "v1," + base64.b64encode(digest).decode()


async def verified(
    signatures: str | None = None, *, door: WebhookDoor | None = None, body: bytes = BODY, **headers: str | None
) -> str:
    given_headers = {
        "webhook-id": ID,
        "webhook-timestamp": str(NOW),
        "webhook-signature": signed() if signatures is None else signatures,
        **{f"webhook-{name}": value for name, value in headers.items()},
    }
    request = make_mocked_request("POST", "/", headers={k: v for k, v in given_headers.items() if v is not None})
    return await (door or a_door()).verify(request, body)


async def refused(*args: Any, **kwargs: Any) -> str:
    with pytest.raises(Problem) as problem:
        await verified(*args, **kwargs)
    assert problem.value.status == 401
    return problem.value.detail


async def test_a_signed_body_gives_its_id() -> None:
    assert await verified() == ID


@pytest.mark.parametrize(
    "form", [encoded(NEW), encoded(NEW).removeprefix("whsec_"), f"v1,{encoded(NEW)}", encoded(NEW).rstrip("=")]
)
async def test_a_secret_in_any_form_that_senders_show(form: str) -> None:
    assert await verified(door=a_door(form)) == ID


async def test_while_rotating_either_secret_is_good_on_either_side() -> None:
    both = a_door(encoded(OLD), encoded(NEW))
    for secret in (OLD, NEW):
        assert await verified(signed(secret=secret), door=both) == ID
        assert await verified(f"{signed(secret=OLD)} {signed(secret=NEW)}", door=a_door(encoded(secret))) == ID
    await refused(signed(secret=b"nobody knows this secret"), door=both)


async def test_one_good_signature_among_others_is_enough() -> None:
    junk = ["v1,AAAA", "v1a,xxxx", "v2,", "", ",", "v1", "v1,BBBB,"]
    assert await verified(" ".join([*junk, signed(), *junk])) == ID


@pytest.mark.parametrize(
    "signature",
    [
        "v1",
        "v1,",
        ",",
        ",,,",
        "junk",
        signed().removeprefix("v1,"),
        signed().replace("v1,", "v1a,"),
        signed().replace("v1,", "v2,"),
        signed().replace("v1,", "V1,"),
        signed()[:-1],
        signed() + "=",
        signed().lower(),
        "v1,ü",
        " ".join(["v1,AAAA"] * SIGNATURES_MAX + [signed()]),
    ],
)
async def test_junk_is_refused(signature: str) -> None:
    assert "no signature fits" in await refused(signature)


@pytest.mark.parametrize("body", [b"", BODY + b" ", BODY.replace(b"zo", b"bo"), b"\xff\xfe", b"{}"])
async def test_a_signature_is_for_one_body(body: bytes) -> None:
    await refused(body=body)


async def test_a_signature_is_for_one_id_and_time() -> None:
    await refused(id="msg_2")
    await refused(timestamp=str(NOW + 1))


async def test_a_body_that_is_no_text_is_refused_even_if_signed() -> None:
    await refused(signed(b"\xff"), body=b"\xff")


@pytest.mark.parametrize("missing", ["id", "timestamp", "signature"])
async def test_all_three_headers_are_asked_for(missing: str) -> None:
    for absent in (None, ""):
        assert "send webhook-id" in await refused(**{missing: absent})


@pytest.mark.parametrize("id_", ["a b", "ü", "x" * 256, "a\x01"])
async def test_an_id_is_visible_ascii(id_: str) -> None:
    assert "visible ASCII" in await refused(signed(id_=id_), id=id_)


@pytest.mark.parametrize("id_", ["x" * 255, "!~", "msg.1"])
async def test_every_such_id_is_taken(id_: str) -> None:
    assert await verified(signed(id_=id_), id=id_) == id_


@pytest.mark.parametrize("stamp", ["soon", "-1", "1.5", "1e9", "٣", "9" * 13, "2026-11-29T10:00:00Z", "²"])
async def test_a_timestamp_is_whole_seconds(stamp: str) -> None:
    assert "whole seconds" in await refused(timestamp=stamp)


async def test_a_time_that_does_not_exist_is_refused() -> None:
    await refused(signed(at=999_999_999_999), timestamp="999999999999")


@pytest.mark.parametrize("off_s", [-TOLERANCE_S + 2, 0, TOLERANCE_S - 2])
async def test_five_minutes_are_tolerated_either_way(off_s: int) -> None:
    assert await verified(signed(at=NOW + off_s), timestamp=str(NOW + off_s)) == ID


@pytest.mark.parametrize("off_s", [-TOLERANCE_S - 2, TOLERANCE_S + 2, -NOW])
async def test_more_is_not(off_s: int) -> None:
    assert "five minutes" in await refused(signed(at=NOW + off_s), timestamp=str(NOW + off_s))


async def test_without_secrets_nothing_is_let_in() -> None:
    clock = DatabaseClock(cast("Database", None), time.monotonic(), NOW - time.monotonic())
    await refused(door=WebhookDoor(Settings(), clock))


@pytest.mark.parametrize(
    ("secret", "says"),
    [
        ("whsec_*", "base64"),
        ("whsec_ü", "base64"),
        ("whsec_a", "base64"),
        ("whsec_YQ==", "16 bytes"),
        ("whsec_", "16 bytes"),
    ],
)
def test_a_secret_that_is_none_refuses_to_start_and_is_not_shown(secret: str, says: str) -> None:
    with pytest.raises(SettingsError) as error:
        a_door(secret)
    assert "NOTIFIER_LOGIN_WEBHOOK_SECRETS" in str(error.value)
    assert says in str(error.value)
    assert secret == "whsec_" or secret not in str(error.value)
