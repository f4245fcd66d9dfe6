"""The doors for events as a sender meets them: status, problem, header, and nothing stored of what was refused."""

from __future__ import annotations

import base64
import io
import json
import time
from datetime import UTC, datetime
from typing import Any

import pytest
from standardwebhooks import Webhook

from notifier.store import migrate
from tests.support.api import LOGIN_SECRETS, Answer, Api

SIGNUP = {"id": "e1", "type": "user.signed_up", "user": {"id": "u_1", "email": "ada@example.com"}}
STRANGER = "whsec_" + base64.b64encode(b"somebody else's secret, 32 bytes").decode()


async def post(api: Api, document: Any, *, path: str = "/v1/events", **headers: str) -> Answer:
    data = document if isinstance(document, bytes | io.BytesIO) else json.dumps(document).encode()
    key = headers.pop("key", "k-events")
    headers = {"Content-Type": "application/json", **{name.replace("_", "-"): value for name, value in headers.items()}}
    return await api.ask("POST", path, key=key or None, data=data, headers=headers)


def signed(document: Any, webhook_id: str = "msg_1", *, secret: str = LOGIN_SECRETS[0], at: float | None = None) -> Any:
    raw = document if isinstance(document, bytes) else json.dumps(document).encode()
    moment = datetime.fromtimestamp(time.time() if at is None else at, UTC)
    return raw, {
        "webhook-id": webhook_id,
        "webhook-timestamp": str(int(moment.timestamp())),
        "webhook-signature": Webhook(secret).sign(webhook_id, moment, raw.decode()),
    }


async def login(api: Api, document: Any, *args: Any, **options: Any) -> Answer:
    changed = options.pop("headers", {})
    raw, headers = signed(document, *args, **options)
    return await api.ask("POST", "/v1/webhooks/login", key=None, data=raw, headers={**headers, **changed})


LOGIN = {"type": "user.logged_in", "data": {"user_id": "u_1"}}


async def test_first_and_repeat(api: Api) -> None:
    first = await post(api, SIGNUP)
    assert (first.status, first.body["event"]) == (202, {"id": "e1", "type": "user.signed_up", "duplicate": False})
    assert "Idempotent-Replayed" not in first.headers
    again = await post(api, {"user": SIGNUP["user"], "type": "user.signed_up", "id": "e1"})
    assert (again.status, again.headers["Idempotent-Replayed"]) == (200, "true")
    assert again.body == {**first.body, "event": {**first.body["event"], "duplicate": True}}


async def test_what_an_earlier_version_kept_is_answered_at_a_repeat(api: Api) -> None:
    first = await post(api, SIGNUP)
    kept = json.dumps({"notifications": first.body["notifications"]})
    assert await api.conn.execute("UPDATE events SET answer = $1", kept) == "UPDATE 1"
    again = await post(api, SIGNUP)
    assert again.body == {**first.body, "event": {**first.body["event"], "duplicate": True}}


@pytest.mark.parametrize("header", ["h1", '"h1"'])
async def test_the_id_may_come_as_a_header(api: Api, header: str) -> None:
    document = {name: value for name, value in SIGNUP.items() if name != "id"}
    assert (await post(api, document, Idempotency_Key=header)).body["event"]["id"] == "h1"
    assert (await post(api, {**document, "id": "h1"}, Idempotency_Key=header)).status == 200
    assert (await post(api, {**document, "id": "h2"}, Idempotency_Key=header)).status == 400


