"""The short way of an event: who goes it, who does not, and that both are told the same."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from types import SimpleNamespace
from typing import Any, cast

import asyncpg
import pytest

from notifier.http import app as http_app
from notifier.http import lane
from notifier.http.app import build_app, listen
from notifier.http.context import CONTEXT
from notifier.http.events import read_event, told
from notifier.http.lane import HEAD_MAX, HEADERS_MAX, KEPT_S, REQUEST_MAX, Lane, Lanes
from notifier.ingest import Accepted, Ingest
from notifier.runtime import background
from tests.support.api import Api, running_api
from tests.support.poll import eventually_in_loop

SENT = b"POST /v1/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer k-all\r\n"
_numbers = itertools.count(1)


def event(**fields: Any) -> bytes:
    number = next(_numbers)
    document = {"id": f"evt_{number}", "type": "user.signed_up", "user": {"id": f"u_{number}", **fields}}
    return json.dumps(document).encode()


def request(body: bytes, headers: bytes = b"", head: bytes = SENT) -> bytes:
    return head + headers + b"Content-Length: %d\r\n\r\n" % len(body) + body


class Line:
    """A connection to the api, read answer by answer."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def say(self, raw: bytes) -> None:
        self.writer.write(raw)

    async def hear(self) -> tuple[int, dict[str, str], Any]:
        async with asyncio.timeout(10):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
            line, *fields = head.rstrip().split("\r\n")
            assert line.startswith(("HTTP/1.1 ", "HTTP/1.0 "))
            headers = dict(field.split(": ", 1) for field in fields)
            body = await self.reader.readexactly(int(headers.pop("Content-Length", "0")))
        return int(line.split()[1]), headers, json.loads(body) if body else None

    async def ask(self, raw: bytes) -> tuple[int, dict[str, str], Any]:
        self.say(raw)
        return await self.hear()

    async def is_over(self) -> bool:
        async with asyncio.timeout(10):
            return await self.reader.read(1) == b""


@asynccontextmanager
async def line_to(host: str, port: int) -> AsyncIterator[Line]:
    reader, writer = await asyncio.open_connection(host, port)
    try:
        yield Line(reader, writer)
    finally:
        writer.close()


@pytest.fixture
async def line(api: Api) -> AsyncIterator[Line]:
    async with line_to(*api.at) as opened:
        yield opened


def by_aiohttp(headers: dict[str, str]) -> bool:
    """Whether that library wrote this: it signs, and a lane does not."""
    return "Server" in headers


async def stored(api: Api) -> int:
    return await api.conn.fetchval("SELECT count(*) FROM events")


async def test_a_connection_carries_event_after_event(api: Api, line: Line) -> None:
    for _ in range(20):
        status, headers, body = await line.ask(request(event()))
        assert status == 202
        assert not by_aiohttp(headers)
        assert headers["Content-Type"] == "application/json"
        assert headers["Cache-Control"] == "no-store"
        assert abs(parsedate_to_datetime(headers["Date"]) - datetime.now(UTC)) < timedelta(seconds=10)
        assert [item["kind"] for item in body["notifications"]]
    assert await stored(api) == 20


async def test_the_date_moves_on(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    said = []
    for now in (1_000_000_000.9, 1_000_000_001.0, 1_000_000_001.9):
        monkeypatch.setattr(lane, "time", SimpleNamespace(time=lambda now=now: now, monotonic=time.monotonic))
        said.append((await line.ask(request(event())))[1]["Date"])
    assert said == ["Sun, 09 Sep 2001 01:46:40 GMT"] + ["Sun, 09 Sep 2001 01:46:41 GMT"] * 2


async def test_a_request_may_come_in_pieces(api: Api, line: Line) -> None:
    for size in (1, 7, 100):
        raw = request(event(), b"Connection: Keep-Alive\r\nUSER-AGENT: x\r\n")
        raw = raw.replace(b"Authorization", b"aUTHORIZATION")
        for at in range(0, len(raw), size):
            line.say(raw[at : at + size])
            await line.writer.drain()
            await asyncio.sleep(0)
        status, headers, _ = await line.hear()
        assert (status, by_aiohttp(headers)) == (202, False)
        assert (await line.ask(request(event())))[0] == 202
    assert await stored(api) == 6


def chunked(body: bytes) -> bytes:
    return SENT + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)


