"""Operator acts: each guard, each race, and what stays true whoever comes second."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta

import pytest

from tests.support.api import FAILED, SENT, UNCERTAIN, Api, together
from tests.support.mock_server import until

WHY = {"reason": "asked by support"}


async def places(api: Api, notification: str) -> list[str]:
    found = await api.conn.fetchrow(
        """SELECT (SELECT count(*) FROM scheduled_sends WHERE id = $1) AS scheduled_sends,
                  (SELECT count(*) FROM deliveries WHERE id = $1) AS deliveries,
                  (SELECT count(*) FROM settlements WHERE id = $1) AS settlements""",
        notification,
    )
    return [place for place, count in dict(found).items() if count]


# ---------------------------------------------------------------------------------------------- cancel


@pytest.mark.parametrize(("kind", "state"), [("followup", "scheduled"), ("onboarding", "pending")])
async def test_cancel_ends_what_waits_or_is_owed(api: Api, kind: str, state: str) -> None:
    notification = (await api.signup())[kind]
    before = await api.read(notification)
    assert before.body["state"] == state
    told = await api.act("cancel", notification, before.etag, WHY)
    assert told.status == 200
    assert told.body["state"] == "canceled"
    assert told.body["reason"] == "operator"
    assert told.body["decided_by"].startswith("operator:key:")
    assert told.body["generation"] == before.body["generation"] + 1
    assert told.etag == f'"{told.body["generation"]}"'
    assert (await api.read(notification)).body == told.body
    assert await places(api, notification) == ["settlements"]
    assert await api.claim() == [] if kind == "onboarding" else True


async def test_an_act_is_audited_with_what_it_changed(api: Api) -> None:
    notification = (await api.signup())["onboarding"]
    await api.act("cancel", notification, "0", WHY)
    row = await api.conn.fetchrow("SELECT * FROM audit_log")
    assert (row["act"], row["target"], row["user_id"]) == ("cancel", notification, "u_1")
    detail = json.loads(row["detail"])
    assert detail["reason"] == WHY["reason"]
    assert (detail["before"]["state"], detail["after"]["state"]) == ("pending", "canceled")
    assert "k-operate" not in str(dict(row))


async def test_what_was_not_read_is_not_changed(api: Api) -> None:
    notification = (await api.signup())["onboarding"]
    refused = [(None, 428), ('"1"', 412), ("99", 412), ("*", 400), ('W/"0"', 400), ('"0", "1"', 400)]
    for act in ("cancel", "retry", "resolve"):
        for etag, status in refused:
            told = await api.act(act, notification, etag, {"outcome": "sent", **WHY} if act == "resolve" else None)
            assert (told.status, told.body["status"]) == (status, status), (act, etag, told)
    assert await api.state(notification) == "pending"
    assert await api.conn.fetchval("SELECT count(*) FROM audit_log") == 0


async def test_the_etag_counts_quoted_and_bare(api: Api) -> None:
    for number, etag in enumerate(('"0"', "0", ' "0" ')):
        notification = (await api.signup(f"u_{number}"))["onboarding"]
        assert (await api.act("cancel", notification, etag)).status == 200


async def test_cancel_refuses_every_other_state_and_names_it(api: Api) -> None:
    for state in ("sending", "sent", "failed", "uncertain"):
        notification = await api.bring_to(state, user_id=state)
        told = await api.act("cancel", notification, "1")
        assert (told.status, told.body["state"]) == (409, state)
        assert state in told.body["detail"]
        assert await api.state(notification) == state


async def test_cancel_never_touches_a_row_in_doubt(api: Api) -> None:
    notification = await api.bring_to("doubtful")
    before = await api.read(notification)
    assert before.body["state"] == "pending"
    told = await api.act("cancel", notification, before.etag)
    assert told.status == 409
    assert "in doubt" in told.body["detail"]
    assert (await api.read(notification)).body == before.body


async def test_of_two_operators_one_wins(api: Api) -> None:
    notification = (await api.signup())["followup"]
    told = await together(*(api.act("cancel", notification, "0") for _ in range(6)))
    assert sorted(answer.status for answer in told) == [200, 412, 412, 412, 412, 412]
    assert await api.conn.fetchval("SELECT count(*) FROM audit_log") == 1


async def test_cancel_against_claim_gives_the_row_to_one_of_them(api: Api) -> None:
    for number in range(8):
        notification = (await api.signup(f"u_{number}"))["onboarding"]
        told, claims = await together(api.act("cancel", notification, "0"), api.claim())
        if told.status == 200:
            assert claims == []
            assert await api.state(notification) == "canceled"
        else:
            assert told.status in (409, 412), told
            assert [str(claim.id) for claim in claims] == [notification]
            assert await api.finish(claims[0], SENT)


async def test_cancel_waits_for_a_release_in_flight_and_finds_the_row_where_it_went(api: Api) -> None:
    notification = (await api.signup(ago=timedelta(days=2, hours=23)))["followup"]
    transaction = api.conn.transaction()
    await transaction.start()
    await api.conn.execute(
        """WITH due AS (DELETE FROM scheduled_sends WHERE id = $1 RETURNING *)
           INSERT INTO deliveries (id, user_id, kind, next_attempt_at)
           SELECT id, user_id, kind, notifier.now() FROM due""",
        notification,
    )
    canceling = asyncio.create_task(api.act("cancel", notification, "0"))
    await lock_waiter(api)
    await transaction.commit()
    assert (await canceling).status == 200
    assert await places(api, notification) == ["settlements"]


async def lock_waiter(api: Api) -> None:
    """Wait until somebody waits for a lock."""
    async with api.runtime.database.connection() as conn:
        await until(lambda: conn.fetchval("SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)"))


# ---------------------------------------------------------------------------------------------- retry


@pytest.mark.parametrize("state", ["failed", "skipped"])
async def test_retry_owes_it_again_with_a_fresh_allowance_under_its_key(api: Api, state: str) -> None:
    notification = await api.bring_to(state)
    before = await api.read(notification)
    await api.event("user.updated", user={"email": "new@example.com"})
    told = await api.act("retry", notification, before.etag)
    assert told.status == 200, told
    assert told.body["state"] == "pending"
    assert (told.body["reason"], told.body["decided_by"]) == (None, None)
    assert told.body["generation"] == before.body["generation"] + 1
    assert told.body["attempt_count"] == 0
    assert told.body["provider_key"] == before.body["provider_key"]
    row = await api.conn.fetchrow("SELECT * FROM deliveries WHERE id = $1", notification)
    assert (row["recipient"], row["locale"], row["template_hash"], row["waits"]) == (None, None, None, 0)
    [claim] = await api.claim()
    assert claim.recipient == "new@example.com"
    assert claim.generation == told.body["generation"] + 1


async def test_an_operators_cancel_before_its_date_is_scheduled_again(api: Api) -> None:
    notification = (await api.signup())["followup"]
    due_at = (await api.read(notification)).body["due_at"]
    await api.act("cancel", notification, "0")
    told = await api.act("retry", notification, "1")
    assert (told.status, told.body["state"], told.body["generation"]) == (200, "scheduled", 2)
    assert told.body["due_at"] == due_at
    assert await places(api, notification) == ["scheduled_sends"]
    assert [item["id"] for item in (await api.login())["canceled"]] == [notification]


async def test_generations_go_on_where_they_were(api: Api) -> None:
    notification = (await api.signup())["followup"]
    for generation in range(0, 6, 2):
        assert (await api.act("cancel", notification, str(generation))).status == 200
        assert (await api.act("retry", notification, str(generation + 1))).status == 200
    assert (await api.read(notification)).etag == '"6"'


async def test_a_login_in_between_stands_against_a_retry(api: Api) -> None:
    notification = (await api.signup())["followup"]
    await api.act("cancel", notification, "0")
    assert (await api.login())["canceled"] == []
    told = await api.act("retry", notification, "1")
    assert (told.status, told.body["reason"]) == (409, "login")
    assert await api.state(notification) == "canceled"


async def test_what_an_event_canceled_stays_so(api: Api) -> None:
    notification = (await api.signup())["followup"]
    await api.login()
    before = await api.read(notification)
    told = await api.act("retry", notification, before.etag)
    assert (told.status, told.body["reason"], told.body["state"]) == (409, "login", "canceled")


async def test_a_suppressed_address_stands_against_a_retry(api: Api) -> None:
    notification = await api.bring_to("failed", email="Ada@example.com")
    await api.conn.execute("INSERT INTO suppressions (address, reason) VALUES ('ada@example.com', 'bounce')")
    told = await api.act("retry", notification, "1")
    assert (told.status, told.body["reason"]) == (409, "suppressed")
    await api.event("user.updated", user={"email": "other@example.com"})
    assert (await api.act("retry", notification, "1")).status == 200


async def test_retry_without_an_address_is_refused_until_there_is_one(api: Api) -> None:
    notification = (await api.signup(email=None))["onboarding"]
    before = await api.read(notification)
    assert (before.body["state"], before.body["reason"]) == ("skipped", "no_recipient")
    told = await api.act("retry", notification, before.etag)
    assert (told.status, told.body["reason"]) == (409, "no_recipient")
    await api.event("user.updated", user={"email": "ada@example.com"})
    assert (await api.act("retry", notification, before.etag)).body["state"] == "pending"


async def test_retry_refuses_every_other_state(api: Api) -> None:
    for state in ("sending", "sent", "uncertain", "pending"):
        notification = await api.bring_to(state, user_id=state)
        told = await api.act("retry", notification, (await api.read(notification)).etag)
        assert (told.status, told.body["state"]) == (409, state)


async def test_retry_and_login_at_once_never_leave_an_owed_mail(api: Api) -> None:
    for number in range(6):
        user = f"u_{number}"
        notification = (await api.signup(user))["followup"]
        await api.act("cancel", notification, "0")
        retried, told = await together(api.act("retry", notification, "1"), api.login(user))
        assert await api.state(notification) == "canceled"
        stopped = [item["id"] for item in told["canceled"]]
        assert (retried.status, stopped) in [(200, [notification]), (409, [])]


async def test_a_settle_from_before_the_retry_changes_nothing(api: Api) -> None:
    notification = (await api.signup())["onboarding"]
    [claim] = await api.claim()
    assert await api.finish(claim, FAILED, "rejected")
    await api.act("retry", notification, "1")
    assert not await api.finish(claim, SENT)
    assert await api.state(notification) == "pending"


# ---------------------------------------------------------------------------------------------- resolve


async def test_resolved_as_sent_it_is_sent_on_an_operators_word(api: Api) -> None:
    notification = await api.bring_to("uncertain")
    before = await api.read(notification)
    assert before.body["doubt_since"] is not None
    told = await api.act("resolve", notification, before.etag, {"outcome": "sent", **WHY})
    assert told.status == 200, told
    assert (told.body["state"], told.body["evidence"]) == ("sent", "operator")
    assert told.body["decided_by"].startswith("operator:")
    assert (told.body["doubt_since"], told.body["reason"]) == (None, None)
    assert told.body["sent_at"] is not None
    assert told.body["generation"] == 2


async def test_resolved_as_not_sent_it_goes_out_under_a_new_key(api: Api) -> None:
    notification = await api.bring_to("uncertain")
    before = await api.read(notification)
    told = await api.act("resolve", notification, before.etag, {"outcome": "not_sent", **WHY})
    assert told.status == 200, told
    assert (told.body["state"], told.body["resend_number"]) == ("pending", 1)
    assert told.body["provider_key"] != before.body["provider_key"]
    assert told.body["doubt_since"] is None
    [claim] = await api.claim()
    assert (claim.resend_number, claim.generation, claim.in_doubt) == (1, 3, False)


async def test_not_sent_ends_canceled_when_a_login_stands(api: Api) -> None:
    notification = (await api.signup(ago=timedelta(days=4)))["followup"]
    for claim in await api.claim():
        assert await api.finish(claim, UNCERTAIN, "ambiguous")
    assert [item["id"] for item in (await api.login())["too_late"]] == [notification]
    told = await api.act("resolve", notification, "1", {"outcome": "not_sent", **WHY})
    assert (told.status, told.body["state"], told.body["reason"]) == (200, "canceled", "login")
    assert told.body["decided_by"].startswith("event:api/")
    assert told.body["doubt_since"] is None
    assert (await api.act("retry", notification, told.etag)).status == 409


async def test_not_sent_ends_skipped_when_the_address_is_suppressed(api: Api) -> None:
    notification = await api.bring_to("uncertain")
    await api.conn.execute("INSERT INTO suppressions (address, reason) VALUES ('ada@example.com', 'complaint')")
    told = await api.act("resolve", notification, "1", {"outcome": "not_sent", **WHY})
    assert (told.status, told.body["state"], told.body["reason"]) == (200, "skipped", "suppressed")
    assert told.body["decided_by"] == "rule:suppressed"


async def test_only_the_uncertain_is_resolved(api: Api) -> None:
    for state in ("sending", "sent", "failed", "skipped", "pending"):
        notification = await api.bring_to(state, user_id=state)
        etag = (await api.read(notification)).etag
        told = await api.act("resolve", notification, etag, {"outcome": "not_sent", **WHY})
        assert (told.status, told.body["state"]) == (409, state)


async def test_a_resolve_says_what_and_why(api: Api) -> None:
    notification = await api.bring_to("uncertain")
    for body, pointer in [
        ({"outcome": "sent"}, "/reason"),
        ({"outcome": "maybe", **WHY}, "/outcome"),
        ({**WHY}, "/outcome"),
        ({"outcome": "sent", "reason": "a\nb"}, "/reason"),
        ({"outcome": "sent", "reason": ""}, "/reason"),
        ({"outcome": "sent", **WHY, "more": 1}, "/more"),
        (None, "/outcome"),
    ]:
        told = await api.act("resolve", notification, "1", body)
        assert told.status == 422
        assert told.body["errors"][0]["pointer"] == pointer


async def test_evidence_and_resolve_at_once_end_in_one_of_the_two(api: Api) -> None:
    """The worker that knows better does not take the user's lock."""
    notification = await api.bring_to("uncertain")
    late = api.conn.execute(
        """UPDATE settlements SET state = 'sent', reason = NULL, evidence = 'late_settle', doubt_since = NULL
            WHERE id = $1 AND state = 'uncertain' AND resend_number = 0""",
        notification,
    )
    resolve = api.act("resolve", notification, "1", {"outcome": "not_sent", **WHY})
    told, found = await together(resolve, late)
    if found == "UPDATE 1":
        assert (told.status, told.body["state"]) == (409, "sent")
    else:
        assert (told.status, told.body["state"]) == (200, "pending")


