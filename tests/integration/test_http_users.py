"""Reading users: the profile, and what happened in which order."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import quote

from notifier.http.documents import TimelineOut, UserOut
from tests.support.api import AGAIN, SENT, Api, running_api


async def timeline(api: Api, user_id: str = "u_1") -> list[dict[str, Any]]:
    told = await api.get(f"/v1/users/{quote(user_id, safe='')}/timeline", key="k-read")
    assert told.status == 200, told
    entries = told.body["timeline"]
    for entry in entries:
        TimelineOut.model_validate_json(json.dumps({"timeline": [entry]}))
    moments = [datetime.fromisoformat(entry["at"]) for entry in entries]
    assert moments == sorted(moments)
    return entries


def story(entries: list[dict[str, Any]], kind: str) -> list[str]:
    """What happened to one kind, and the events and acts around it."""
    return [entry["what"] for entry in entries if entry.get("kind", kind) == kind]


async def test_a_user_is_told_whole(api: Api) -> None:
    await api.event("user.signed_up", user={"email": "ada@example.com", "name": "Ada", "attributes": {"plan": "x"}})
    await api.login()
    told = await api.get("/v1/users/u_1", key="k-read")
    UserOut.model_validate_json(json.dumps(told.body))
    assert (told.body["id"], told.body["email"], told.body["name"]) == ("u_1", "ada@example.com", "Ada")
    assert told.body["attributes"] == {"plan": "x"}
    assert set(told.body["last_seen"]) == {"user.signed_up", "user.logged_in"}
    assert {item["kind"]: item["state"] for item in told.body["notifications"]} == {
        "onboarding": "pending",
        "followup": "canceled",
    }


async def test_any_character_may_stand_in_a_users_id(api: Api) -> None:
    for user_id in ("a/b", "a/timeline", "{x}", "ü ñ 漢 🎉", "100%", "%2F", "a?b#c&d=e", "a+b", "..x", "'; --"):
        await api.signup(user_id)
        path = f"/v1/users/{quote(user_id, safe='')}"
        told = await api.get(path)
        assert (told.status, told.body.get("id")) == (200, user_id), told
        assert story(await timeline(api, user_id), "onboarding") == ["event", "decision"]
        listed = await api.get(f"/v1/notifications?user_id={quote(user_id, safe='')}")
        assert {item["user_id"] for item in listed.body["notifications"]} == {user_id}


async def test_who_is_not_known_is_not_found(api: Api) -> None:
    for path, status in [("u_2", 404), ("u_2/timeline", 404), ("a/b", 404), ("a%00b", 422), ("x" * 256, 422)]:
        assert (await api.get(f"/v1/users/{path}")).status == status, path


async def test_the_timeline_of_a_mail_that_went_out_at_the_second_try(api: Api) -> None:
    await api.signup()
    [claim] = await api.claim()
    await api.finish(claim, AGAIN, "ambiguous")
    await api.conn.execute("UPDATE deliveries SET next_attempt_at = now()")
    [claim] = await api.claim()
    await api.finish(claim, SENT._replace(evidence="duplicate"), "duplicate")
    await api.login()
    entries = await timeline(api)
    assert story(entries, "onboarding") == [
        *["event", "decision", "claim", "attempt", "claim", "attempt", "settled", "event"]
    ]
    assert story(entries, "followup") == ["event", "decision", "event", "cancel"]
    assert [entry["outcome"] for entry in entries if entry["what"] == "attempt"] == ["ambiguous", "duplicate"]
    [settled] = [entry for entry in entries if entry["what"] == "settled"]
    assert (settled["state"], settled["decided_by"]) == ("sent", "worker:worker-1")


async def test_the_timeline_names_operators_and_doubt(api: Api) -> None:
    notification = await api.bring_to("uncertain")
    assert "doubt" in story(await timeline(api), "onboarding")
    await api.act("resolve", notification, "1", {"outcome": "not_sent", "reason": "the log says so"})
    entries = await timeline(api)
    [act] = [entry for entry in entries if entry["what"] == "operator"]
    assert (act["act"], act["notification"]) == ("resolve", notification)
    assert act["detail"]["reason"] == "the log says so"
    assert act["detail"]["before"]["state"] == "uncertain"
    assert story(entries, "onboarding") == ["event", "decision", "claim", "attempt", "operator"]


async def test_an_operators_cancel_comes_after_the_act(api: Api) -> None:
    notification = (await api.signup())["followup"]
    await api.act("cancel", notification, "0")
    assert story(await timeline(api), "followup") == ["event", "decision", "operator", "cancel"]


async def test_moved_business_time_does_not_move_the_order(database_url: str) -> None:
    async with running_api(database_url, clock="virtual") as api:
        await api.signup()
        assert (await api.ask("POST", "/dev/clock", json={"advance_s": 86_400})).status == 200
        await api.login()
        entries = await timeline(api)
        assert story(entries, "followup") == ["event", "decision", "event", "cancel"]
        moved = [entry for entry in entries if entry["what"] == "event"][-1]
        ahead = datetime.fromisoformat(moved["business_at"]) - datetime.fromisoformat(moved["at"])
        assert timedelta(hours=23) < ahead < timedelta(hours=25)


async def test_odd_values_come_back_as_they_were_said(api: Api) -> None:
    """Huge numbers, many digits, other alphabets: of a user made a moment ago, and merged later."""
    odd = {
        "huge": [2**64, -(10**200)],
        "small": 1.5e-7,
        "digits": 0.1234567890123456,
        "name \u00fc": "\u2603 \U0001f600",
    }
    await api.event("user.signed_up", user={"name": "Zo\u00eb \u2603", "attributes": odd}, data=odd)
    told = await api.get("/v1/users/u_1", key="k-read")
    assert (told.body["name"], told.body["attributes"]) == ("Zo\u00eb \u2603", odd)
    await api.event("user.updated", user={"attributes": {**odd, "more": 2**80}})
    assert (await api.get("/v1/users/u_1", key="k-read")).body["attributes"] == {**odd, "more": 2**80}
