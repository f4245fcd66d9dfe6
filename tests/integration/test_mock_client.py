"""The real client against the real mock: every way a call can end, seen from the service."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

import providers
from providers import http_post, mock_client
from providers.base import (
    Accepted,
    Ambiguous,
    BodyMismatch,
    ConfigError,
    Duplicate,
    Family,
    Outcome,
    Provider,
    Rejected,
    RetryLater,
)
from tests.support.mock_server import CONTEXT, MAIL, Mock, a_provider, running_mock, until

SECOND = timedelta(seconds=1)
SILENT_S = 1.2  # the time-out of calls that get no answer: far more than connecting takes on a busy machine


@pytest.fixture
async def mock(tmp_path: Path) -> AsyncIterator[Mock]:
    async with running_mock(tmp_path) as running:
        yield running


@pytest.fixture
async def provider(mock: Mock) -> AsyncIterator[Provider]:
    async with a_provider(mock.url) as made:
        yield made


async def test_a_mail_arrives_with_everything_it_carries(mock: Mock, provider: Provider) -> None:
    outcome = await provider.send(MAIL, "k1", CONTEXT)
    assert isinstance(outcome, Accepted)
    [line] = await mock.inbox()
    assert line["id"] == outcome.message_id
    assert (line["worker"], line["generation"], line["user"], line["kind"]) == (
        "w-1",
        3,
        "u 1 % ü",
        "onboarding",
    )
    assert (line["key"], line["to"], line["transport"]) == ("k1", ["ada@example.com"], "http")
    whole = await mock.get(f"/api/messages/{outcome.message_id}")
    assert (whole["html"], whole["text"], whole["headers"]) == (MAIL.html, MAIL.text, dict(MAIL.headers))


async def test_any_user_id_survives_the_way(mock: Mock, provider: Provider) -> None:
    users = ["a%20b", "ü 😀", "x" * 255, "é" * 255, "/?&=#+\"'\\<>", " leading and trailing ", "\u2028"]
    for number, user in enumerate(users):
        assert isinstance(await provider.send(MAIL, f"k{number}", {**CONTEXT, "user": user}), Accepted)
    assert [line["user"] for line in reversed(await mock.inbox())] == users


async def test_a_repeat_is_known_and_another_body_is_a_mismatch(mock: Mock, provider: Provider) -> None:
    first = await provider.send(MAIL, "k1", CONTEXT)
    assert isinstance(first, Accepted)
    assert await provider.send(MAIL, "k1", {**CONTEXT, "worker": "w-2"}) == Duplicate(first.message_id)
    assert isinstance(await provider.send(MAIL._replace(subject="Else"), "k1", CONTEXT), BodyMismatch)
    assert await mock.verdicts("k1") == ["accepted", "duplicate", "body_mismatch"]
    assert len(await mock.inbox()) == 1


@pytest.mark.parametrize(
    ("faults", "expected", "verdict"),
    [
        ({"fail_rate": 1}, Ambiguous("http_503"), "failed"),
        ({"fail_rate": 1, "retry_after_s": 2.5}, Ambiguous("http_503", 3 * SECOND), "failed"),
        (
            {"fail_rate": 1, "fail_status": 429, "retry_after_s": 4},
            RetryLater("rate_limit_exceeded", 4 * SECOND),
            "failed",
        ),
        ({"fail_rate": 1, "fail_status": 404}, ConfigError("http_404"), "failed"),
        ({"reset_rate": 1}, Ambiguous("disconnected"), "reset"),
        ({"hang_s": 0.2}, Ambiguous("disconnected"), "hung"),
        ({"reject_to": ["*@EXAMPLE.com"]}, Rejected("validation_error"), "rejected"),
    ],
)
async def test_a_fault_before_acceptance_takes_nothing_and_frees_the_key(
    mock: Mock, provider: Provider, faults: dict[str, object], expected: Outcome, verdict: str
) -> None:
    await mock.faults(**faults)
    assert await provider.send(MAIL, "k1", CONTEXT) == expected
    assert await mock.delete("/api/faults") == 200
    assert await mock.inbox() == []
    assert isinstance(await until(lambda: _sent(provider)), Accepted)
    verdicts = await mock.verdicts("k1")
    assert verdicts[0] == verdict
    assert verdicts[-1] == "accepted"


async def _sent(provider: Provider) -> Outcome | None:
    outcome = await provider.send(MAIL, "k1", CONTEXT)
    return None if outcome == Ambiguous("concurrent_idempotent_requests", SECOND, counted=False) else outcome


@pytest.mark.parametrize(
    ("faults", "expected", "answered"),
    [
        ({"drop_response_rate": 1}, Ambiguous("disconnected"), False),
        ({"error_after_accept_rate": 1}, Ambiguous("http_500"), True),
    ],
)
async def test_a_fault_after_acceptance_is_a_doubt_and_the_repeat_ends_it(
    mock: Mock, provider: Provider, faults: dict[str, object], expected: Outcome, answered: bool
) -> None:
    await mock.faults(**faults)
    assert await provider.send(MAIL, "k1", CONTEXT) == expected
    [line] = await mock.inbox()
    assert await provider.send(MAIL, "k1", CONTEXT) == Duplicate(line["id"])
    attempts = (await mock.get("/api/attempts", key="k1"))["attempts"]
    assert [(a["verdict"], a["answered"]) for a in attempts] == [("duplicate", True), ("accepted", answered)]


async def test_a_silent_provider_is_a_doubt_after_the_time_out(mock: Mock) -> None:
    await mock.faults(hang_s=60)
    async with a_provider(mock.url, timeout_s=SILENT_S) as provider:
        assert await provider.send(MAIL, "k1", CONTEXT) == Ambiguous("timeout")
        await mock.delete("/api/faults")
        assert isinstance(await until(lambda: _sent(provider)), Accepted)  # nobody waits: the hang has ended


async def test_two_calls_at_once_under_one_key_are_one_mail(mock: Mock, provider: Provider) -> None:
    await mock.faults(latency_ms=[300, 300])
    outcomes = await asyncio.gather(*(provider.send(MAIL, "k1", CONTEXT) for _ in range(5)))
    assert sum(isinstance(outcome, Accepted) for outcome in outcomes) == 1
    in_flight = Ambiguous("concurrent_idempotent_requests", SECOND, counted=False)
    assert outcomes.count(in_flight) == 4
    assert len(await mock.inbox()) == 1


async def test_a_client_that_gives_up_does_not_undo_the_acceptance(mock: Mock) -> None:
    await mock.faults(latency_ms=[1_800, 1_800])
    async with a_provider(mock.url, timeout_s=SILENT_S) as provider:
        assert await provider.send(MAIL, "k1", CONTEXT) == Ambiguous("timeout")
        await until(mock.inbox)
        await mock.delete("/api/faults")
        assert isinstance(await until(lambda: _sent(provider)), Duplicate)


async def test_nobody_there_is_certain(mock: Mock) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    for url in (f"http://127.0.0.1:{port}", "http://nobody.invalid", mock.url.replace("http:", "https:")):
        async with a_provider(url) as provider:
            assert await provider.send(MAIL, "k1", CONTEXT) == RetryLater("connect_failed", answered=False)
    assert await mock.inbox() == []


async def test_a_connect_that_takes_for_ever_is_certain() -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        with contextlib.ExitStack() as waiting:
            for _ in range(3):  # fill the accept queue, so that the next SYN goes unanswered
                one = waiting.enter_context(socket.socket())
                one.setblocking(False)
                one.connect_ex(full.getsockname())
            async with a_provider(f"http://127.0.0.1:{full.getsockname()[1]}", timeout_s=0.3) as provider:
                assert await provider.send(MAIL, "k1", CONTEXT) == RetryLater("connect_timeout", answered=False)


@contextlib.asynccontextmanager
async def answering(answer: bytes, *, close: bool = True, heads: list[bytes] | None = None) -> AsyncIterator[str]:
    """A server that reads a request, notes its head in `heads`, and says exactly this."""
    handlers: list[asyncio.Task[None]] = []

    async def on_connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        handlers.append(task)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            [length] = [int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if b"content-length" in line]
            await reader.readexactly(length)
            if heads is not None:
                heads.append(head)
            writer.write(answer)
            await writer.drain()
            if not close:
                await reader.read()
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    server = await asyncio.start_server(on_connect, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        await asyncio.gather(*handlers)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (b"", Ambiguous("disconnected")),
        (b"HTTP/1.1 200 OK\r\nContent-", Ambiguous("disconnected")),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{", Ambiguous("unreadable_answer")),
        (b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{"id"', Ambiguous("unreadable_answer")),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno", Ambiguous("unreadable_answer")),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 200000\r\n\r\n" + b" " * 200_000,
            Ambiguous("unreadable_answer"),
        ),
        (
            b"HTTP/1.1 429 No\r\nRetry-After: 3\r\nContent-Length: 50\r\n\r\n{",
            RetryLater("rate_limited", 3 * SECOND),
        ),
        (
            b"HTTP/1.1 302 Off\r\nLocation: http://127.0.0.1:9/\r\nContent-Length: 0\r\n\r\n",
            ConfigError("http_302"),
        ),
        (b"SMTP ready\r\n\r\n", Ambiguous("unreadable_answer")),
    ],
)
async def test_broken_answers_are_told_apart(answer: bytes, expected: Outcome) -> None:
    async with answering(answer) as url, a_provider(url) as provider:
        assert await provider.send(MAIL, "k1", CONTEXT) == expected


async def test_an_answer_that_stops_half_way_is_a_doubt_after_the_time_out() -> None:
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{"
    async with answering(answer, close=False) as url, a_provider(url, timeout_s=SILENT_S) as provider:
        assert await provider.send(MAIL, "k1", CONTEXT) == Ambiguous("timeout")


async def test_without_keys_no_key_is_sent_and_no_connection_is_used_twice() -> None:
    heads: list[bytes] = []
    answer = b'HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{"id":"m"}'
    async with answering(answer, close=False, heads=heads) as url, a_provider(url, Family.NONE) as provider:
        for _ in range(3):
            assert await provider.send(MAIL, "k1", CONTEXT) == Accepted("m")
    assert len(heads) == 3
    assert not any(b"idempotency-key" in head.lower() for head in heads)


async def test_the_callback_comes_after_the_request_and_before_the_answer(mock: Mock, provider: Provider) -> None:
    seen: list[int] = []

    async def written() -> None:
        await until(mock.inbox)  # the mock can accept while we are still in here: it has the whole request
        seen.append(len(await mock.inbox()))

    big = MAIL._replace(html="x" * 3_000_000)  # far more than a socket buffer holds
    assert isinstance(await provider.send(big, "k1", CONTEXT, written=written), Accepted)
    assert seen == [1]


@pytest.mark.parametrize("size", [60_000, 1_000_000])
async def test_written_means_that_not_a_byte_is_left_in_this_process(size: int) -> None:
    loop = asyncio.get_running_loop()
    ours, theirs = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
    theirs.setblocking(False)
    with theirs:
        transport, line = await loop.create_connection(http_post.Line, sock=ours)
        task = asyncio.create_task(line.write_through(b"x" * size))
        read = 0
        while not task.done():
            read += len(await loop.sock_recv(theirs, 1_000))
            assert transport.get_write_buffer_size() or task.done() or await _soon(task)
        await task
        assert transport.get_write_buffer_size() == 0
        transport.close()
        while chunk := await loop.sock_recv(theirs, 65_536):
            read += len(chunk)
    assert read == size


async def _soon(task: asyncio.Task[None]) -> bool:
    await asyncio.wait({task}, timeout=5)
    return task.done()


async def test_an_error_of_the_callback_is_the_callers_own(mock: Mock, provider: Provider) -> None:
    async def written() -> None:
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        await provider.send(MAIL, "k1", CONTEXT, written=written)
    assert len(await until(mock.inbox)) == 1
    assert isinstance(await provider.send(MAIL, "k1", CONTEXT), Duplicate)


async def test_a_callback_that_never_ends_is_ended_by_the_time_out(mock: Mock) -> None:
    async with a_provider(mock.url, timeout_s=SILENT_S) as provider:
        outcome = await provider.send(MAIL, "k1", CONTEXT, written=lambda: asyncio.sleep(60))
    assert outcome == Ambiguous("timeout")


KILLED = textwrap.dedent("""
    import asyncio, os, signal, sys
    from datetime import timedelta
    import providers
    from providers.base import Family, Message

    async def written():
        os.kill(os.getpid(), signal.SIGKILL)

    async def main():
        provider = providers.mock_provider(base_url=sys.argv[1], api_key="k", family=Family.REJECT,
                         window=timedelta(days=1), timeout_s=10, concurrency=1)
        mail = Message("a@example.com", "b@example.com", "Last words", "x" * int(sys.argv[2]), "x")
        await provider.send(mail, "k1", {}, written=written)

    asyncio.run(main())
