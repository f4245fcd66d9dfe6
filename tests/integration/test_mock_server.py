"""The mock over its wire: keys, modes, memory, faults, reading and watching."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import io
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from email import message_from_bytes
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from providers.mock.app import serve
from tests.support.mock_server import Mock, running_mock, until

BODY = {"from": "a@example.com", "to": ["b@example.com"], "subject": "Hi", "html": "<p>Hi</p>", "text": "Hi"}
OTHER = {**BODY, "subject": "Else"}


@pytest.fixture
async def mock(tmp_path: Path) -> AsyncIterator[Mock]:
    async with running_mock(tmp_path) as running:
        yield running


async def test_reject_names_the_first_mail(mock: Mock) -> None:
    _, first, _ = await mock.post("/emails", BODY, "k")
    status, second, _ = await mock.post("/emails", dict(reversed(BODY.items())), "k")
    assert (status, second["statusCode"], second["name"]) == (409, 409, "duplicate_idempotency_key")
    assert second["original_id"] == first["id"]
    assert second["message"]


async def test_replay_answers_as_the_first_time(tmp_path: Path) -> None:
    async with running_mock(tmp_path, duplicate_mode="replay") as mock:
        first = await mock.post("/emails", BODY, "k")
        second = await mock.post("/emails", BODY, "k")
        assert (second[0], second[1]) == (200, first[1])
        assert second[2]["Idempotent-Replayed"] == "true"
        assert len(await mock.inbox()) == 1
        assert await mock.verdicts("k") == ["accepted", "replayed"]


async def test_drop_answers_as_if_new_and_delivers_nothing(tmp_path: Path) -> None:
    async with running_mock(tmp_path, duplicate_mode="drop") as mock:
        _, first, _ = await mock.post("/emails", BODY, "k")
        status, second, _ = await mock.post("/emails", BODY, "k")
        assert status == 200
        assert second["id"] != first["id"]
        assert [line["id"] for line in await mock.inbox()] == [first["id"]]
        assert await mock.verdicts("k") == ["accepted", "dropped"]


async def test_none_delivers_again_and_asks_for_no_key(tmp_path: Path) -> None:
    async with running_mock(tmp_path, duplicate_mode="none") as mock:
        for key in ("k", "k", None):
            status, _, _ = await mock.post("/emails", BODY, key)
            assert status == 200
        assert [line["key"] for line in await mock.inbox()] == [None, "k", "k"]


@pytest.mark.parametrize("mode", ["reject", "replay", "drop"])
async def test_another_body_under_a_key_is_refused_in_every_mode(mock: Mock, mode: str) -> None:
    await mock.faults(duplicate_mode=mode)
    await mock.post("/emails", BODY, "k")
    status, content, _ = await mock.post("/emails", OTHER, "k")
    assert (status, content["name"]) == (409, "invalid_idempotent_request")
    assert await mock.verdicts("k") == ["accepted", "body_mismatch"]


async def test_a_key_in_flight_is_refused_with_a_wait(mock: Mock) -> None:
    await mock.faults(hang_s=60)
    first = asyncio.create_task(mock.post("/emails", BODY, "k"))
    await until(lambda: mock.verdicts("k"))
    status, content, headers = await mock.post("/emails", BODY, "k")
    assert (status, content["name"]) == (409, "concurrent_idempotent_requests")
    assert headers["Retry-After"] == "1"
    first.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await first


async def test_keys_outlive_a_restart_and_faults_do_not(tmp_path: Path) -> None:
    async with running_mock(tmp_path) as mock:
        _, first, _ = await mock.post("/emails", BODY, "k")
        await mock.faults(fail_rate=1)
    async with running_mock(tmp_path) as mock:
        status, content, _ = await mock.post("/emails", BODY, "k")
        assert (status, content["original_id"]) == (409, first["id"])
        assert len(await mock.inbox()) == 1
        assert await mock.verdicts("k") == ["accepted", "duplicate"]


SERVER = """
import asyncio, sys
from pathlib import Path
from providers.mock.app import serve

def ready(url, smtp):
    print(url, flush=True)

