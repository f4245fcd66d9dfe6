"""Erasing a user: nothing personal stays, nothing open is sent, and no replay mails."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from notifier.domain.notification import Settlement, State
from notifier.store import deliveries
from tests.support.api import SENT, Api

AGAIN = Settlement(State.PENDING, "http_503", True, wait=timedelta(hours=1))
LATER = Settlement(State.PENDING, "rate_limited", False, wait=timedelta(hours=1), counted=False)


async def erase(
    api: Api, user: str = "u_1", key: str = "k-operate", status: int = 200
) -> dict[str, list[dict[str, str]]]:
    answer = await api.ask("DELETE", f"/v1/users/{user}", key=key)
    assert answer.status == status, answer
    return answer.body


async def everything(api: Api) -> str:
    """All rows of all tables, as one text."""
    tables = await api.conn.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
    found = [await api.conn.fetch(f"SELECT * FROM {row['tablename']}") for row in tables]
    return json.dumps([[dict(row) for row in rows] for rows in found], default=str)


async def test_nothing_personal_stays_and_the_guards_do(api: Api) -> None:
    await api.event(
        "user.signed_up",
        user={"email": "ada@example.com", "name": "Ada L.", "attributes": {"plan": "gold"}},
        data={"city": "London"},
    )
    before = await everything(api)
    personal = ("ada@example.com", "Ada L.", "gold", "London")
    assert [word for word in personal if word not in before] == []
    told = await erase(api)
    assert sorted(row["kind"] for row in told["canceled"]) == ["followup", "onboarding"]
    assert (told["too_late"], told["untouched"]) == ([], [])
    after = await everything(api)
    assert not any(word in after for word in personal)
    rows = await api.conn.fetch("SELECT kind, state, reason FROM notifications")
    assert {(row["state"], row["reason"]) for row in rows} == {("canceled", "erased")}
    assert len(rows) == 2


async def test_a_later_event_is_taken_and_means_nothing(api: Api) -> None:
    await api.event("cart.filled", user={"email": "ada@example.com"})
    await erase(api)
    told = await api.event("user.signed_up", user={"email": "ada@example.com", "name": "Ada"})
    assert told["notifications"] == []
    assert "ada@example.com" not in await everything(api)
    assert await api.conn.fetchval("SELECT count(*) FROM outbox") == 0
    assert await api.conn.fetchval("SELECT count(*) FROM last_seen") == 0


async def test_what_is_sent_stays_sent(api: Api) -> None:
    sent = await api.bring_to("sent")
    told = await erase(api)
    assert [(row["id"], row["state"]) for row in told["too_late"]] == [(sent, "sent")]
    assert [row["kind"] for row in told["canceled"]] == ["followup"]


@pytest.mark.parametrize(
    ("settlement", "state"),
    [(SENT, "sent"), (AGAIN, "uncertain"), (LATER, "canceled")],
    ids=["sent", "doubt", "refused"],
)
async def test_a_claimed_row_ends_by_what_became_of_its_call(api: Api, settlement: Settlement, state: str) -> None:
    notification = await api.signup()
    [claim] = await api.claim()
    told = await erase(api)
    assert [(row["kind"], row["state"]) for row in told["too_late"]] == [("onboarding", "sending")]
    assert await api.conn.fetchval("SELECT recipient FROM deliveries") == "ada@example.com"
    outcome = {"sent": "accepted", "uncertain": "ambiguous", "canceled": "retry_later"}[state]
    assert await api.finish(claim, settlement, outcome)
    assert "ada@example.com" not in await everything(api), "no address outlives the claim that held it"
    if state == "sent":
        assert await api.state(notification["onboarding"]) == "sent"
    else:  # however long the provider asked to wait: it is due at once, and the next claim ends it
        [again] = await api.claim()
        assert (again.erased, again.in_doubt, again.recipient) == (True, state == "uncertain", None)


async def test_an_erased_row_is_never_taken_up_again(api: Api) -> None:
    failed = await api.bring_to("failed")
    await erase(api)
    etag = (await api.read(failed)).etag
    answer = await api.act("retry", failed, etag, {"reason": "a test"})
    assert (answer.status, answer.body["reason"]) == (409, "erased")
    uncertain = await api.bring_to("uncertain", "u_2", email="bob@example.com")
    await erase(api, "u_2")
    etag = (await api.read(uncertain)).etag
    answer = await api.act("resolve", uncertain, etag, {"outcome": "not_sent", "reason": "a test"})
    assert (answer.status, answer.body["state"], answer.body["reason"]) == (200, "canceled", "erased")


async def test_erasing_twice_is_harmless_and_only_operators_may(api: Api) -> None:
    await erase(api, status=404)
    await api.signup()
    await erase(api, key="k-events", status=403)
    await erase(api)
    told = await erase(api)
    assert told["canceled"] == []
    assert len(told["untouched"]) == 2
    assert (await api.get("/v1/users/u_1")).body["erased_at"] is not None
    acts = (await api.get("/v1/audit")).body["audit"]
    assert [act["act"] for act in acts] == ["erase", "erase"]


async def test_the_mark_is_read_in_the_claim(api: Api) -> None:
    """A claim that slips in before the erasure keeps its address; one after it finds the mark."""
    await api.signup()
    [claim] = await api.claim()
    assert claim.erased is False
    await erase(api)
    async with api.runtime.database.connection() as conn:
        await conn.execute("UPDATE deliveries SET claim_expires_at = now() - interval '1 s'")
        [again] = await deliveries.take_over(conn, api.claimant, list(api.claimant.templates), [claim.id])
    assert again.erased is True
