"""What a container asks itself, against a process that answers, one that hangs, and none."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from notifier import healthcheck
from notifier.embedded.process import free_port
from notifier.settings import PREFIX, Settings
from tests.support.mock_server import running_mock


@pytest.fixture(autouse=True)
def _nothing_else_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in healthcheck.PORTS:
        monkeypatch.setenv(name, "0")


def test_it_knows_the_settings_and_their_defaults() -> None:
    for name, default in healthcheck.PORTS.items():
        assert Settings.model_fields[name.removeprefix(PREFIX).lower()].default == default


async def test_a_process_that_answers_is_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_mock(tmp_path) as mock:
        monkeypatch.setenv("NOTIFIER_MOCK_PORT", mock.url.rpartition(":")[2])
        monkeypatch.setenv("NOTIFIER_METRICS_PORT", str(free_port()))
        assert await asyncio.to_thread(healthcheck.main) == 0


def test_one_that_hangs_or_is_not_there_is_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(healthcheck, "TIMEOUT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        monkeypatch.setenv("NOTIFIER_API_PORT", str(port))
        assert healthcheck.main() == 1
    assert str(port) in capsys.readouterr().err
    assert healthcheck.main() == 1


async def test_one_that_answers_something_else_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        monkeypatch.setenv("NOTIFIER_API_PORT", str(server.sockets[0].getsockname()[1]))
        assert await asyncio.to_thread(healthcheck.main) == 1