asyncio.run(serve(host="127.0.0.1", port=0, data_dir=Path(sys.argv[1]), stop=asyncio.Event(), ready=ready))
"""


async def test_what_was_answered_outlives_a_kill(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        SERVER,
        str(tmp_path),
        stdout=asyncio.subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )
    assert process.stdout is not None
    url = (await process.stdout.readline()).decode().strip()
    answered: list[str] = []

    async def send(worker: int) -> None:
        with contextlib.suppress(aiohttp.ClientError):
            for number in range(10_000):
                key = f"{worker}-{number}"
                await Mock(url, http).post("/emails", BODY, key)
                answered.append(key)
                if len(answered) == 200:
                    os.kill(process.pid, signal.SIGKILL)

    async with aiohttp.ClientSession() as http:
        await asyncio.gather(*(send(worker) for worker in range(10)))
    assert await process.wait() == -9
    async with running_mock(tmp_path) as mock:
        keys = [line["key"] for line in (await mock.get("/api/messages", limit=10_000))["messages"]]
        assert len(keys) == len(set(keys))
        assert set(answered) <= set(keys)
        for key in keys:
            status, _, _ = await mock.post("/emails", BODY, key)
            assert status == 409


async def test_a_key_is_forgotten_after_its_time(tmp_path: Path) -> None:
    async with running_mock(tmp_path, key_ttl_s=0.3) as mock:
        await mock.post("/emails", BODY, "k")
        status, _, _ = await mock.post("/emails", BODY, "k")
        assert status == 409

        async def forgotten() -> bool:
            return (await mock.post("/emails", BODY, "k"))[0] == 200

        await until(forgotten)
        assert len(await mock.inbox()) == 2


async def test_deleting_keys_keeps_mails_and_deleting_mails_keeps_keys(mock: Mock) -> None:
    await mock.post("/emails", BODY, "k")
    assert await mock.delete("/api/messages") == 200
    assert await mock.inbox() == []
    assert (await mock.post("/emails", BODY, "k"))[0] == 409
    assert await mock.delete("/api/keys") == 200
    assert (await mock.post("/emails", BODY, "k"))[0] == 200
    assert len(await mock.inbox()) == 1


async def test_a_key_already_taken_counts_more_than_a_pattern(mock: Mock) -> None:
    await mock.post("/emails", BODY, "k")
    await mock.faults(reject_to=["*"])
    assert (await mock.post("/emails", BODY, "k"))[0] == 409
    assert (await mock.post("/emails", BODY, "new"))[0] == 422


@pytest.mark.parametrize(
    ("key", "name"),
    [(None, "missing_idempotency_key"), ("a b", "invalid_idempotency_key"), ("", "invalid_idempotency_key")],
)
async def test_a_key_is_required_and_has_a_form(mock: Mock, key: str | None, name: str) -> None:
    status, content, _ = await mock.post("/emails", BODY, key)
    assert (status, content["name"]) == (400, name)


async def test_every_refusal_is_recorded(mock: Mock) -> None:
    await mock.post("/emails", BODY, "k", Authorization="Basic x")
    await mock.post("/emails", {**BODY, "to": "nobody"}, "k")
    await mock.post("/emails", BODY)
    attempts = (await mock.get("/api/attempts"))["attempts"]
    assert [(a["verdict"], a["status"], a["key"]) for a in reversed(attempts)] == [
        ("unauthorized", 401, "k"),
        ("rejected", 422, "k"),
        ("rejected", 400, None),
    ]


async def test_a_batch_is_taken_whole_under_one_key(mock: Mock) -> None:
    status, first, _ = await mock.post("/emails/batch", [BODY, OTHER], "k")
    assert status == 200
    ids = [item["id"] for item in first["data"]]
    assert sorted(line["id"] for line in await mock.inbox()) == sorted(ids)
    status, second, _ = await mock.post("/emails/batch", [BODY, OTHER], "k")
    assert (status, second["original_ids"]) == (409, ids)
    assert (await mock.post("/emails/batch", [OTHER, BODY], "k"))[1]["name"] == "invalid_idempotent_request"
    await mock.faults(duplicate_mode="replay")
    assert (await mock.post("/emails/batch", [BODY, OTHER], "k"))[1] == first
    await mock.faults(duplicate_mode="drop")
    dropped = (await mock.post("/emails/batch", [BODY, OTHER], "k"))[1]["data"]
    assert len(dropped) == 2
    assert len(await mock.inbox()) == 2
    assert (await mock.post("/emails/batch", [BODY, {**BODY, "to": "x"}], "k2"))[0] == 422
    assert len(await mock.inbox()) == 2


async def test_a_mail_is_read_back_as_resend_shows_it(mock: Mock) -> None:
    _, answer, _ = await mock.post("/emails", {**BODY, "reply_to": "c@example.com"}, "k")
    url = f"{mock.url}/emails/{answer['id']}"
    async with mock.http.get(url, headers={"Authorization": "Bearer x"}) as response:
        mail = await response.json()
    assert (mail["object"], mail["to"], mail["reply_to"]) == ("email", ["b@example.com"], ["c@example.com"])
    assert (mail["last_event"], mail["html"]) == ("delivered", "<p>Hi</p>")
    async with mock.http.get(url) as response:
        assert response.status == 401
    async with mock.http.get(url + "x", headers={"Authorization": "Bearer x"}) as response:
        assert response.status == 404
        assert (await response.json())["name"] == "not_found"


async def test_errors_of_the_server_itself_have_the_same_shape(mock: Mock) -> None:
    async with mock.http.get(f"{mock.url}/emails") as response:
        assert (response.status, (await response.json())["name"]) == (405, "method_not_allowed")
        assert "POST" in response.headers["Allow"]
    async with mock.http.post(f"{mock.url}/emails", data=io.BytesIO(b"x" * 9_000_000)) as response:
        assert (response.status, (await response.json())["statusCode"]) == (413, 413)


async def test_faults_are_read_set_in_part_and_reset(mock: Mock) -> None:
    before = await mock.get("/api/faults")
    assert before["duplicate_mode"] == "reject"
    assert before["latency_ms"] == [0, 0]
    assert await mock.faults(latency_ms=[1, 2]) == {**before, "latency_ms": [1, 2]}
    assert await mock.faults(seed=4) == {**before, "latency_ms": [1, 2], "seed": 4}
    for body, mentions in (
        ('{"fail_rat": 1}', "fail_rat"),
        ('{"fail_rate": 2}', "fail_rate"),
        ("[]", "object"),
    ):
        async with mock.http.put(f"{mock.url}/api/faults", data=body) as response:
            assert response.status == 422
            assert mentions in (await response.json())["message"]
    async with mock.http.put(f"{mock.url}/api/faults", data="{") as response:
        assert response.status == 400
    await mock.delete("/api/faults")
    assert await mock.get("/api/faults") == before


async def _filled(mock: Mock) -> None:
    people = [("u_1", "ada@example.com", "onboarding"), ("u_10", "adam@example.com", "digest@2026-W48")]
    for number, (user, to, kind) in enumerate(people * 2):
        headers = {"X-Notifier-User": user, "X-Notifier-Kind": kind}
        await mock.post(
            "/emails", {**BODY, "to": f"A Ü <{to}>", "subject": f"No {number} 100%"}, f"k{number}", **headers
        )


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ("", 4),
        ("user:u_1", 2),
        ("user:u_", 0),
        ("key:k3", 1),
        ("kind:digest", 2),
        ("kind:digest@2026-W48", 2),
        ("kind:dig", 0),
        ("to:ada@example.com", 2),
        ("to:ADA", 4),
        ("to:dam", 0),
        ("to:@example.com", 4),
        ("to:@example", 0),
        ("subject:no", 4),
        ('subject:"NO 2"', 1),
        ("100%", 4),
        ("1%0", 0),
        ("a ü adam", 2),
        ("Ü u_1 no", 4),
        ("user:u_1 kind:digest", 0),
        ("to:example.com", 4),
        ("to:ü", 4),
        ("from:@example.com", 4),
        ("from:b", 0),
        ("hi", 4),
        ("after:2020-01-01 before:2099-01-01T00:00:00Z", 4),
        ("before:2020-01-01", 0),
        ("after:2099-01-01", 0),
        ("' OR 1=1 --", 0),
    ],
)
async def test_the_inbox_is_searched(mock: Mock, query: str, count: int) -> None:
    await _filled(mock)
    page = await mock.get("/api/messages", q=query)
    assert page["total"] == len(page["messages"]) == count


async def test_lists_come_in_pages_newest_first(mock: Mock) -> None:
    await _filled(mock)
    for path, field in (("/api/messages", "messages"), ("/api/attempts", "attempts")):
        seen: list[str] = []
        params: dict[str, Any] = {"limit": 3}
        while True:
            page = await mock.get(path, **params)
            assert page["total"] == 4
            seen += [item["key"] for item in page[field]]
            if page["next"] is None:
                break
            params["after"] = page["next"]
        assert seen == ["k3", "k2", "k1", "k0"]
    for params in ({"limit": 0}, {"limit": 10_001}, {"limit": "x"}, {"after": "x"}):
        async with mock.http.get(f"{mock.url}/api/messages", params=params) as response:
            assert response.status == 422


async def test_a_mail_is_shown_without_power(mock: Mock) -> None:
    _, answer, _ = await mock.post("/emails", {**BODY, "html": "<script>alert(1)</script>é"}, "k")
    path = f"{mock.url}/api/messages/{answer['id']}"
    async with mock.http.get(f"{path}/html") as response:
        policy = response.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "sandbox" in policy
        assert await response.text() == "<script>alert(1)</script>é"
    async with mock.http.get(f"{path}/text") as response:
        assert (response.content_type, await response.text()) == ("text/plain", "Hi")
    async with mock.http.get(f"{path}/raw") as response:
        assert response.content_type == "text/plain"
        assert message_from_bytes(await response.read())["To"] == "b@example.com"


async def test_the_pages_escape_what_they_show(mock: Mock) -> None:
    evil = {**BODY, "subject": "<img src=x onerror=alert(1)>", "headers": {"X-A": "<b>"}}
    _, answer, _ = await mock.post("/emails", evil, "k<i>", **{"X-Notifier-User": "<u>"})
    await mock.post("/emails", evil, "k<i>", **{"X-Notifier-Worker": "<w>"})
    inside = f"/messages/{answer['id']}"
    views = [f"{inside}?view={view}" for view in ("html", "text", "headers", "source")]
    for path in ("/", "/?q=<img", "/calls", "/calls?key=k<i>", "/doubles", inside, *views):
        async with mock.http.get(mock.url + path) as response:
            assert response.status == 200
            assert "default-src 'none'" in response.headers["Content-Security-Policy"]
            page = await response.text()
        for tag in ("<img", "<i>", "<u>", "<w>", "<b>"):
            assert tag not in page
    for path in ("/pages/style.css", "/pages/inbox.js", "/pages/vendor/idiomorph.min.js"):
        async with mock.http.get(mock.url + path) as response:
            assert response.status == 200


async def test_watchers_hear_of_mails_and_refusals(mock: Mock) -> None:
    async with mock.http.get(f"{mock.url}/api/stream") as stream:
        assert stream.content_type == "text/event-stream"
        assert await stream.content.readuntil(b"\n\n") == b": hello\n\n"
        await mock.post("/emails", {**BODY, "subject": "two\u2028lines"}, "k")
        await mock.post("/emails", BODY, "k")
        events = [(await stream.content.readuntil(b"\n\n")).decode() for _ in range(2)]
    names = [event.split("\n")[0] for event in events]
    data = [json.loads(event.split("\n")[1].removeprefix("data: ")) for event in events]
    assert names == ["event: message", "event: attempt"]
    assert data[0]["subject"] == "two\u2028lines"
    assert data[1]["verdict"] == "body_mismatch"


async def test_health_and_metrics(mock: Mock) -> None:
    assert (await mock.get("/healthz"))["status"] == "ok"
    await mock.post("/emails", BODY, "k")
    await mock.post("/emails", BODY, "k")
    async with mock.http.get(f"{mock.url}/metrics") as response:
        text = await response.text()
    assert 'mock_calls_total{verdict="accepted"} 1.0' in text
    assert 'mock_calls_total{verdict="duplicate"} 1.0' in text


async def test_stopping_takes_a_second_whoever_still_waits(tmp_path: Path) -> None:
    async with contextlib.AsyncExitStack() as stack:
        async with running_mock(tmp_path) as mock:
            http = await stack.enter_async_context(aiohttp.ClientSession())
            stream = await stack.enter_async_context(http.get(f"{mock.url}/api/stream"))
            await mock.faults(hang_s=600)
            hanging = asyncio.create_task(Mock(mock.url, http).post("/emails", BODY, "hung"))
            await until(lambda: mock.verdicts("hung"))
            await mock.faults(hang_s=0, latency_ms=[600_000, 600_000])
            slow = asyncio.create_task(Mock(mock.url, http).post("/emails", BODY, "slow"))
            loop = asyncio.get_running_loop()
            start = loop.time()
        assert loop.time() - start < 1.5
        assert await stream.content.readuntil(b"\n\n") == b": hello\n\n"
        for task in (hanging, slow):
            with pytest.raises(aiohttp.ClientError):
                await task


async def test_a_port_or_a_directory_in_use_is_said_plainly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("providers.mock.ledger.LOCK_WAIT_S", 0.1)
    options: dict[str, Any] = {"host": "127.0.0.1", "stop": asyncio.Event(), "ready": print}
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(OSError, match="address already in use"),
    ):
        await serve(port=taken.getsockname()[1], data_dir=tmp_path, **options)
    async with running_mock(tmp_path):
        with pytest.raises(BlockingIOError, match="another mock provider"):
            await serve(port=0, data_dir=tmp_path, **options)
    with (tmp_path / "mock.lock").open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # given back
