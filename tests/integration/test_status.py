"""`notifier status` on a real database."""

from __future__ import annotations

import asyncio
import json

import pytest

from notifier.domain.errors import NotReady
from notifier.runtime import open_runtime
from notifier.settings import Settings
from notifier.status import show
from tests.support.api import Api


async def test_it_counts_and_names_who_works(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    await api.bring_to("sent")
    await api.ask("PUT", "/v1/switches/pause:followup", json={"owner": "[ops]", "reason": "a test", "ttl_s": 60})
    await api.conn.execute("INSERT INTO workers (id, role, host, pid) VALUES ('s', 'scheduler', 'h', 1)")
    settings = api.runtime.settings
    assert await asyncio.to_thread(show, settings, json=True) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["ok"] is True
    assert said["open"] == {"scheduled": 1, "pending": 0, "sending": 0, "uncertain": 0}
    assert said["settled"] == {"sent": 1, "canceled": 0, "skipped": 0, "failed": 0}
    assert {process["role"] for process in said["processes"]} == {"api", "scheduler"}
    assert [switch["name"] for switch in said["switches"]] == ["pause:followup"]
    await api.bring_to("pending", "u_2")
    assert await asyncio.to_thread(show, settings, json=False) == 1
    text = capsys.readouterr().out
    for words in ("scheduled", "[ops]", "no worker lives"):
        assert words in text


async def test_a_database_without_the_schema_is_said_in_words(empty_database_url: str) -> None:
    with pytest.raises(NotReady, match="notifier migrate"):
        await asyncio.to_thread(show, Settings(database_url=empty_database_url), json=False)


async def test_a_newer_schema_is_not_to_be_migrated(api: Api) -> None:
    await api.conn.execute("UPDATE alembic_version SET version_num = '9999'")
    settings = api.runtime.settings
    with pytest.raises(NotReady, match="9999, which this build does not know") as caught:
        await asyncio.to_thread(show, settings, json=False)
    assert "notifier migrate" not in str(caught.value)
    with pytest.raises(NotReady, match="9999, which this build does not know"):
        async with open_runtime(settings, "worker"):
            pytest.fail("it opened")
