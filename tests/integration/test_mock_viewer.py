"""The inbox's pages and what they stand on, without a browser: searches, doubles, counts, forms, and older files."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from providers.mock.app import serve
from tests.support.mock_server import Mock, running_mock, until

BODY = {"from": "a@example.com", "to": ["b@example.com"], "subject": "Hi", "html": "<p>Hi</p>", "text": "Hi"}
ADA = {"X-Notifier-User": "u_1", "X-Notifier-Kind": "onboarding"}
ALARM = "Two accepted mails for the same user and kind"


@pytest.fixture
async def mock(tmp_path: Path) -> AsyncIterator[Mock]:
    async with running_mock(tmp_path) as running:
        yield running


async def page(mock: Mock, path: str, status: int = 200, **params: str) -> str:
    async with mock.http.get(mock.url + path, params=params) as answer:
        assert answer.status == status, await answer.text()
        assert answer.content_type == "text/html"
        return await answer.text()


async def submit(mock: Mock, path: str, form: dict[str, str] | None = None, **headers: str) -> tuple[int, str, str]:
    async with mock.http.post(mock.url + path, data=form or {}, headers=headers, allow_redirects=False) as answer:
        return answer.status, answer.headers.get("Location", ""), await answer.text()


# ---- searching


@pytest.mark.parametrize(("query", "count"), [("xyzzy", 1), ("xyzzy plugh", 1), ('"xyzzy plugh"', 1), ("plugh xyz", 1)])
async def test_words_of_the_body_are_found_in_either_part(mock: Mock, query: str, count: int) -> None:
    await mock.post("/emails", {**BODY, "html": "<p>say xy<b>zzy</b> &#112;lugh</p>", "text": "nothing"}, "1")
    await mock.post("/emails", {**BODY, "html": None, "text": "xyzz"}, "2")
    assert (await mock.get("/api/messages", q=query))["total"] == count


@pytest.mark.parametrize("query", ["100%", "a_b", "c\\d", "it's", "%", "_b"])
async def test_a_search_is_literal(mock: Mock, query: str) -> None:
    await mock.post("/emails", {**BODY, "text": "100% a_b c\\d it's"}, "1")
    await mock.post("/emails", {**BODY, "text": "1000 acb ccd its"}, "2")
    assert [line["key"] for line in (await mock.get("/api/messages", q=query))["messages"]] == ["1"]


async def test_several_terms_must_all_match_and_pages_of_a_search_go_on(mock: Mock) -> None:
    for number in range(7):
        kind = "digest@2026-W48" if number % 2 else "onboarding"
        headers = {"X-Notifier-User": f"u_{number}", "X-Notifier-Kind": kind}
        await mock.post("/emails", {**BODY, "subject": f"No {number}"}, f"k{number}", **headers)
    query = "kind:digest to:b from:a@ no hi"
    first = await mock.get("/api/messages", q=query, limit=2)
    assert ([line["key"] for line in first["messages"]], first["total"]) == (["k5", "k3"], 3)
    second = await mock.get("/api/messages", q=query, limit=2, after=first["next"])
    assert ([line["key"] for line in second["messages"]], second["total"], second["next"]) == (["k1"], 3, None)
    assert (await mock.get("/api/messages", q=f"{query} user:u_3"))["total"] == 1


async def test_a_search_by_time(mock: Mock) -> None:
    await mock.post("/emails", BODY, "1")
    [mail] = await mock.inbox()
    taken = mail["created_at"]
    for query, count in ((f"after:{taken}", 1), (f"before:{taken}", 0), (f"before:{taken[:10]}T23:59:59.999999", 1)):
        assert (await mock.get("/api/messages", q=query))["total"] == count


async def test_a_search_that_cannot_be_read_is_said_and_is_422_for_programs(mock: Mock) -> None:
    async with mock.http.get(f"{mock.url}/api/messages", params={"q": "before:soon"}) as answer:
        assert answer.status == 422
        assert "before: takes a date" in (await answer.json())["message"]
    shown = await page(mock, "/", q="before:soon")
    assert "before: takes a date" in shown
    assert 'value="before:soon"' in shown


# ---- doubles and counts


async def test_the_alarm_names_what_came_twice_until_the_inbox_is_emptied(mock: Mock) -> None:
    await mock.post("/emails", BODY, "k", **ADA)
    await mock.post("/emails", BODY, "other", **{**ADA, "X-Notifier-Kind": "followup"})
    assert ALARM not in await page(mock, "/")
    await mock.delete("/api/keys")
    await mock.post("/emails", BODY, "k", **ADA)
    for path in ("/", "/calls", "/faults", "/doubles", "/delete"):
        shown = await page(mock, path)
        assert ALARM in shown
        assert "u_1, onboarding" in shown
        assert "resolve not_sent" not in shown
    assert (await page(mock, "/doubles")).count("data-row") == 2
    assert await mock.delete("/api/messages") == 200
    assert ALARM not in await page(mock, "/")
    assert await mock.verdicts("k") == ["accepted", "accepted"]


async def test_doubles_under_different_keys_may_be_an_operators_doing(mock: Mock) -> None:
    await mock.post("/emails", BODY, "k", **ADA)
    await mock.post("/emails", BODY, "k2", **ADA)
    for path in ("/", "/doubles"):
        assert "resolve not_sent" in await page(mock, path)
    await mock.delete("/api/keys")
    await mock.post("/emails", BODY, "k2", **ADA)
    assert "resolve not_sent" not in await page(mock, "/")
    assert (await page(mock, "/doubles")).count("data-row") == 3


async def test_doubles_outlive_a_restart_and_come_in_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("providers.mock.viewer.PAGE_LIMIT", 2)
    async with running_mock(tmp_path, duplicate_mode="none") as mock:
        for number in range(5):
            for _ in range(2):
                await mock.post("/emails", BODY, f"k{number}", **{**ADA, "X-Notifier-User": f"u_{number}"})
    async with running_mock(tmp_path) as mock:
        shown = await page(mock, "/")
        assert "u_4, onboarding" in shown and "and 2 more" in shown and "u_1, onboarding" not in shown
        assert "u_2, onboarding" in await page(mock, "/doubles", after="4")


async def test_counts_are_kept_and_an_emptied_inbox_does_not_undo_them(mock: Mock) -> None:
    await mock.post("/emails/batch", [BODY, BODY], "k")
    for _ in range(3):
        await mock.post("/emails", BODY, "k")
    for path in ("/", "/calls"):
        shown = await page(mock, path)
        assert "<strong>2</strong> accepted" in shown
        assert "<strong>3</strong> refused" in shown
    await mock.delete("/api/messages")
    shown = await page(mock, "/")
    assert "<strong>2</strong> accepted" in shown
    assert "0 mails" in shown


# ---- repeats and their story


async def test_a_mail_shows_its_refused_repeats_and_the_story_of_its_key(mock: Mock) -> None:
    def by(worker: str, generation: str) -> dict[str, str]:
        return {**ADA, "X-Notifier-Worker": worker, "X-Notifier-Generation": generation}

    await mock.faults(fail_rate=1)
    await mock.post("/emails", BODY, "k", **by("w-1", "1"))
    await mock.faults(fail_rate=0, error_after_accept_rate=1)
    await mock.post("/emails", BODY, "k", **by("w-1", "2"))
    await mock.post("/emails", BODY, "k", **by("w-2", "3"))
    await mock.post("/emails", BODY, "k", **by("w-2", "4"))
    await mock.post("/emails", BODY, "unique", **ADA)
    assert (await page(mock, "/")).count("2 repeats refused") == 1
    [mail] = (await mock.get("/api/messages", q="key:k"))["messages"]
    story = [
        " ".join(line.split()) for line in (await page(mock, f"/messages/{mail['id']}")).split('<ol class="story">')
    ]
    for sentence in (
        "Worker w-1, generation 1, sent it: <strong>answered with an error; nothing taken</strong>",
        "Worker w-1, generation 2, tried again: <strong>accepted, but answered with 500: the caller cannot know",
        "Worker w-2, generation 3, tried again: <strong>refused as duplicate</strong>",
        "Worker w-2, generation 4, tried again: <strong>refused as duplicate</strong>",
    ):
        before, found, story[1] = story[1].partition(sentence)
        assert found, before
    by_key = await page(mock, "/calls", key="k")
    assert "4 calls under one key" in by_key
    assert "<strong>refused as duplicate</strong>" in by_key


async def test_repeats_are_counted_for_the_mail_they_repeat(mock: Mock) -> None:
    await mock.post("/emails/batch", [BODY, {**BODY, "subject": "Second"}], "batch")
    await mock.post("/emails/batch", [BODY, {**BODY, "subject": "Second"}], "batch")
    assert (await page(mock, "/")).count("1 repeat refused") == 2
    await mock.delete("/api/messages")
    await mock.post("/emails", BODY, "k")
    await mock.post("/emails", BODY, "k")
    await mock.delete("/api/keys")
    await mock.post("/emails", BODY, "k")
    assert (await page(mock, "/")).count("1 repeat refused") == 1
    await mock.faults(duplicate_mode="drop")
    await mock.post("/emails", BODY, "k")
    assert "2 repeats refused" in await page(mock, "/")


async def test_a_mail_knows_its_neighbours_in_the_list_it_was_opened_from(mock: Mock) -> None:
    for number in range(4):
        await mock.post("/emails", {**BODY, "text": "even" if number % 2 == 0 else "odd"}, f"k{number}")
    ids = [line["id"] for line in reversed(await mock.inbox())]
    shown = await page(mock, f"/messages/{ids[2]}")
    assert f"/messages/{ids[3]}" in shown and f"/messages/{ids[1]}" in shown
    shown = await page(mock, f"/messages/{ids[2]}", q="even")
    assert f"/messages/{ids[0]}?q=even" in shown
    assert f"/messages/{ids[1]}" not in shown and f"/messages/{ids[3]}" not in shown


# ---- forms and questions


async def test_the_faults_are_set_refused_and_switched_off_by_the_form(mock: Mock) -> None:
    assert "Faults are on" not in await page(mock, "/")
    assert (await submit(mock, "/faults", {"fail_rate": "0.5", "latency_ms.0": "1", "latency_ms.1": "2"}))[:2] == (
        303,
        "/faults",
    )
    assert (await mock.get("/api/faults"))["latency_ms"] == [1, 2]
    shown = await page(mock, "/calls")
    assert "Faults are on" in shown and "<code>fail_rate</code> 0.5" in shown
    status, _, shown = await submit(mock, "/faults", {"fail_rate": "7", "hang_s": "3"})
    assert status == 200
    assert "Nothing was changed" in shown and "less than or equal to 1" in shown and 'value="7"' in shown
    assert (await mock.get("/api/faults"))["hang_s"] == 0
    referer = {"Referer": f"{mock.url}/calls?after=3"}
    assert (await submit(mock, "/faults/off", **referer))[:2] == (303, "/calls?after=3")
    assert (await submit(mock, "/faults/off", Referer="http://evil.example//x"))[:2] == (303, "/faults")
    assert (await submit(mock, "/faults/off", Referer=f"{mock.url}//evil.example/"))[:2] == (303, "/faults")
    assert "Faults are on" not in await page(mock, "/")


async def test_a_mode_other_than_at_the_start_counts_as_a_fault(tmp_path: Path) -> None:
    async with running_mock(tmp_path, duplicate_mode="drop", key_ttl_s=60) as mock:
        assert "Faults are on" not in await page(mock, "/")
        await mock.faults(duplicate_mode="reject")
        assert "<code>duplicate_mode</code> reject" in await page(mock, "/")


async def test_deleting_and_forgetting_ask_first(mock: Mock) -> None:
    await mock.post("/emails", BODY, "k")
    assert "Delete all 1 mail?" in await page(mock, "/delete")
    assert "Forget all keys?" in await page(mock, "/forget")
    assert len(await mock.inbox()) == 1
    assert (await submit(mock, "/delete"))[:2] == (303, "/")
    assert await mock.inbox() == []
    assert (await mock.post("/emails", BODY, "k"))[0] == 409
    assert (await submit(mock, "/forget"))[:2] == (303, "/faults")
    assert (await mock.post("/emails", BODY, "k"))[0] == 200


async def test_what_is_not_there_has_a_page(mock: Mock) -> None:
    assert "There is no mail with this id" in await page(mock, "/messages/none", status=404)
    assert "after must be the" in await page(mock, "/", status=422, after="x")


# ---- who may ask


async def test_a_foreign_page_cannot_change_anything(mock: Mock) -> None:
    await mock.post("/emails", BODY, "k")
    calls: list[tuple[str, str, dict[str, Any]]] = [
        ("POST", "/delete", {}),
        ("POST", "/forget", {}),
        ("POST", "/faults", {"data": {"fail_rate": "1"}}),
        ("POST", "/faults/off", {}),
        ("POST", "/emails", {"json": BODY}),
        ("PUT", "/api/faults", {"json": {"fail_rate": 1}}),
        ("DELETE", "/api/faults", {}),
        ("DELETE", "/api/messages", {}),
        ("DELETE", "/api/keys", {}),
    ]
    for headers in (
        {"Sec-Fetch-Site": "cross-site"},
        {"Origin": "http://evil.example"},
        {"Sec-Fetch-Site": "same-site"},
    ):
        for method, path, body in calls:
            async with mock.http.request(method, mock.url + path, headers=headers, **body) as answer:
                assert answer.status == 403, (method, path, headers)
    assert len(await mock.inbox()) == 1
    assert (await mock.post("/emails", BODY, "k"))[0] == 409
    assert (await mock.get("/api/faults"))["fail_rate"] == 0
    assert (await submit(mock, "/delete", Origin=mock.url))[0] == 303


async def test_a_name_that_is_not_the_mocks_own_gets_nothing(tmp_path: Path) -> None:
    async with running_mock(tmp_path, names=["inbox.example.com"]) as mock:
        for host, status in (("evil.example", 421), ("inbox.example.com", 200), ("mock:8025", 200)):
            for path in ("/", "/api/messages"):
                async with mock.http.get(mock.url + path, headers={"Host": host}) as answer:
                    assert answer.status == status


async def test_pages_are_strict_about_themselves_and_files_are_kept(mock: Mock) -> None:
    async with mock.http.get(mock.url) as answer:
        policy = answer.headers["Content-Security-Policy"]
        shown = await answer.text()
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy and "require-trusted-types-for 'script'; trusted-types 'none'" in policy
    path = shown.partition('<script src="')[2].partition('"')[0]
    async with mock.http.get(mock.url + path) as answer:
        assert "immutable" in answer.headers["Cache-Control"]
        tag = answer.headers["ETag"]
    async with mock.http.get(mock.url + path.partition("?")[0], headers={"If-None-Match": tag}) as answer:
        assert (answer.status, answer.headers["Cache-Control"]) == (304, "no-cache")
    for missing in ("/pages/base.html", "/pages/../viewer.py", "/pages/%2e%2e/viewer.py"):
        async with mock.http.get(mock.url + missing) as answer:
            assert answer.status == 404


async def test_a_page_hears_of_a_burst_in_few_events(mock: Mock) -> None:
    async with mock.http.get(f"{mock.url}/api/stream", params={"only": "changes"}) as stream:
        assert await stream.content.readuntil(b"\n\n") == b"retry: 500\n\n"
        assert await stream.content.readuntil(b"\n\n") == b": hello\n\n"
        assert b"in_flight" in await stream.content.readuntil(b"\n\n")
        heard: list[bytes] = []
        reading = asyncio.create_task(_collect(stream.content, heard))
        loop = asyncio.get_running_loop()
        start = loop.time()
        await mock.post("/emails", BODY, "first")
        await until(lambda: _holds(heard))
        await asyncio.gather(*(mock.post("/emails", BODY, f"k{number}") for number in range(200)))
        took = loop.time() - start
        await until(lambda: _holds(heard, more_than=1))
        assert len(heard) <= 2 + took / 0.25
        reading.cancel()


async def _collect(content: Any, heard: list[bytes]) -> None:
    while True:
        chunk = await content.readuntil(b"\n\n")
        if chunk.startswith(b"event: change"):
            heard.append(chunk)


async def _holds(heard: list[bytes], more_than: int = 0) -> bool:
    return len(heard) > more_than


async def test_calls_in_flight_are_told(mock: Mock) -> None:
    async with mock.http.get(f"{mock.url}/api/stream", params={"only": "changes"}) as stream:
        await mock.faults(hang_s=30)
        call = asyncio.create_task(mock.post("/emails", BODY, "k"))
        async with asyncio.timeout(5):
            while b'"in_flight":1' not in await stream.content.readuntil(b"\n\n"):
                pass
        assert '<strong id="in-flight">1</strong>' in await page(mock, "/")
        call.cancel()
        async with asyncio.timeout(5):
            while b'"in_flight":0' not in await stream.content.readuntil(b"\n\n"):
                pass
    async with mock.http.get(f"{mock.url}/api/stream", params={"only": "else"}) as answer:
        assert answer.status == 422


# ---- older files

OLD = """
    CREATE TABLE keys (key TEXT PRIMARY KEY, fingerprint TEXT NOT NULL, message_ids TEXT NOT NULL,
                       accepted_at REAL NOT NULL) WITHOUT ROWID;
    CREATE TABLE messages (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE, key TEXT, sender TEXT NOT NULL, recipients TEXT NOT NULL,
        subject TEXT NOT NULL, html TEXT, text TEXT, headers TEXT NOT NULL, body TEXT NOT NULL,
        worker TEXT, generation INTEGER, user TEXT, kind TEXT,
        created_at TEXT NOT NULL, transport TEXT NOT NULL, folded TEXT NOT NULL, folded_to TEXT NOT NULL);
    CREATE INDEX messages_key ON messages (key);
    CREATE INDEX messages_user ON messages (user);
    CREATE TABLE attempts (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        key TEXT, worker TEXT, generation INTEGER, user TEXT, kind TEXT, recipients TEXT NOT NULL,
        time TEXT NOT NULL, verdict TEXT NOT NULL, status INTEGER, message_ids TEXT NOT NULL,
        answered INTEGER NOT NULL);
    CREATE INDEX attempts_key ON attempts (key);
    INSERT INTO messages VALUES
        (3, 'm3', 'k', 'a@example.com', '["Ada <b@example.com>"]', 'Old', '<p>xyzzy</p>', 'Hi', '{}', '{}', 'w', 1,
         'u_1', 'onboarding', '2026-01-02T03:04:05.000000+00:00', 'http', 'old', ' b@example.com '),
        (4, 'm4', 'k', 'a@example.com', '["b@example.com"]', 'Old', NULL, 'Hi', '{}', '{}', 'w', 1,
         'u_1', 'onboarding', '2026-01-02T03:04:06.000000+00:00', 'http', 'old', ' b@example.com '),
        (9, 'm9', NULL, 'a@example.com', '["b@example.com"]', 'Gone', NULL, 'Hi', '{}', '{}', NULL, NULL,
         NULL, NULL, '2026-01-02T03:04:07.000000+00:00', 'http', 'gone', ' b@example.com ');
    DELETE FROM messages WHERE seq = 9;
    INSERT INTO attempts (key, recipients, time, verdict, status, message_ids, answered) VALUES
        ('k', '[]', '2026-01-02T03:04:05.000000+00:00', 'accepted', 200, '["m3"]', 1),
        ('k', '[]', '2026-01-02T03:04:05.000000+00:00', 'duplicate', 409, '["m3"]', 1),
        ('k', '[]', '2026-01-02T03:04:06.000000+00:00', 'accepted', 200, '["m4","m9"]', 1);
"""


async def test_a_file_of_before_is_carried_over(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "mock.sqlite3") as old:
        old.executescript(OLD)
    old.close()
    async with running_mock(tmp_path) as mock:
        assert [line["id"] for line in (await mock.get("/api/messages", q="to:ada xyzzy user:u_1"))["messages"]] == [
            "m3"
        ]
        shown = await page(mock, "/")
        assert "<strong>3</strong> accepted" in shown and "<strong>1</strong> refused" in shown
        assert "2 mails" in shown and ALARM in shown and "1 repeat refused" in shown
        await mock.post("/emails", BODY, "new")
        newest = await mock.get("/api/messages", limit=1)
        assert newest["next"] == "10"  # numbers are not used again
    async with running_mock(tmp_path) as mock:
        assert len(await mock.inbox()) == 3


async def test_a_file_of_a_newer_version_is_left_alone(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "mock.sqlite3") as newer:
        newer.execute("PRAGMA user_version = 99")
    newer.close()
    with pytest.raises(OSError, match="newer version of the mock provider"):
        await serve(host="127.0.0.1", port=0, data_dir=tmp_path, stop=asyncio.Event(), ready=print)