""")


@pytest.mark.parametrize("size", [10, 3_000_000])
@pytest.mark.parametrize("latency_ms", [0, 300])
async def test_a_process_killed_in_the_callback_has_sent_its_mail(mock: Mock, size: int, latency_ms: int) -> None:
    await mock.faults(latency_ms=[latency_ms, latency_ms])
    arguments = [sys.executable, "-c", KILLED, mock.url, str(size)]
    process = await asyncio.create_subprocess_exec(*arguments, cwd=Path(__file__).parents[2])
    assert await process.wait() == -9
    [line] = await until(mock.inbox)
    assert line["subject"] == "Last words"


async def test_cancelling_is_cancelling(mock: Mock, provider: Provider) -> None:
    await mock.faults(hang_s=60)
    call = asyncio.create_task(provider.send(MAIL, "k1", CONTEXT))
    await until(lambda: mock.verdicts("k1"))
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call


async def test_no_more_connections_than_allowed(mock: Mock) -> None:
    await mock.faults(latency_ms=[100, 100])
    async with a_provider(mock.url, concurrency=2) as provider:
        start = asyncio.get_running_loop().time()
        outcomes = await asyncio.gather(*(provider.send(MAIL, f"k{n}", CONTEXT) for n in range(8)))
        assert asyncio.get_running_loop().time() - start >= 0.4
    assert all(isinstance(outcome, Accepted) for outcome in outcomes)


async def test_waiting_for_a_free_connection_is_certain(mock: Mock) -> None:
    await mock.faults(hang_s=60)
    provider = mock_client.MockProvider(
        base_url=mock.url,
        api_key="re_test",
        family=Family.REJECT,
        window=timedelta(days=1),
        timeout_s=60,
        concurrency=1,
    )
    first = asyncio.create_task(provider.send(MAIL, "k1", CONTEXT))
    await until(lambda: mock.verdicts("k1"))
    provider._timeout_s = 0.1  # for the second call only: with one for both, the first would make room in time
    assert await provider.send(MAIL, "k2", CONTEXT) == RetryLater("connect_timeout", answered=False)
    await provider.close()
    assert await first == Ambiguous("disconnected")
    assert await mock.verdicts("k2") == []


async def test_after_close_nothing_is_sent(mock: Mock) -> None:
    async with a_provider(mock.url) as provider:
        pass
    assert await provider.send(MAIL, "k1", CONTEXT) == RetryLater("client_closed", answered=False)


def test_the_account_is_named_without_its_secret() -> None:
    def account(url: str, key: str) -> str:
        options = {"family": Family.REPLAY, "window": timedelta(hours=1), "timeout_s": 1.0, "concurrency": 1}
        return providers.mock_provider(base_url=url, api_key=key, **options).traits.account

    one = account("http://h:1", "secret")
    assert one == account("http://h:1/", "secret")
    assert one.startswith("mock:")
    assert "secret" not in one
    assert one == account("http://h:2", "secret"), "a mock that comes back on another port is the same account"
    assert one != account("http://h:1", "other")
    with pytest.raises(ValueError, match="http://host:port"):
        account("h:1", "secret")


def test_the_package_is_light() -> None:
    code = "import providers, providers.base, sys; sys.exit('aiohttp' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[2], check=False).returncode == 0
