"""Switches, the audit, and the invariants."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

import pytest

from notifier.http.documents import AuditOut, SwitchesOut, SwitchOut
from tests.support.api import Api

ON = {"owner": "ops", "reason": "provider trouble", "ttl_s": 60}


async def put(api: Api, name: str, body: Any = ON, key: str = "k-operate") -> Any:
    return await api.ask("PUT", f"/v1/switches/{name}", key=key, json=body)


@pytest.mark.parametrize("name", ["pause", "pause:onboarding", "pause:provider:mock"])
async def test_a_pause_holds_claims_back_and_lets_go_again(api: Api, name: str) -> None:
    await api.signup()
    told = await put(api, name)
    assert told.status == 200
    made = SwitchOut.model_validate_json(json.dumps(told.body))
    assert made.expires_at - made.set_at == timedelta(seconds=60)
    assert await api.claim() == []
    assert (await api.get(f"/v1/switches/{name}", key="k-read")).body == told.body
    assert (await api.ask("DELETE", f"/v1/switches/{name}", key="k-operate")).status == 204
    assert (await api.get(f"/v1/switches/{name}")).status == 404
    assert len(await api.claim()) == 1


async def test_maintenance_lets_no_event_in_and_everything_else_on(api: Api) -> None:
    notification = (await api.signup())["onboarding"]
    await put(api, "maintenance")
    event = {"id": "e", "type": "user.logged_in", "user": {"id": "u_1"}}
    told = await api.ask("POST", "/v1/events", json=event)
    assert (told.status, told.headers["Retry-After"]) == (503, "10")
    assert (await api.act("cancel", notification, "0")).status == 200
    await api.ask("DELETE", "/v1/switches/maintenance")
    assert (await api.ask("POST", "/v1/events", json=event)).status == 202


async def test_a_switch_that_ran_out_is_none(api: Api) -> None:
    await put(api, "pause", {**ON, "ttl_s": 0.001})
    await put(api, "pause:followup")
    assert (await api.get("/v1/switches/pause")).status == 404
    assert (await api.ask("DELETE", "/v1/switches/pause")).status == 404
    listed = (await api.get("/v1/switches", key="k-operate")).body
    SwitchesOut.model_validate_json(json.dumps(listed))
    assert [switch["name"] for switch in listed["switches"]] == ["pause:followup"]
    assert (await put(api, "pause")).status == 200


async def test_acts_on_switches_are_audited_page_by_page(api: Api) -> None:
    for seconds in (10, 20):
        await put(api, "pause", {**ON, "ttl_s": seconds})
    await api.ask("DELETE", "/v1/switches/pause", key="k-operate")
    assert (await api.ask("DELETE", "/v1/switches/pause")).status == 404
    first = (await api.get("/v1/audit?limit=2", key="k-read")).body
    AuditOut.model_validate_json(json.dumps(first))
    assert [(entry["act"], entry["target"]) for entry in first["audit"]] == [
        ("switch.delete", "pause"),
        ("switch.put", "pause"),
    ]
    assert first["audit"][0]["detail"]["owner"] == "ops"
    rest = (await api.get(f"/v1/audit?after={first['next']}", key="k-operate")).body
    assert ([entry["act"] for entry in rest["audit"]], rest["next"]) == (["switch.put"], None)
    assert datetime.fromisoformat(rest["audit"][0]["at"]) < datetime.fromisoformat(first["audit"][0]["at"])


async def test_a_switch_says_who_why_and_how_long(api: Api) -> None:
    for body, pointer in [
        ({"owner": "ops", "reason": "x"}, "/ttl_s"),
        ({"owner": "ops", "ttl_s": 1}, "/reason"),
        ({"reason": "x", "ttl_s": 1}, "/owner"),
        ({**ON, "ttl_s": 0}, "/ttl_s"),
        ({**ON, "ttl_s": -1}, "/ttl_s"),
        ({**ON, "ttl_s": 2_592_001}, "/ttl_s"),
        ({**ON, "ttl_s": "60"}, "/ttl_s"),
        ({**ON, "ttl_s": True}, "/ttl_s"),
        ({**ON, "owner": " "}, "/owner"),
        ({**ON, "reason": "a\nb"}, "/reason"),
        ({**ON, "more": 1}, "/more"),
    ]:
        told = await put(api, "pause", body)
        assert (told.status, told.body["errors"][0]["pointer"]) == (422, pointer), body
    for name in (
        "paus",
        "pause:",
        "pause:A",
        "pause:provider:",
        "pause:a:b",
        "maintenance:x",
        "pause%0A",
        "pause:" + "x" * 70,
    ):
        for told in (await put(api, name), await api.get(f"/v1/switches/{name}")):
            assert (told.status, told.body["errors"][0]["pointer"]) == (422, "/name"), name
    assert (await put(api, "pause", key="k-read")).status == 403
    assert (await api.ask("DELETE", "/v1/switches/pause", key="k-read")).status == 403
    assert (await api.get("/v1/switches", key="k-events")).status == 403
    assert (await api.get("/v1/audit", key="k-events")).status == 403
    assert (await api.get("/v1/audit?after=x")).status == 422


@pytest.mark.parametrize("name", ["pause:folowup", "pause:provider:mokc"])
async def test_a_pause_of_nothing_is_refused(api: Api, name: str) -> None:
    """It would hold nothing back, and nobody would notice."""
    switch = {"owner": "ops", "reason": "a test", "ttl_s": 60}
    answer = await api.ask("PUT", f"/v1/switches/{name}", json=switch)
    assert (answer.status, answer.body["errors"][0]["pointer"]) == (422, "/name")
    assert "did you mean" in answer.body["detail"]
    assert await api.conn.fetchval("SELECT count(*) FROM switches") == 0