# ---------------------------------------------------------------------------------------------- doors


async def test_acts_need_the_scope_and_something_to_act_on(api: Api) -> None:
    unknown = "01890000-0000-7000-8000-000000000000"
    headers = {"If-Match": "0"}
    for act in ("cancel", "retry", "resolve"):
        body = {"outcome": "sent", **WHY} if act == "resolve" else WHY
        for key, status in [(None, 401), ("k-read", 403), ("k-events", 403), ("k-operate", 404)]:
            told = await api.ask("POST", f"/v1/notifications/{unknown}/{act}", key=key, headers=headers, json=body)
            assert told.status == status
        assert (await api.act(act, "no-id", "0", body)).status == 404
        assert (await api.get(f"/v1/notifications/{unknown}/{act}")).status == 405


async def test_a_lock_that_is_not_let_go_of_is_busy_not_broken(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("notifier.store.repeat.BUDGET_S", 0.3)
    monkeypatch.setattr("notifier.store.repeat.LOCK_TIMEOUT_S", 0.05)
    notification = (await api.signup())["followup"]
    async with api.conn.transaction():
        await api.conn.execute("SELECT FROM users WHERE user_id = 'u_1' FOR NO KEY UPDATE")
        told = await api.act("cancel", notification, "0")
    assert told.status == 503
    assert told.headers["Retry-After"] == "1"
    assert await api.state(notification) == "scheduled"