@pytest.mark.parametrize(
    ("document", "status", "pointer"),
    [
        (b"{", 400, None),
        (b"\xff", 400, None),
        (b'{"id": NaN}', 400, None),
        ([], 422, ""),
        ({**SIGNUP, "id": None}, 400, "/id"),
        ({**SIGNUP, "id": 7}, 422, "/id"),
        ({**SIGNUP, "id": "with space"}, 422, "/id"),
        ({**SIGNUP, "id": "x" * 256}, 422, "/id"),
        ({**SIGNUP, "typ": 1}, 422, "/typ"),
        ({**SIGNUP, "type": 1}, 422, "/type"),
        ({**SIGNUP, "type": ""}, 422, "/type"),
        ({**SIGNUP, "user": "u_1"}, 422, "/user"),
        ({"id": "e1", "type": "user.signed_up"}, 422, "/user"),
        ({**SIGNUP, "user": {"email": "ada@example.com"}}, 422, "/user/id"),
        ({**SIGNUP, "user": {"id": "u\n1"}}, 422, "/user/id"),
        ({**SIGNUP, "user": {"id": "u" * 256}}, 422, "/user/id"),
        ({**SIGNUP, "user": {"id": "u_1", "email": "ada@example.com\nBcc: x@example.com"}}, 422, "/user/email"),
        ({**SIGNUP, "user": {"id": "u_1", "email": "nobody"}}, 422, "/user/email"),
        ({**SIGNUP, "user": {"id": "u_1", "name": "Ada\r\nX: y"}}, 422, "/user/name"),
        ({**SIGNUP, "user": {"id": "u_1", "timezone": "Mars/Olympus"}}, 422, "/user/timezone"),
        ({**SIGNUP, "user": {"id": "u_1", "locale": "?"}}, 422, "/user/locale"),
        ({**SIGNUP, "user": {"id": "u_1", "attributes": []}}, 422, "/user/attributes"),
        ({**SIGNUP, "occurred_at": "9999-12-31T23:59:59Z"}, 422, "/occurred_at"),
        ({**SIGNUP, "occurred_at": "0001-01-01T00:00:00+14:00"}, 422, "/occurred_at"),
        ({**SIGNUP, "occurred_at": "2026-02-30T00:00:00Z"}, 422, "/occurred_at"),
        ({**SIGNUP, "occurred_at": "2026-02-03T00:00:00"}, 422, "/occurred_at"),
        ({**SIGNUP, "occurred_at": 1}, 422, "/occurred_at"),
        ({**SIGNUP, "data": {"a": ["x\0"]}}, 422, "/data/a/0"),
        ({**SIGNUP, "data": {"a/b": "\ud800"}}, 422, "/data/a~1b"),
        (b'{"id":"e1","type":"t","user":{"id":"u"},"data":{"n":1e400}}', 422, "/data/n"),
        (json.dumps({**SIGNUP, "data": {}}).replace("{}", '{"a":' * 80 + "1" + "}" * 80).encode(), 422, None),
        (b"[" * 100_000, 400, None),
    ],
)
async def test_bad_input_names_the_field_and_stores_nothing(
    api: Api, document: Any, status: int, pointer: str | None
) -> None:
    answer = await post(api, document)
    assert answer.status == status, answer
    assert answer.headers["Content-Type"].startswith("application/problem+json")
    assert {"type", "title", "status", "detail"} <= answer.body.keys()
    if pointer is not None:
        assert pointer in [error["pointer"] for error in answer.body["errors"]]
    assert await api.conn.fetchval("SELECT (SELECT count(*) FROM events) + (SELECT count(*) FROM users)") == 0
    assert (await post(api, SIGNUP)).status == 202, "a refused event burns no id"


async def test_too_large(api: Api) -> None:
    answer = await post(api, {**SIGNUP, "data": {"x": "y" * 300 * 1024}})
    assert (answer.status, answer.body["type"]) == (413, "/problems/too-large")


@pytest.mark.parametrize(("key", "status"), [("", 401), ("wrong", 401), ("k-read", 403)])
async def test_keys_and_scopes(api: Api, key: str, status: int) -> None:
    assert (await post(api, SIGNUP, key=key)).status == status
    assert (await post(api, SIGNUP, path="/v1/events/batch", key=key)).status == status


async def test_other_content_under_an_id(api: Api) -> None:
    await post(api, SIGNUP)
    answer = await post(api, {**SIGNUP, "data": {"other": 1}})
    assert (answer.status, answer.body["type"]) == (422, "/problems/idempotency-key-reused")


async def test_a_batch_is_answered_item_by_item(api: Api) -> None:
    items = [
        SIGNUP,
        {"id": "e2", "type": "user.logged_in", "user": {"id": "u_1"}},
        SIGNUP,
        {**SIGNUP, "id": "e3", "user": {"id": ""}},
        {"type": "user.signed_up", "user": {"id": "u_2"}},
        "no event",
        {**SIGNUP, "data": {"other": 1}},
        {"id": "e4", "type": "user.signed_up", "user": {"id": "u_2"}},
    ]
    answer = await post(api, {"events": items}, path="/v1/events/batch")
    assert answer.status == 207
    results = answer.body["results"]
    assert [result["status"] for result in results] == [202, 202, 200, 422, 400, 422, 422, 202]
    assert [row["kind"] for row in results[1]["canceled"]] == ["followup"]
    assert results[2]["event"]["duplicate"] is True
    assert results[3]["errors"][0]["pointer"] == "/user/id"


async def test_the_borders_of_a_batch(api: Api) -> None:
    path = "/v1/events/batch"
    assert (await post(api, {"events": []}, path=path)).body == {"results": []}
    many = [{"id": f"e{n}", "type": "t", "user": {"id": f"u{n % 50}"}} for n in range(1_001)]
    assert (await post(api, {"events": many}, path=path)).status == 413
    full = await post(api, {"events": many[:1_000]}, path=path)
    assert [result["status"] for result in full.body["results"]] == [202] * 1_000
    for wrong, pointer in (([], "/events"), ({"events": {}}, "/events"), ({"events": [], "more": 1}, "/more")):
        refused = await post(api, wrong, path=path)
        assert (refused.status, refused.body["errors"][0]["pointer"]) == (422, pointer)
    large = {"id": "large", "type": "t", "user": {"id": "u"}, "data": {"x": "y" * 300 * 1024}}
    mixed = await post(api, {"events": [large, {**SIGNUP, "id": "small"}]}, path=path)
    assert [result["status"] for result in mixed.body["results"]] == [413, 202]
    started = time.monotonic()
    lines = await post(api, io.BytesIO(b"1\n" * 4_000_000), path=path, Content_Type="application/x-ndjson")
    assert lines.status == 413
    assert time.monotonic() - started < 5, "they are counted, not parsed"


