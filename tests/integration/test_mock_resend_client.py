"""The public `resend` client works against the mock as it is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import resend
from resend.exceptions import ResendError

from tests.support.mock_server import Mock, running_mock

MAIL: Any = {"from": "a@example.com", "to": ["b@example.com"], "subject": "Hi", "html": "<p>Hi</p>"}


@pytest.fixture
async def mock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Mock]:
    async with running_mock(tmp_path) as running:
        monkeypatch.setattr(resend, "api_url", running.url)
        monkeypatch.setattr(resend, "api_key", "re_test")
        yield running


async def test_it_sends_and_reads_back(mock: Mock) -> None:
    sent = await asyncio.to_thread(resend.Emails.send, MAIL, {"idempotency_key": "k"})
    read = await asyncio.to_thread(resend.Emails.get, sent["id"])
    assert (read["id"], read["subject"], read["to"]) == (sent["id"], "Hi", ["b@example.com"])
    assert [line["key"] for line in await mock.inbox()] == ["k"]


async def test_it_hears_of_a_repeat_as_each_mode_says(mock: Mock) -> None:
    first = await asyncio.to_thread(resend.Emails.send, MAIL, {"idempotency_key": "k"})
    with pytest.raises(ResendError) as caught:
        await asyncio.to_thread(resend.Emails.send, MAIL, {"idempotency_key": "k"})
    assert str(caught.value.code) == "409"
    assert caught.value.error_type == "duplicate_idempotency_key"
    await mock.faults(duplicate_mode="replay")
    assert (await asyncio.to_thread(resend.Emails.send, MAIL, {"idempotency_key": "k"}))["id"] == first["id"]


async def test_it_hears_what_is_wrong(mock: Mock) -> None:
    with pytest.raises(ResendError, match="`to`"):
        await asyncio.to_thread(resend.Emails.send, {**MAIL, "to": "nobody"}, {"idempotency_key": "k"})
    with pytest.raises(ResendError, match="Idempotency-Key"):
        await asyncio.to_thread(resend.Emails.send, MAIL)


async def test_it_sends_a_batch(mock: Mock) -> None:
    sent = await asyncio.to_thread(resend.Batch.send, [MAIL, {**MAIL, "subject": "Else"}], {"idempotency_key": "k"})
    assert sorted(item["id"] for item in sent["data"]) == sorted(line["id"] for line in await mock.inbox())
