"""Reading notifications: the document, the filters, the pages."""

from __future__ import annotations

import itertools
import json
from datetime import datetime, timedelta
from typing import Any

import pytest

from notifier.domain.provider_key import provider_key
from notifier.http.documents import NotificationOut, NotificationsOut
from notifier.store import notifications
from tests.support.api import AGAIN, SENT, Api, running_api

STATES = ("scheduled", "pending", "sending", "sent", "canceled", "skipped", "failed", "uncertain")


async def ids(api: Api, **query: Any) -> list[str]:
    asked = "&".join(f"{name}={value}" for name, value in query.items())
    told = await api.get(f"/v1/notifications?{asked}", key="k-read")
    assert told.status == 200, told
    NotificationsOut.model_validate_json(json.dumps(told.body))
    return [item["id"] for item in told.body["notifications"]]


async def walk(api: Api, query: str) -> list[str]:
    """Every page, to the end."""
    found: list[str] = []
    after = ""
    while True:
        page = (await api.get(f"/v1/notifications?{query}&after={after}")).body
        found += [item["id"] for item in page["notifications"]]
        if page["next"] is None:
            return found
        after = page["next"]


async def one_of_each(api: Api) -> dict[str, str]:
    """State → a notification in it, each of another user."""
    found = {"scheduled": (await api.signup("u_scheduled"))["followup"]}
    [claim] = await api.claim()
    await api.finish(claim, SENT)
    for state in ("failed", "uncertain", "skipped", "sent", "sending"):
        found[state] = await api.bring_to(state, f"u_{state}")
    found["canceled"] = (await api.signup("u_canceled"))["onboarding"]
    assert (await api.act("cancel", found["canceled"], "0")).status == 200
    found["pending"] = (await api.signup("u_pending"))["onboarding"]
    return found


async def test_a_sent_notification_tells_its_whole_story(api: Api) -> None:
    notification = (await api.signup("ü/1"))["onboarding"]
    [claim] = await api.claim()
    await api.finish(claim, SENT)
    told = await api.read(notification)
    document = NotificationOut.model_validate_json(json.dumps(told.body))
    assert told.etag == '"1"' == f'"{document.generation}"'
    assert (document.user_id, document.kind, document.state) == ("ü/1", "onboarding", "sent")
    assert (document.reason, document.evidence, document.provider_message_id) == (None, "accepted", "m_1")
    assert document.created_by.startswith("event:api/evt_")
    assert document.decided_by == "worker:worker-1"
    assert document.provider_key == provider_key(api.runtime.namespace, "ü/1", "onboarding")
    assert document.sent_at == document.settled_at
    assert document.attempt_count == 1
    [attempt] = document.attempts
    assert (attempt.outcome, attempt.worker, attempt.generation) == ("accepted", "worker-1", 1)
    assert attempt.claimed_at <= attempt.started_at <= attempt.finished_at <= document.settled_at


async def test_each_state_is_found_by_its_name_and_says_what_it_is(api: Api) -> None:
    each = await one_of_each(api)
    for state in STATES:
        document = NotificationOut.model_validate_json(json.dumps((await api.read(each[state])).body))
        assert document.state == state
        assert (document.decided_by is None) == (state in ("scheduled", "pending", "sending"))
        assert (document.reason is None) == (state in ("scheduled", "pending", "sending", "sent"))
        found = await ids(api, state=state)
        assert each[state] in found
        assert await ids(api, user_id=f"u_{state}", state=state) == [each[state]]
    everything = await walk(api, "limit=3")
    assert everything == sorted(everything)
    assert len(everything) == await api.conn.fetchval("SELECT count(*) FROM outbox")
    by_state = [await walk(api, f"state={state}&limit=2") for state in STATES]
    assert sorted(itertools.chain(*by_state)) == everything