async def test_a_batch_as_lines(api: Api) -> None:
    raw = b"\n".join([json.dumps(SIGNUP).encode(), b"{nonsense", b"", json.dumps(SIGNUP).encode()])
    answer = await post(api, raw, path="/v1/events/batch", Content_Type="application/x-ndjson")
    assert [result["status"] for result in answer.body["results"]] == [202, 400, 200]


async def test_a_login_is_answered_with_three_lists(api: Api) -> None:
    ids = await api.signup()
    answer = await login(api, LOGIN)
    assert answer.status == 200
    assert answer.body["user_id"] == "u_1"
    assert [(row["id"], row["kind"]) for row in answer.body["canceled"]] == [(ids["followup"], "followup")]
    assert answer.body["too_late"] == []
    assert [(row["id"], row["state"]) for row in answer.body["untouched"]] == [(ids["onboarding"], "pending")]
    again = await login(api, LOGIN)
    assert (again.status, again.body, again.headers["Idempotent-Replayed"]) == (200, answer.body, "true")
    other = await login(api, {"type": "user.logged_in", "data": {"user_id": "u_2"}})
    assert (other.status, other.body["type"]) == (422, "/problems/idempotency-key-reused")


async def test_a_stranger_logs_in(api: Api) -> None:
    answer = await login(api, LOGIN)
    assert answer.body == {"user_id": "u_1", "canceled": [], "too_late": [], "untouched": []}


@pytest.mark.parametrize("secret", LOGIN_SECRETS)
async def test_any_secret_signs_while_they_rotate(api: Api, secret: str) -> None:
    assert (await login(api, LOGIN, secret=secret)).status == 200


@pytest.mark.parametrize(
    "changed",
    [
        {"webhook-signature": "v1,bm9uc2Vuc2U="},
        {"webhook-signature": "nonsense , ,, v1"},
        {"webhook-signature": ""},
        {"webhook-id": "msg_2"},
        {"webhook-timestamp": "yesterday"},
        {"webhook-timestamp": "1"},
        {"webhook-timestamp": "9" * 30},
    ],
)
async def test_a_bad_signature_changes_nothing(api: Api, changed: dict[str, str]) -> None:
    ids = await api.signup()
    assert (await login(api, LOGIN, headers=changed)).status == 401
    assert (await login(api, LOGIN, secret=STRANGER)).status == 401
    assert await api.state(ids["followup"]) == "scheduled"


@pytest.mark.parametrize(("off_s", "status"), [(-310, 401), (310, 401), (-290, 200), (290, 200)])
async def test_an_old_timestamp_is_refused(api: Api, off_s: float, status: int) -> None:
    assert (await login(api, LOGIN, at=time.time() + off_s)).status == status


async def test_the_age_is_judged_by_the_databases_real_clock(api: Api) -> None:
    await api.conn.execute("UPDATE installation SET clock_offset = interval '3 days'")
    assert (await login(api, LOGIN)).status == 200


@pytest.mark.parametrize(
    ("document", "pointer"),
    [
        ({"type": "user.created", "data": {"user_id": "u_1"}}, "/type"),
        ({"type": "user.logged_in", "data": {}}, "/data/user_id"),
        ({"type": "user.logged_in", "data": {"user_id": "u\0"}}, "/data/user_id"),
        ({"type": "user.logged_in", "timestamp": "9999-01-01T00:00:00Z", "data": {"user_id": "u_1"}}, "/timestamp"),
    ],
)
async def test_a_login_that_makes_no_sense(api: Api, document: Any, pointer: str) -> None:
    answer = await login(api, document)
    assert answer.status == 422
    assert pointer in [error["pointer"] for error in answer.body["errors"]]


async def test_nothing_is_there(api: Api) -> None:
    assert (await api.get("/v1/nothing")).body["type"] == "/problems/not-found"
    assert (await api.get("/v1/events")).status == 405


async def test_health_needs_no_key(api: Api) -> None:
    assert (await api.get("/healthz", key=None)).status == 200
    ready = await api.get("/readyz", key=None)
    assert (ready.status, ready.body["database"]) == (200, "ok")
    await post(api, SIGNUP)
    text = (await api.get("/metrics", key=None)).body.decode()
    assert 'notifier_notifications{state="pending"} 1.0' in text
    assert 'notifier_events_total{outcome="accepted",type="user.signed_up"}' in text
    assert "u_1" not in text


@pytest.mark.parametrize(("revision", "status"), [("9999", 200), ("0000", 503), (None, 503)])
async def test_an_api_stays_ready_while_the_next_build_migrates(
    api: Api, revision: str | None, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = migrate.head()
    monkeypatch.setattr(migrate, "_chain", lambda _: {"0000": None, ours: "0000"})
    if revision:
        await api.conn.execute("UPDATE alembic_version SET version_num = $1", revision)
    else:
        await api.conn.execute("DELETE FROM alembic_version")
    ready = await api.get("/readyz", key=None)
    assert ready.status == status, ready.body
    assert (ready.body["status"] == "ready") == (status == 200)