def gzipped(body: bytes) -> bytes:
    return request(gzip.compress(body), b"Content-Encoding: gzip\r\n")


def large(_: bytes) -> bytes:
    return request(event(attributes={"x": "y" * REQUEST_MAX}))


ODD = {
    "in chunks": chunked,
    "compressed": gzipped,
    "large": large,
    "a long head": lambda body: request(body, b"X-Long: %s\r\nX-Longer: %s\r\n" % (2 * (b"x" * (HEAD_MAX // 2),))),
    "a query": lambda body: request(body, head=SENT.replace(b"/events", b"/events?a=b")),
    "a whole address": lambda body: request(body, head=SENT.replace(b" /v1", b" http://x/v1")),
    "a line before": lambda body: b"\r\n" + request(body),
    "a header twice": lambda body: request(body, b"Accept: a/b\r\naccept: c/d\r\n"),
    "asks to close": lambda body: request(body, b"Connection: close\r\n"),
    "asks for another protocol": lambda body: request(body, b"Upgrade: h2c\r\n"),
    "HTTP/1.0": lambda body: request(body, head=SENT.replace(b"HTTP/1.1", b"HTTP/1.0")),
}


async def test_what_is_not_plain_is_aiohttps_and_served_all_the_same(api: Api) -> None:
    for form, odd in ODD.items():
        before = await stored(api)
        async with line_to(*api.at) as line:
            status, headers, _ = await line.ask(request(event()))
            assert (status, by_aiohttp(headers)) == (202, False)
            status, headers, _ = await line.ask(odd(event()))
            assert (status, by_aiohttp(headers)) == (202, True), form
            assert await stored(api) == before + 2
            if form in ("asks to close", "HTTP/1.0"):
                assert await line.is_over()
            else:  # and so is what comes later on this connection
                status, headers, _ = await line.ask(request(event()))
                assert (status, by_aiohttp(headers)) == (202, True), form


async def test_what_is_no_http_is_refused_by_aiohttp(api: Api) -> None:
    many = b"".join(b"X-%d: 1\r\n" % number for number in range(HEADERS_MAX))
    for raw in (
        SENT + b"Content-Length: -1\r\n\r\n",
        SENT + b"bad header\r\n\r\n",
        SENT + b"A: \x00\r\n\r\n",
        request(event(), head=SENT.replace(b"Host: x\r\n", b"")),
        request(event(), b"Host: y\r\n"),
        request(event(), b"Content-Type: a/b\r\nContent-Type: a/b\r\n"),
        request(event(), b"Sec-WebSocket-Key1: x\r\n"),
        request(event(), many),
    ):
        async with line_to(*api.at) as line:
            line.say(raw)
            async with asyncio.timeout(10):
                assert (await line.reader.read()).startswith(b"HTTP/1.0 400 "), raw[:200]
    assert await stored(api) == 0


async def test_whoever_has_no_key_is_not_listened_to(api: Api) -> None:
    for head, status in ((SENT.replace(b"k-all", b"k-none"), 401), (SENT.replace(b"k-all", b"k-read"), 403)):
        async with line_to(*api.at) as line:
            line.say(head + b"Content-Length: 100\r\n\r\n{")
            found, headers, _ = await line.hear()
            assert (found, by_aiohttp(headers)) == (status, True)  # which also hangs up before long


async def test_no_request_borrows_the_key_of_the_one_before_it(api: Api, line: Line) -> None:
    keyed, keyless = event(), event()
    line.say(request(keyed) + request(keyless, head=b"POST /v1/events HTTP/1.1\r\nHost: x\r\n"))
    assert [(await line.hear())[0], (await line.hear())[0]] == [202, 401]
    assert await stored(api) == 1
    async with line_to(*api.at) as other:
        assert (await other.ask(request(event())))[0] == 202
        assert (await other.ask(request(event(), head=b"POST /v1/events HTTP/1.1\r\nHost: x\r\n")))[0] == 401
    assert await stored(api) == 2


async def test_what_is_announced_as_too_large_is_refused_before_it_is_sent(api: Api, line: Line) -> None:
    line.say(SENT + b"Content-Length: 1000000\r\n\r\n")
    assert (await line.hear())[0] == 413


async def test_who_waits_to_be_asked_for_the_body_is_asked(api: Api, line: Line) -> None:
    body = event()
    line.say(SENT + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(body))
    assert (await line.hear())[0] == 100
    assert (await line.ask(body))[0] == 202
    assert await stored(api) == 1


async def test_requests_that_come_together_are_answered_in_their_order(api: Api) -> None:
    for cut in (0, 1, 50, 180, 300):
        events = [event() for _ in range(3)]
        raw = b"".join(request(body) for body in events)
        async with line_to(*api.at) as line:
            line.say(raw[: len(raw) - cut])
            await line.writer.drain()
            line.say(raw[len(raw) - cut :])
            told = [await line.hear() for _ in events]
        assert [body["event"]["id"] for _, _, body in told] == [json.loads(body)["id"] for body in events]
    assert await stored(api) == 15


@asynccontextmanager
async def locked(api: Api, user_id: str) -> AsyncIterator[None]:
    """Keep the events of a user waiting."""
    await api.conn.execute("INSERT INTO users (user_id) VALUES ($1) ON CONFLICT DO NOTHING", user_id)
    async with api.conn.transaction():
        await api.conn.execute("SELECT FROM users WHERE user_id = $1 FOR UPDATE", user_id)
        yield


LOCK_WAITS = """
    SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()
"""


async def under_way(api: Api, number: int = 1) -> None:
    """Wait until so many events wait for a lock."""
    other = await asyncpg.connect(str(api.runtime.settings.database_url))
    try:

        async def wait() -> bool:
            return await other.fetchval(LOCK_WAITS) >= number

        await eventually_in_loop(wait)
    finally:
        await other.close()


async def test_what_comes_before_the_answer_waits_for_it(api: Api, line: Line) -> None:
    first, second = event(), event()
    async with locked(api, json.loads(first)["user"]["id"]):
        line.say(request(first))
        await under_way(api)
        line.say(request(second))
        other = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
        async with line_to(*api.at) as quick:  # one that came later has its answer: so the second one was read, too
            assert (await quick.ask(other))[0] == 200
        assert await stored(api) == 0
    told = [await line.hear(), await line.hear()]
    assert [body["event"]["id"] for _, _, body in told] == [json.loads(body)["id"] for body in (first, second)]
    assert not any(by_aiohttp(headers) for _, headers, _ in told)
    assert (await line.ask(request(event())))[0] == 202


BAD = {
    "no key": request(b"{}", head=SENT.replace(b"Authorization", b"X-Else")),
    "a wrong key": request(b"{}", head=SENT.replace(b"k-all", b"k-none")),
    "no scope": request(b"{}", head=SENT.replace(b"k-all", b"k-read")),
    "no JSON": request(b"{"),
    "not UTF-8": request(b'"\xff"'),
    "no body": request(b""),
    "no event": request(b"[]"),
    "no id": request(b'{"type":"user.signed_up","user":{"id":"u_bad"}}'),
    "two ids": request(b'{"id":"e1","type":"user.signed_up","user":{"id":"u_bad"}}', b"Idempotency-Key: e2\r\n"),
    "a bad id": request(b'{"type":"user.signed_up","user":{"id":"u_bad"}}', b"Idempotency-Key: \xff\r\n"),
    "a bad address": request(b'{"id":"e1","type":"user.signed_up","user":{"id":"u_bad","email":"x"}}'),
    "from the future": request(
        b'{"id":"e1","type":"user.signed_up","occurred_at":"2200-01-01T00:00:00Z","user":{"id":"u_bad"}}'
    ),
    "an id in use": request(b'{"id":"known","type":"user.signed_up","user":{"id":"u_other"}}'),
    "a repeat": request(b'{"id":"known","type":"user.signed_up","user":{"id":"u_known"}}'),
    "a repeat by header": request(
        b'{"type":"user.signed_up","user":{"id":"u_known"}}', b'Idempotency-Key: "known"\r\n'
    ),
}


async def test_both_ways_tell_the_same(api: Api) -> None:
    known = b'{"id":"known","type":"user.signed_up","user":{"id":"u_known"}}'
    async with line_to(*api.at) as short, line_to(*api.at) as long:
        assert (await short.ask(request(known)))[0] == 202
        for what, raw in BAD.items():
            status, headers, body = await short.ask(raw)
            assert not by_aiohttp(headers), what
            other_status, other_headers, other_body = await long.ask(raw.replace(b"/events ", b"/events? "))
            assert by_aiohttp(other_headers), what
            del other_headers["Server"], other_headers["Date"], headers["Date"]
            assert (status, headers, body) == (other_status, other_headers, other_body)
            assert status == (200 if "repeat" in what else body["status"]), what
        assert (await short.ask(request(event())))[0] == 202  # the line is good for more
    assert await stored(api) == 2


async def test_busy_says_when_to_come_again(api: Api, line: Line) -> None:
    switch = {"owner": "x", "reason": "y", "ttl_s": 60}
    assert (await api.ask("PUT", "/v1/switches/maintenance", json=switch)).status == 200
    status, headers, body = await line.ask(request(event()))
    assert (status, headers["Retry-After"], by_aiohttp(headers)) == (503, "10", False)
    assert body["type"] == "/problems/busy"


async def test_our_own_mistake_is_a_problem_and_in_the_log(
    api: Api, line: Line, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("geheim")

    monkeypatch.setattr(lane, "read_event", broken)
    status, _, body = await line.ask(request(event()))
    assert (status, body["type"]) == (500, "/problems/internal")
    assert "geheim" not in json.dumps(body)
    assert "POST /v1/events" in "".join(capsys.readouterr())
    monkeypatch.undo()
    assert (await line.ask(request(event())))[0] == 202


async def test_an_answer_that_cannot_be_given_keeps_nobody_from_theirs(
    api: Api, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first = event()
    bad = json.loads(first)["id"]

    def tell(accepted: Accepted) -> Any:
        if accepted.answer["event"]["id"] == bad:
            raise RuntimeError("no words for it")
        return told(accepted)

    monkeypatch.setattr(lane, "told", tell)
    async with AsyncExitStack() as stack:
        lines = [await stack.enter_async_context(line_to(*api.at)) for _ in range(10)]
        for one, body in zip(lines, [first] + [event() for _ in lines[1:]], strict=True):
            one.say(request(body))
        assert [(await one.hear())[0] for one in lines] == [500] + [202] * 9
        assert (await lines[0].ask(request(event())))[0] == 202
    assert "no words for it" in "".join(capsys.readouterr())


async def test_an_event_is_stored_although_its_sender_hangs_up(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    lost, connection_lost = asyncio.Event(), Lane.connection_lost

    def hear(self: Lane, exc: Exception | None) -> None:
        connection_lost(self, exc)
        lost.set()

    monkeypatch.setattr(Lane, "connection_lost", hear)
    body = event()
    async with locked(api, json.loads(body)["user"]["id"]), line_to(*api.at) as line:
        line.say(request(body))
        await under_way(api)
        line.writer.close()
        await lost.wait()
    await eventually_in_loop(lambda: stored(api))
    async with line_to(*api.at) as line:
        assert (await line.ask(request(body)))[0] == 200


# ------------------------------------------------------------------------------------------------- the end of it


@asynccontextmanager
async def second_door(api: Api) -> AsyncIterator[tuple[tuple[str, int], asyncio.Event, asyncio.Task[None]]]:
    """Listen once more; gives where, what ends it, and the task that has ended when all is over."""
    stop, opened = asyncio.Event(), asyncio.get_running_loop().create_future()

    async def serve() -> None:
        async with listen(build_app(api.runtime, api.app[CONTEXT].ingest), "127.0.0.1", 0) as where:
            opened.set_result(where)
            await stop.wait()

    serving = asyncio.create_task(serve())
    yield await opened, stop, serving
    stop.set()
    await serving


async def test_at_the_end_what_was_asked_is_answered_and_what_is_idle_is_closed(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_app, "SHUTDOWN_S", 60)  # nothing here takes so long
    body = event()
    async with second_door(api) as (at, stop, ended), line_to(*at) as idle, line_to(*at) as begun, line_to(*at) as busy:
        assert (await idle.ask(request(event())))[0] == 202
        begun.say(request(event())[:60])
        async with locked(api, json.loads(body)["user"]["id"]):
            busy.say(request(body))
            await under_way(api)
            stop.set()
            assert await idle.is_over()
            assert await begun.is_over()
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection(*at)
            assert not ended.done()
        status, headers, _ = await busy.hear()
        assert (status, headers["Connection"]) == (202, "close")
        assert await busy.is_over()
        await ended


async def test_what_takes_longer_than_the_end_may_is_cut(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_app, "SHUTDOWN_S", 0.1)
    body = event()
    async with (
        second_door(api) as (at, stop, ended),
        line_to(*at) as busy,
        locked(api, json.loads(body)["user"]["id"]),
    ):
        busy.say(request(body))
        await under_way(api)
        stop.set()
        await ended
        assert await busy.is_over()


async def test_a_connection_that_nobody_uses_is_closed(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane, "SWEEP_S", 0.02)
    async with (
        running_api(database_url) as api,
        line_to(*api.at) as idle,
        line_to(*api.at) as silent,
        line_to(*api.at) as busy,
    ):
        assert (await idle.ask(request(event())))[0] == 202
        body = event()
        async with locked(api, json.loads(body)["user"]["id"]):
            busy.say(request(body))
            await under_way(api)
            monkeypatch.setattr(lane, "KEPT_S", 0.0)
            assert await idle.is_over()
            assert await silent.is_over()
        assert (await busy.hear())[0] == 202


# ------------------------------------------------------------------------------------ what a socket does too rarely


class Wire(asyncio.Transport):
    """A transport that says what is done with it."""

    def __init__(self) -> None:
        super().__init__()
        self.done: list[str] = []
        self.protocol: asyncio.BaseProtocol | None = None
        self.is_gone = False
        self.then: Callable[[], object] | None = None  # what happens right after something was written

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def is_closing(self) -> bool:
        return self.is_gone

    def close(self) -> None:
        self.done.append("close")

    async def was_closed(self) -> bool:
        return "close" in self.done

    async def was_handed_over(self) -> bool:
        return self.protocol is not None

    def pause_reading(self) -> None:
        self.done.append("pause")

    def resume_reading(self) -> None:
        self.done.append("resume")

    def write(self, data: Any) -> None:
        self.done.append(bytes(data[:12]).decode())
        if self.then is not None:
            asyncio.get_running_loop().call_soon(self.then)


class Other(asyncio.Protocol):
    """Stands for aiohttp's side of a connection."""

    def __init__(self) -> None:
        self.heard: list[Any] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.heard.append("made")

    def data_received(self, data: bytes) -> None:
        self.heard.append(data)

    def pause_writing(self) -> None:
        self.heard.append("full")


def lane_on(wire: Wire, other: Other) -> tuple[Lane, Lanes]:
    lanes = Lanes(cast(Any, None), cast(Any, None), lambda: other)
    opened = Lane(lanes)
    opened.connection_made(wire)
    return opened, lanes


def test_who_does_not_read_answers_is_not_read_either() -> None:
    wire = Wire()
    opened, _ = lane_on(wire, Other())
    opened.pause_writing()
    assert wire.done == ["pause"]
    opened.resume_writing()
    assert wire.done == ["pause", "resume"]


def test_a_full_connection_is_handed_over_as_full_and_read_on() -> None:
    wire, other = Wire(), Other()
    opened, _ = lane_on(wire, other)
    opened.pause_writing()
    opened.data_received(b"GET / HTTP/1.1\r\n\r\n")  # what was read before it was full
    assert wire.protocol is other
    assert other.heard == ["made", "full", b"GET / HTTP/1.1\r\n\r\n"]
    assert wire.done == ["pause", "resume"]


@dataclass
class Waiting:
    """A lane with an event in hand that nobody has begun with."""

    lane: Lane
    lanes: Lanes
    wire: Wire
    other: Other
    ingest: Ingest

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[None]:
        """Let the ingest run; when one that came later has its answer, so has ours."""
        async with background(self.ingest.run()):
            await self.ingest.accept(read_event(event(), None))
            yield


@pytest.fixture
async def waiting(api: Api) -> Waiting:
    runtime = api.runtime
    ingest = Ingest(runtime.database, runtime.journeys, runtime.wakeup, pool_size=runtime.settings.pool_size)
    wire, other = Wire(), Other()
    lanes = Lanes(api.app[CONTEXT].keys, ingest, lambda: other)
    opened = Lane(lanes)
    opened.connection_made(wire)
    opened.data_received(request(event()))
    return Waiting(opened, lanes, wire, other, ingest)


async def test_whoever_does_not_wait_for_the_answer_is_read_no_further(waiting: Waiting) -> None:
    more = request(event(attributes={"x": "y" * REQUEST_MAX}))
    waiting.lane.data_received(more[:REQUEST_MAX])
    assert waiting.wire.done == []
    waiting.lane.data_received(more[REQUEST_MAX:])
    assert waiting.wire.done == ["pause"]
    async with waiting.begin():
        await eventually_in_loop(waiting.wire.was_handed_over)
    assert waiting.wire.done == ["pause", "HTTP/1.1 202", "resume"]
    assert waiting.other.heard == ["made", more]


async def test_what_comes_while_the_answer_is_written_waits_its_turn(waiting: Waiting) -> None:
    waiting.lane.data_received(b"GET /1 HTTP/1.1\r\n")
    waiting.wire.then = lambda: waiting.lane.data_received(b"\r\n")  # between the answer and what came before it
    async with waiting.begin():
        await eventually_in_loop(waiting.wire.was_handed_over)
    assert waiting.wire.done == ["HTTP/1.1 202"]
    assert waiting.other.heard == ["made", b"GET /1 HTTP/1.1\r\n\r\n"]


async def test_what_came_before_the_last_answer_of_all_is_not_begun_with(waiting: Waiting) -> None:
    waiting.lane.data_received(b"GET /1 HTTP/1.1\r\n\r\n")
    waiting.wire.then = lambda: setattr(waiting.lanes, "is_closing", True)
    async with waiting.begin():
        await eventually_in_loop(waiting.wire.was_closed)
    assert waiting.wire.done == ["HTTP/1.1 202", "close"]
    assert waiting.other.heard == []


def test_a_connection_that_comes_at_the_end_is_closed() -> None:
    wire = Wire()
    lanes = Lanes(cast(Any, None), cast(Any, None), Other)
    lanes.is_closing = True
    Lane(lanes).connection_made(wire)
    assert wire.done == ["close"]


async def test_nothing_is_written_to_who_is_gone(waiting: Waiting) -> None:
    waiting.lane.data_received(b"GET / HTTP/1.1\r\n\r\n")
    waiting.wire.is_gone = True
    async with waiting.begin():
        assert waiting.wire.done == []
    assert waiting.other.heard == []


async def test_what_is_used_is_kept(waiting: Waiting, monkeypatch: pytest.MonkeyPatch) -> None:
    now, opened, done = time.monotonic(), waiting.lane, waiting.wire.done

    def later(seconds: float) -> None:
        monkeypatch.setattr(lane, "time", SimpleNamespace(time=time.time, monotonic=lambda: now + seconds))

    later(2 * KEPT_S)
    opened.close_if_unused()
    assert done == []  # somebody waits
    async with waiting.begin():
        assert done == ["HTTP/1.1 202"]
        later(3 * KEPT_S - 2)
        opened.close_if_unused()
        later(3 * KEPT_S - 1)
        opened.data_received(SENT)
        later(4 * KEPT_S - 2)
        opened.close_if_unused()
        assert done == ["HTTP/1.1 202"]  # since the answer, and since a request began
        opened.data_received(b"A: b\r\n")
        later(4 * KEPT_S + 1)
        opened.close_if_unused()
        assert done == ["HTTP/1.1 202", "close"]  # however it goes on


async def test_neither_who_left_nor_who_was_handed_over_is_waited_for() -> None:
    for ending in (lambda lane: lane.connection_lost(None), lambda lane: lane.data_received(b"G")):
        wire = Wire()
        opened, lanes = lane_on(wire, Other())
        ending(opened)
        async with asyncio.timeout(10):
            await lanes.close(60)
        assert wire.done == []