async def test_kinds_are_named_whole_or_before_the_at(api: Api) -> None:
    plain = (await api.signup())["followup"]
    weekly = "01890000-0000-7000-8000-000000000001"
    await api.conn.execute(
        """WITH o AS (INSERT INTO outbox (id, user_id, kind, decided_at, decided_by, due_at, cancel_from, data)
                      VALUES ($1, 'u_1', 'followup@2026-W48', now(), 'api/w', now(), now(), '{}') RETURNING *)
           INSERT INTO scheduled_sends (id, user_id, kind, due_at) SELECT id, user_id, kind, due_at FROM o""",
        weekly,
    )
    for query in ({}, {"user_id": "u_1"}, {"state": "scheduled"}, {"state": "scheduled", "user_id": "u_1"}):
        assert sorted(await ids(api, kind="followup", **query)) == sorted([weekly, plain])
        assert await ids(api, kind="followup@2026-W48", **query) == [weekly]
        assert await ids(api, kind="followup@2026-W49", **query) == []
    assert len(await ids(api, kind="onboarding")) == 1
    refused = await api.get("/v1/notifications?kind=folowup")
    assert (refused.status, refused.body["errors"][0]["pointer"]) == (422, "/kind")
    assert "followup" in refused.body["detail"]


async def test_a_page_says_where_to_go_on(api: Api) -> None:
    for number in range(5):
        await api.signup(f"u_{number}")
    first = (await api.get("/v1/notifications?limit=4")).body
    assert len(first["notifications"]) == 4
    assert first["next"] == first["notifications"][-1]["id"]
    rest = (await api.get(f"/v1/notifications?limit=6&after={first['next']}")).body
    assert (len(rest["notifications"]), rest["next"]) == (6, None)
    assert len(await walk(api, "user_id=u_1&limit=1")) == 2


async def test_a_walk_over_a_big_table_goes_on_where_its_window_ended(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a window of 3 rows instead of 50 000, rare rows are found all the same, a bounded piece at a time."""
    small = {
        state: statement.replace("LIMIT 50000", "LIMIT 3").replace("OFFSET 49999", "OFFSET 2")
        for state, statement in notifications._BY_STATE.items()
    }
    for number in range(7):
        await api.signup(f"u_{number}")
    monkeypatch.setattr(notifications, "_BY_STATE", small)
    page = (await api.get("/v1/notifications?kind=onboarding@never")).body
    assert page["notifications"] == []
    assert page["next"] is not None
    assert len(await walk(api, "kind=onboarding&limit=50")) == 7
    assert len(await walk(api, "kind=followup&state=scheduled&limit=2")) == 7
    assert len(await walk(api, "state=pending&limit=5")) == 7
    assert await walk(api, "state=sent") == []


async def test_a_wrong_parameter_is_named(api: Api) -> None:
    for query, named in [
        ("state=open", "/state"),
        ("limit=0", "/limit"),
        ("limit=501", "/limit"),
        ("limit=many", "/limit"),
        ("limit=1_0", "/limit"),
        ("after=no-id", "/after"),
        ("user=u_1", "/user"),
        ("state=sent&state=failed", "/state"),
        ("user_id=%00", "/user_id"),
        ("kind=a%0Ab", "/kind"),
        ("user_id=" + "x" * 256, "/user_id"),
    ]:
        told = await api.get(f"/v1/notifications?{query}")
        assert (told.status, told.body["errors"][0]["pointer"]) == (422, named), query


async def test_what_is_not_there_is_not_found(api: Api) -> None:
    for notification in ("01890000-0000-7000-8000-000000000000", "no-id", "%00", "{}"):
        told = await api.get(f"/v1/notifications/{notification}")
        assert (told.status, told.body["type"]) == (404, "/problems/not-found")
    assert await ids(api, state="", kind="", user_id="", limit="") == []
    for path in ("/v1/notifications", "/v1/notifications/no-id", "/v1/invariants", "/v1/users/u"):
        assert (await api.get(path, key=None)).status == 401
        assert (await api.get(path, key="k-operate")).status == 403


async def test_in_doubt_it_says_until_when_a_repeat_is_safe(database_url: str) -> None:
    async with running_api(database_url, mock_window_s=3_600) as api:
        notification = (await api.signup())["onboarding"]
        [claim] = await api.claim()
        await api.finish(claim, AGAIN, "ambiguous")
        document = (await api.read(notification)).body
        since = datetime.fromisoformat(document["doubt_since"])
        assert since.timestamp() == claim.claimed_at
        margin = timedelta(seconds=api.runtime.settings.claim_ttl_s)
        assert datetime.fromisoformat(document["safe_retry_until"]) == since + timedelta(hours=1) - margin
        assert document["reason"] == "http_503"
    for other in ({"mock_family": "none"}, {"mock_api_key": "another account"}):
        async with running_api(database_url, **other) as api:
            document = (await api.read(notification)).body
            assert document["doubt_since"] is not None
            assert document["safe_retry_until"] is None
