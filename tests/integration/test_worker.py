"""A worker in this process, on a real database and against the real mock.

What ends a row without a call, what a call leads to, and what a stop or an outage in between leaves behind.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from redis.asyncio import Redis

from notifier import embedded, failpoints, observe
from notifier.clock import boot_clock
from notifier.coordination.client import RedisClient
from notifier.coordination.lease import Leases
from notifier.domain.notification import Settlement, State
from notifier.journeys import load_templates
from notifier.runtime import background
from notifier.store import deliveries, restores
from notifier.store.database import Database
from notifier.store.deliveries import Claim
from notifier.store.results import Result
from notifier.worker.breaker import Breaker
from notifier.worker.deliver import Deliverer, Held
from notifier.worker.settling import Settler
from tests.support.bench import Bench, a_bench, told
from tests.support.mock_server import MAIL
from tests.support.rig import SENT, a_call, ago
from tests.support.servers import on_server
from tests.support.stack import until

SIGNUP, LOGIN = "user.signed_up", "user.logged_in"
UNCERTAIN = Settlement(State.UNCERTAIN, "window_passed", doubt=True)


@pytest.fixture
async def bench(database_url: str, tmp_path: Path) -> AsyncIterator[Bench]:
    async with a_bench(database_url, tmp_path) as opened:
        yield opened


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    yield
    failpoints.arm("")


# ---------------------------------------------------------------------------------------------- nothing goes wrong


async def test_what_is_owed_is_sent_once_with_its_record(bench: Bench) -> None:
    await bench.rig.accept(SIGNUP, "ada", name="Ada <b>")
    [row] = await bench.work_off()
    assert told(row) == ("sent", None, 1)
    assert (row["evidence"], row["attempts"]) == ("accepted", 1)
    assert (row["decided_by"], row["claimed_by"]) == ("worker", bench.runtime.process_id)
    shown = await bench.rig.value("SELECT decided_by FROM notifications WHERE state = 'sent'")
    assert shown == f"worker:{bench.runtime.process_id}"
    [mail] = await bench.mock.inbox()
    assert mail["id"] == row["provider_message_id"]
    assert await bench.mock.verdicts(bench.key("ada")) == ["accepted"]
    [attempt] = await bench.rig.rows("SELECT *, finished_at - started_at AS took FROM calls")
    assert (attempt["outcome"], attempt["generation"], attempt["user_id"]) == ("accepted", 1, "ada")
    assert timedelta(0) < attempt["took"] < timedelta(seconds=1)


async def test_a_dead_workers_row_is_asked_about_under_the_same_key(bench: Bench) -> None:
    await bench.rig.accept(SIGNUP, "ada")
    [claim] = await bench.claim()
    held = Held(claim, boot_clock() + 3, probe=False)
    lost = await Deliverer(bench.runtime, bench.provider, Breaker()).deliver(held)  # sent, and died before its settle
    assert lost.settlement.state is State.SENT
    [row] = await bench.work_off()
    assert told(row) == ("sent", None, 2)
    assert row["evidence"] == "duplicate"
    assert len(await bench.mock.inbox()) == 1


async def test_what_came_in_behind_the_place_is_found_within_a_second(database_url: str, tmp_path: Path) -> None:
    """No interval and no nudge helps here: where claims went on behind others, a look at everything follows."""
    async with a_bench(database_url, tmp_path, worker_concurrency=1, poll_s=25, claim_ttl_s=30) as bench:
        await bench.mock.faults(latency_ms=[300, 300])
        for user in ("u1", "u2", "u3"):
            await bench.rig.accept(SIGNUP, user)
        async with bench.working():
            await bench.until_claimed(1)
            await bench.rig.rows(
                "UPDATE deliveries SET next_attempt_at = next_attempt_at - interval '1 hour' WHERE user_id = 'u3'"
            )
            rows = await bench.ended(3)
    assert {told(row) for row in rows} == {("sent", None, 1)}


async def pause_on_an_old_one(bench: Bench) -> None:
    """A mail that has been owed for an hour, and a switch that holds everything."""
    await bench.rig.accept(SIGNUP, "ada")
    await bench.rig.rows("UPDATE deliveries SET next_attempt_at = next_attempt_at - interval '1 hour'")
    await bench.rig.rows(
        "INSERT INTO switches VALUES ('pause', 'o', 'r', notifier.now(), notifier.now() + interval '1 day')"
    )


async def test_what_a_switch_held_is_found_within_a_second_of_its_end(database_url: str, tmp_path: Path) -> None:
    """It stands before the place of the claim that is asked for, and the interval is far away."""
    async with a_bench(database_url, tmp_path, poll_s=25, claim_ttl_s=30) as bench:
        await pause_on_an_old_one(bench)
        async with bench.working() as worker:
            await until(lambda: worker._looked_at > 0, "it has looked")
            await bench.rig.rows("DELETE FROM switches")
            worker._wake.set()
            [row] = await bench.ended(deadline_s=5)
    assert told(row) == ("sent", None, 1)


async def test_so_it_is_where_the_look_met_no_free_slot(database_url: str, tmp_path: Path) -> None:
    """A claim that took all it found, and more calls than there are slots; what stands before comes after them."""
    settings = {"poll_s": 25, "claim_ttl_s": 30, "worker_concurrency": 1, "batch_max": 10}
    async with a_bench(database_url, tmp_path, **settings) as bench:
        await bench.mock.faults(latency_ms=[800, 800])
        await pause_on_an_old_one(bench)
        async with bench.working() as worker:
            await until(lambda: worker._looked_at > 0, "it has looked")
            for user in ("u1", "u2"):
                await bench.rig.accept(SIGNUP, user)
            await bench.rig.rows("UPDATE deliveries SET alone = true")
            await bench.rig.rows("DELETE FROM switches")
            worker._wake.set()
            rows = await bench.ended(3, deadline_s=12)
    assert {told(row) for row in rows} == {("sent", None, 1)}


async def test_a_look_that_becomes_due_during_a_claim_is_not_left_out(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim, claimed = deliveries.claim, asyncio.Event()

    async def slow(*arguments: Any) -> Any:
        found = await claim(*arguments)
        claimed.set()
        await asyncio.sleep(1.2)
        return found

    async with a_bench(database_url, tmp_path, poll_s=25, claim_ttl_s=30) as bench:
        await pause_on_an_old_one(bench)
        monkeypatch.setattr(deliveries, "claim", slow)
        async with bench.working():
            await asyncio.wait_for(claimed.wait(), 10)
            await bench.rig.rows("DELETE FROM switches")
            [row] = await bench.ended(deadline_s=8)
    assert told(row) == ("sent", None, 1)


@pytest.mark.parametrize("statement", ["look", "claim"])
async def test_one_that_failed_is_tried_again_within_a_second(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    real, tries = getattr(deliveries, statement), 0

    async def failing_once(*arguments: Any) -> Any:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise asyncpg.LockNotAvailableError("for once")
        return await real(*arguments)

    async with a_bench(database_url, tmp_path, poll_s=25, claim_ttl_s=30) as bench:
        await bench.rig.accept(SIGNUP, "ada")
        monkeypatch.setattr(deliveries, statement, failing_once)
        async with bench.working():
            [row] = await bench.ended(deadline_s=12)
    assert (told(row), tries > 1) == (("sent", None, 1), True)


async def test_so_is_one_that_got_no_connection(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, failed = Database.connection, asyncio.Event()

    @asynccontextmanager
    async def refused_once(database: Database) -> AsyncIterator[Any]:
        if database is bench.runtime.database and not failed.is_set():
            failed.set()
            raise ConnectionRefusedError
        async with real(database) as conn:
            yield conn

    async with a_bench(database_url, tmp_path, poll_s=25, claim_ttl_s=30) as bench, bench.working() as worker:
        await until(lambda: worker._looked_at > 0 and worker._rest_s() > 2, "it has looked, and found nothing")
        await until(lambda: worker._is_look_old, "the look is old")
        await bench.rig.accept(SIGNUP, "ada")
        monkeypatch.setattr(Database, "connection", refused_once)
        worker._wake.set()
        await asyncio.wait_for(failed.wait(), 5)
        [row] = await bench.ended(deadline_s=8)
    assert told(row) == ("sent", None, 1)


async def test_claims_begin_where_the_look_said(bench: Bench) -> None:
    """A second before a look that found nothing, and not at the very beginning."""
    async with bench.working() as worker:
        await until(lambda: worker._looked_at > 0, "it has looked")
        await until(lambda: worker._resume.places(["onboarding"]) != [deliveries.BEFORE_ALL], "it knows where")
        [place] = worker._resume.places(["onboarding"])
        assert timedelta(0) < await bench.rig.value("SELECT notifier.now()") - place.due_at < timedelta(seconds=20)


async def test_a_delivery_that_breaks_gives_its_slot_back(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = Deliverer.deliver, 0

    async def breaking_twice(deliverer: Deliverer, held: Held) -> Result:
        nonlocal calls
        calls += 1
        if calls <= 2:
            raise RuntimeError("of no provider's making")
        return await real(deliverer, held)

    monkeypatch.setattr(Deliverer, "deliver", breaking_twice)
    async with a_bench(database_url, tmp_path, worker_concurrency=2, claim_ttl_s=30) as bench:
        for user in ("u1", "u2", "u3", "u4"):
            await bench.rig.accept(SIGNUP, user)
        async with bench.working():
            rows = await bench.ended(2, deadline_s=10)
    assert {told(row) for row in rows} == {("sent", None, 1)}


# ---------------------------------------------------------------------------------------------- no call at all


def a_templates_folder(folder: Path, **texts: str) -> Path:
    """The shipped templates, with other texts for the bodies of some kinds."""
    shipped = Path("notifier/journeys/templates")
    shutil.copytree(shipped, folder)
    for kind, text in texts.items():
        (folder / kind / "body.txt").write_text(text)
    return folder


async def test_a_broken_template_fails_its_own_rows_and_no_others(database_url: str, tmp_path: Path) -> None:
    templates = a_templates_folder(tmp_path / "t", onboarding="Your plan: {{ user.attributes.plan }}")
    async with a_bench(database_url, tmp_path, templates_dir=templates) as bench:
        await bench.rig.accept(SIGNUP, "ada", ago(days=4), attributes={"plan": "pro"})
        await bench.rig.accept(SIGNUP, "bob", ago(days=4))
        rows = {(row["user_id"], row["kind"]): row for row in await bench.work_off(4)}
        assert told(rows["bob", "onboarding"]) == ("failed", "template_error", 1)
        assert rows["bob", "onboarding"]["decided_by"] == "rule:template_error"
        assert {key for key, row in rows.items() if row["state"] == "sent"} == {
            ("ada", "onboarding"),
            ("ada", "followup"),
            ("bob", "followup"),
        }
        assert await bench.mock.verdicts(bench.key("bob")) == []
        assert await bench.rig.value("SELECT count(*) FROM calls") == 3


@pytest.mark.parametrize("why", ["broken", "unknown"])
async def test_a_template_that_cannot_be_rendered_leaves_a_doubt_uncertain(
    database_url: str, tmp_path: Path, why: str
) -> None:
    templates = a_templates_folder(tmp_path / "t", onboarding="{{ nobody }}")
    async with a_bench(database_url, tmp_path, templates_dir=templates) as bench:
        await bench.rig.accept(SIGNUP, "ada")
        await bench.claim()
        if why == "unknown":
            await bench.rig.rows("UPDATE deliveries SET template_hash = 'gone' RETURNING id")
        [row] = await bench.work_off()
        assert told(row) == ("uncertain", "template_error", 2)
        assert row["doubt_since"] is not None
        assert await bench.calls() == []


async def test_a_mail_is_rendered_from_the_template_it_was_frozen_to(database_url: str, tmp_path: Path) -> None:
    async with a_bench(database_url, tmp_path) as bench:
        await bench.rig.accept(SIGNUP, "ada")
        [claim] = await bench.claim()
    templates = a_templates_folder(tmp_path / "t", onboarding="A newer text")
    async with a_bench(database_url, tmp_path / "b", templates_dir=templates) as bench:
        assert load_templates(bench.runtime.settings, bench.runtime.journeys)["onboarding"].hash != claim.template_hash
        await bench.rig.rows("UPDATE deliveries SET provider = $1 RETURNING id", bench.provider.traits.account)
        [row] = await bench.work_off()
        assert told(row) == ("sent", None, 2)
        [mail] = await bench.mock.inbox()
        text = await (await bench.mock.http.get(f"{bench.mock.url}/api/messages/{mail['id']}/text")).text()
        assert "newer" not in text


async def test_a_window_that_has_passed_ends_a_doubt_without_a_call(database_url: str, tmp_path: Path) -> None:
    async with a_bench(database_url, tmp_path, mock_window_s=60) as bench:
        await bench.rig.accept(SIGNUP, "old")
        await bench.claim()
        await bench.rig.rows("UPDATE deliveries SET claimed_at = now() - interval '58 s' RETURNING id")
        await bench.rig.accept(SIGNUP, "young")
        await bench.claim()
        old, young = sorted(await bench.work_off(2), key=lambda row: row["user_id"])
        assert told(old) == ("uncertain", "window_passed", 2), "two seconds are less than a claim may last"
        assert told(young) == ("sent", None, 2)
        assert await bench.mock.verdicts(bench.key("old")) == []


async def test_a_doubt_is_not_asked_away_at_another_account(bench: Bench) -> None:
    await bench.rig.accept(SIGNUP, "ada")
    await bench.claim(account="mock:another")
    [row] = await bench.work_off()
    assert told(row) == ("uncertain", "provider_changed", 2)
    assert row["provider"] == "mock:another"
    assert await bench.calls() == []


@pytest.mark.parametrize(
    ("settings", "elsewhere", "ended"),
    [
        ({}, False, ("sent", None, 1)),
        ({"mock_window_s": 60}, False, ("uncertain", "restored", 1)),
        ({"mock_family": "none"}, False, ("uncertain", "restored", 1)),
        ({}, True, ("uncertain", "restored", 1)),
    ],
)
async def test_what_a_restore_put_in_doubt_is_repeated_or_left_to_a_person(
    database_url: str, tmp_path: Path, settings: dict[str, Any], elsewhere: bool, ended: tuple[Any, ...]
) -> None:
    async with a_bench(database_url, tmp_path, **settings) as bench:
        await bench.rig.accept(SIGNUP, "ada", ago(minutes=5))
        account = "mock:another" if elsewhere else bench.provider.traits.account
        async with bench.runtime.database.connection() as conn:
            assert await restores.doubt_open(conn, ago(minutes=2), account) == 1
        [row] = await bench.work_off()
        assert told(row) == ended
        assert len(await bench.calls()) == (ended[0] == "sent")


async def test_a_login_stops_what_only_a_restore_put_in_doubt(bench: Bench) -> None:
    await bench.rig.accept(SIGNUP, "ada", ago(days=4))
    async with bench.runtime.database.connection() as conn:
        await restores.doubt_open(conn, ago(minutes=2), bench.provider.traits.account)
    answer = await bench.rig.accept(LOGIN, "ada")
    assert [row["kind"] for row in answer["too_late"]] == ["followup"]
    followup, onboarding = await bench.work_off(2)
    assert told(followup) == ("uncertain", "login", 1)
    assert told(onboarding) == ("sent", None, 1)
    assert len(await bench.mock.inbox()) == 1


async def test_without_doubt_another_account_may_send_it(bench: Bench) -> None:
    await bench.rig.accept(SIGNUP, "ada")
    await bench.claim(account="mock:another")
    await bench.rig.rows("UPDATE deliveries SET calling = false RETURNING id")
    [row] = await bench.work_off()
    assert told(row) == ("sent", None, 2)
    assert row["provider"] == bench.provider.traits.account


@pytest.mark.parametrize("doubt", [False, True])
async def test_who_is_not_on_the_list_gets_nothing(database_url: str, tmp_path: Path, doubt: bool) -> None:
    async with a_bench(database_url, tmp_path, only_to="*@Team.example, ADA+*@example.com") as bench:
        for user, email in [
            ("a", "Eve@team.example"),
            ("b", "ada+test@example.com"),
            ("c", "ada@example.com"),
            ("d", "eve@team.example.com"),
        ]:
            await bench.rig.accept(SIGNUP, user, email=email)
        if doubt:
            await bench.claim()
        rows = await bench.work_off(4)
        stopped = ("uncertain" if doubt else "skipped", "not_allowed")
        assert [told(row)[:2] for row in rows] == [("sent", None), ("sent", None), stopped, stopped]
        assert len(await bench.calls()) == 2


@pytest.mark.parametrize("doubt", [False, True])
async def test_a_suppressed_address_gets_nothing(bench: Bench, doubt: bool) -> None:
    await bench.rig.accept(SIGNUP, "ada", email="Ada@example.com")
    if doubt:
        await bench.claim()
    await bench.rig.rows("INSERT INTO suppressions (address, reason) VALUES ('ada@example.com', 'complaint')")
    [row] = await bench.work_off()
    assert told(row)[:2] == ("uncertain" if doubt else "skipped", "suppressed")
    assert row["decided_by"] == "rule:suppressed"
    assert await bench.calls() == []


@pytest.mark.parametrize("doubt", [False, True])
async def test_whose_address_is_gone_gets_nothing(bench: Bench, doubt: bool) -> None:
    await bench.rig.accept(SIGNUP, "ada")
    await bench.rig.rows("UPDATE users SET email = NULL, email_at = NULL RETURNING user_id")
    if doubt:
        await bench.claim()
    [row] = await bench.work_off()
    assert told(row)[:2] == ("uncertain" if doubt else "skipped", "no_recipient")
    assert await bench.calls() == []


@pytest.mark.parametrize(
    ("family", "ends"), [("reject", "uncertain"), ("none", "failed")], ids=["in-doubt", "not-in-doubt"]
)
async def test_a_mail_that_kills_its_workers_does_not_do_so_for_ever(
    database_url: str, tmp_path: Path, family: str, ends: str
) -> None:
    """Without keys a claim that never came to its call leaves no doubt."""
    async with a_bench(database_url, tmp_path, attempts_max=1, mock_family=family) as bench:
        await bench.rig.accept(SIGNUP, "ada")
        await bench.claim()
        [row] = await bench.work_off()
        assert told(row) == (ends, "attempts_exhausted", 2)
        assert await bench.calls() == []


# ---------------------------------------------------------------------------------------------- what a call leads to


async def test_attempts_without_an_answer_are_used_up(database_url: str, tmp_path: Path) -> None:
    async with a_bench(database_url, tmp_path, attempts_max=3) as bench:
        await bench.mock.faults(fail_rate=1, fail_status=500)
        await bench.rig.accept(SIGNUP, "ada")
        [row] = await bench.work_off()
        assert told(row) == ("uncertain", "attempts_exhausted", 3)
        assert row["attempts"] == 3
        assert len(await bench.calls()) == 3
        assert {a["reason"] for a in await bench.rig.rows("SELECT reason FROM calls")} == {"http_500"}


async def test_the_first_doubt_is_the_last_call_when_the_window_is_too_short(database_url: str, tmp_path: Path) -> None:
    async with a_bench(database_url, tmp_path, mock_window_s=2) as bench:
        await bench.mock.faults(drop_response_rate=1)
        await bench.rig.accept(SIGNUP, "ada")
        [row] = await bench.work_off()
        assert told(row) == ("uncertain", "disconnected", 1)
        assert row["doubt_since"] == row["claimed_at"]
        assert len(await bench.mock.inbox()) == 1


@pytest.mark.parametrize(("doubt", "ends"), [(False, "failed"), (True, "uncertain")])
async def test_refusals_go_on_for_so_long_and_use_no_attempt_up(
    database_url: str, tmp_path: Path, doubt: bool, ends: str
) -> None:
    async with a_bench(database_url, tmp_path, give_up_after_s=2, attempts_max=2) as bench:
        await bench.mock.faults(fail_rate=1, fail_status=429)
        await bench.rig.accept(SIGNUP, "ada")
        if doubt:
            await bench.claim()
        [row] = await bench.work_off()
        assert told(row)[:2] == (ends, "gave_up_waiting")
        assert row["generation"] > 2 + doubt, "more tries than attempts"
        calls = await bench.rig.rows("SELECT DISTINCT outcome, reason FROM calls")
        assert calls == [{"outcome": "retry_later", "reason": "rate_limit_exceeded"}]


@pytest.mark.parametrize(("doubt", "ends"), [(False, "failed"), (True, "uncertain")])
async def test_a_refusal_for_good(bench: Bench, doubt: bool, ends: str) -> None:
    await bench.mock.faults(reject_to=["ada@*"])
    await bench.rig.accept(SIGNUP, "ada")
    await bench.rig.accept(SIGNUP, "bob")
    if doubt:
        await bench.claim()
    ada, bob = await bench.work_off(2)
    assert told(ada) == (ends, "validation_error", 2 if doubt else 1)
    assert bob["state"] == "sent"


async def test_a_key_used_with_other_bytes_is_uncertain(bench: Bench) -> None:
    await bench.provider.send(MAIL, bench.key("ada"), {})
    await bench.rig.accept(SIGNUP, "ada")
    [row] = await bench.work_off()
    assert told(row) == ("uncertain", "body_mismatch", 1)
    [attempt] = await bench.rig.rows("SELECT outcome, reason FROM calls")
    assert attempt == {"outcome": "body_mismatch", "reason": "invalid_idempotent_request"}


async def test_a_provider_that_is_back_gets_what_it_was_owed(database_url: str, tmp_path: Path) -> None:
    async with a_bench(database_url, tmp_path, attempts_max=1_000) as bench:
        await bench.mock.faults(reset_rate=1)
        await bench.rig.accept(SIGNUP, "ada")
        async with bench.working():

            async def tried() -> bool:
                return await bench.rig.value("SELECT count(*) FROM calls") >= 2

            await until(tried, "it was tried in vain")
            assert await bench.mock.delete("/api/faults") == 200
            [row] = await bench.ended()
        assert row["state"] == "sent"
        assert len(await bench.mock.inbox()) == 1


# ---------------------------------------------------------------------------------------------- the breaker


async def test_a_wrong_key_opens_the_breaker_and_ends_no_row(database_url: str, tmp_path: Path) -> None:
    async with a_bench(database_url, tmp_path, attempts_max=1, worker_concurrency=3) as bench:
        await bench.mock.faults(fail_rate=1, fail_status=401)
        for number in range(12):
            await bench.rig.accept(SIGNUP, f"u{number}")
        async with bench.working() as worker:
            await until(lambda: worker.breaker.is_open, "the breaker opens", deadline_s=5)

            async def asked_again() -> bool:
                return await bench.rig.value("SELECT count(*) FROM calls") >= 4

            await until(asked_again, "one row asks whether it is mended", deadline_s=10)
            assert await bench.rig.value("SELECT count(*) FROM calls") == 4
            assert await bench.rig.value("SELECT count(*) FROM settlements") == 0
            assert await bench.rig.value("SELECT max(attempts) FROM deliveries WHERE claimed_by IS NULL") == 0
            assert await bench.mock.delete("/api/faults") == 200
            rows = await bench.ended(12)
            assert {row["state"] for row in rows} == {"sent"}
            assert not worker.breaker.is_open


@pytest.mark.parametrize("while_writing", ["", "worker.before_settle=pause:3"])  # longer than until the next question
async def test_questions_are_asked_at_the_breakers_times(database_url: str, tmp_path: Path, while_writing: str) -> None:
    """And not once in a poll interval, which may be long."""
    failpoints.arm(while_writing)
    settings = {"poll_s": 25, "claim_ttl_s": 30, "provider_timeout_s": 5, "worker_concurrency": 1}
    async with a_bench(database_url, tmp_path, **settings) as bench:
        await bench.mock.faults(fail_rate=1, fail_status=401, latency_ms=[1_500, 1_500])  # longer than until a look
        for user in ("u1", "u2"):
            await bench.rig.accept(SIGNUP, user)
        async with bench.working():

            async def asked_twice() -> bool:
                return await bench.rig.value("SELECT count(*) FROM calls") >= 3

            await until(asked_twice, "a call and two questions", deadline_s=20)


async def test_while_a_question_is_under_way_no_other_is_asked(bench: Bench) -> None:
    await bench.mock.faults(hang_s=60)
    for number in range(45):
        await bench.rig.accept(SIGNUP, f"u{number}")
    in_hand: list[float] = []
    async with bench.working() as worker:
        await until(lambda: worker.breaker.is_open, "the breaker opens", deadline_s=10)
        await until(lambda: observe.IN_HAND._value.get() == 0, "the first calls have ended", deadline_s=10)
        first = await bench.rig.value("SELECT count(*) FROM calls")

        async def asked(times: int) -> bool:
            in_hand.append(observe.IN_HAND._value.get())
            return await bench.rig.value("SELECT count(*) FROM calls") >= first + times

        await until(partial(asked, 1), "a question was asked in vain", deadline_s=15)
        in_hand.clear()  # until then a claim from before may have been on its way
        await until(partial(asked, 2), "another was asked in vain", deadline_s=15)
        assert await bench.mock.delete("/api/faults") == 200
    assert max(in_hand) == 1
    assert await bench.rig.value("SELECT count(*) FROM deliveries WHERE doubt_since IS NOT NULL") <= first + 3


# ---------------------------------------------------------------------------------------------- the last look


async def deliver(bench: Bench, claim: Claim, left_s: float = 3, probe: bool = False, **state: Any) -> Result:
    deliverer = Deliverer(bench.runtime, bench.provider, Breaker(is_open=state.pop("is_open", False)), **state)
    return await deliverer.deliver(Held(claim, boot_clock() + left_s, probe))


@pytest.mark.parametrize("family", ["reject", "none"])
@pytest.mark.parametrize("state", [{"left_s": 0.9}, {"left_s": -100}, {"stopping": True}, {"is_open": True}])
async def test_no_call_starts_late_or_while_calls_are_held_back(
    database_url: str, tmp_path: Path, family: str, state: dict[str, Any]
) -> None:
    async with a_bench(database_url, tmp_path, mock_family=family) as bench:
        await bench.rig.accept(SIGNUP, "ada")
        [claim] = await bench.claim(bench.runtime.process_id, ttl_s=30)
        result = await deliver(bench, claim, **state)
        assert (result.settlement.state, result.settlement.counted, result.call) == (State.PENDING, False, None)
        assert await bench.calls() == []
        assert await bench.rig.value("SELECT calling FROM deliveries") == (family == "reject")


async def test_a_claim_that_was_lost_before_begin_calls_nobody(database_url: str, tmp_path: Path) -> None:
    async with a_bench(database_url, tmp_path, mock_family="none") as bench:
        await bench.rig.accept(SIGNUP, "ada")
        [claim] = await bench.claim("another")
        result = await deliver(bench, claim)
        assert (result.settlement.state, result.call) == (State.PENDING, None)
        assert await bench.calls() == []


async def test_a_provider_without_keys_gets_a_second_call_from_nobody(database_url: str, tmp_path: Path) -> None:
    async with a_bench(database_url, tmp_path, mock_family="none") as bench:
        await bench.mock.faults(duplicate_mode="none")
        await bench.rig.accept(SIGNUP, "ada")
        [claim] = await bench.claim(bench.runtime.process_id)
        assert (await deliver(bench, claim)).settlement.state is State.SENT  # and dies before its settle
        [row] = await bench.work_off()
        assert told(row) == ("uncertain", "no_provider_key", 2)
        assert len(await bench.mock.inbox()) == 1


async def test_a_database_that_is_away_before_the_call_gives_the_row_back(bench: Bench) -> None:
    """It needs the template of another build, and cannot ask for it."""
    await bench.rig.accept(SIGNUP, "ada")
    await bench.rig.rows("UPDATE deliveries SET template_hash = 'another', recipient = 'ada@example.com'")
    [claim] = await bench.claim(bench.runtime.process_id, ttl_s=30)
    await bench.runtime.database.close()
    result = await deliver(bench, claim)
    assert (result.settlement.state, result.settlement.counted, result.call) == (State.PENDING, False, None)
    assert await bench.calls() == []


# ---------------------------------------------------------------------------------------------- settling


@pytest.mark.parametrize("name", ["\x00", "m\x1f2"])
async def test_a_result_that_cannot_be_written_keeps_no_other_one(bench: Bench, name: str) -> None:
    for number in range(5):
        await bench.rig.accept(SIGNUP, f"u{number}")
    claims = await bench.claim(bench.runtime.process_id, ttl_s=30)
    done: list[Claim] = []
    settler = Settler(bench.runtime, done.extend)
    for index, claim in enumerate(claims):
        settlement = SENT._replace(message_id=name if index == 2 else f"m_{index}")
        settler.put(Result(claim, settlement, a_call(settlement), "worker:x"))
    async with background(settler.run()):
        await settler.drained()
    assert sorted(claim.id for claim in done) == sorted(claim.id for claim in claims)
    names = {row["id"]: row["provider_message_id"] for row in await bench.rig.rows("SELECT * FROM settlements")}
    assert names == {claim.id: f"m_{index}" for index, claim in enumerate(claims) if index != 2}
    assert await bench.rig.value("SELECT id FROM deliveries") == claims[2].id


async def test_a_result_that_an_earlier_try_wrote_is_not_counted_lost(bench: Bench) -> None:
    await bench.rig.accept(SIGNUP, "ada")
    claims = await bench.claim(bench.runtime.process_id, ttl_s=30)
    assert await bench.rig.settle(bench.runtime.process_id, claims) == 1  # and the answer never came
    stale = observe.STALE_SETTLES._value.get()
    settler = Settler(bench.runtime, lambda _: None)
    settler.put(Result(claims[0], SENT, a_call(SENT), "worker:x"))
    async with background(settler.run()):
        await settler.drained()
    assert observe.STALE_SETTLES._value.get() == stale


async def test_a_certain_answer_of_a_lost_claim_ends_the_uncertainty(bench: Bench) -> None:
    failpoints.arm("worker.after_send=pause:1*1")
    await bench.rig.accept(SIGNUP, "ada")
    stale = observe.STALE_SETTLES._value.get()
    async with bench.working():
        await bench.until_taken()
        other = bench.claimant("other", ttl_s=30)
        async with bench.rig.database.connection() as conn:
            [expired] = await bench.rig.rows("UPDATE deliveries SET claim_expires_at = now() RETURNING id")
            [claim] = await deliveries.take_over(conn, other, list(other.templates), [expired["id"]])
        assert await bench.rig.settle("other", [claim], UNCERTAIN) == 1

        async def evident() -> bool:
            return await bench.rig.value("SELECT state FROM settlements") == "sent"

        await until(evident, "the late answer counts", deadline_s=5)
    [row] = await bench.rig.rows("SELECT * FROM settlements")
    assert (row["evidence"], row["generation"], row["doubt_since"]) == ("late_settle", 2, None)
    assert observe.STALE_SETTLES._value.get() - stale == 1


@asynccontextmanager
async def database_away(postgres: embedded.Server, url: str, how: str) -> AsyncIterator[None]:
    """No session stays, and no new one is let in, until the end of the block."""
    name = url.rpartition("/")[2]
    there = f"SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = '{name}'"
    conn = await asyncpg.connect(postgres.url)

    async def nobody_there() -> bool:
        return bool(await conn.fetchval(there) == 0)

    try:
        await conn.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
        await until(nobody_there, "all sessions have ended", deadline_s=10)
        if how == "gone":
            await conn.execute(f"ALTER DATABASE {name} RENAME TO {name}_away")
        try:
            yield
        finally:
            if how == "gone":
                await conn.execute(f"ALTER DATABASE {name}_away RENAME TO {name}")
            await conn.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
    finally:
        await conn.close()


@pytest.mark.parametrize("how", ["gone", "closed"])
async def test_a_result_waits_for_the_database_and_nobody_is_asked_twice(
    database_url: str, tmp_path: Path, postgres: embedded.Server, how: str
) -> None:
    async with a_bench(database_url, tmp_path, claim_ttl_s=20, provider_timeout_s=5) as bench:
        failpoints.arm("worker.after_send=pause:1.5")  # the outcomes are known once the database is away
        for number in range(10):
            await bench.rig.accept(SIGNUP, f"u{number}")
        async with bench.working():
            await bench.until_taken(10)
            async with database_away(postgres, database_url, how):
                before = time.monotonic()
                await until(lambda: time.monotonic() - before > 2.5, "the settles have failed for a while")
            rows = await bench.ended(10)
        assert {told(row) for row in rows} == {("sent", None, 1)}
        assert len(await bench.calls()) == 10


async def test_sessions_that_are_ended_again_and_again_lose_nothing(
    database_url: str, tmp_path: Path, postgres: embedded.Server
) -> None:
    async with a_bench(database_url, tmp_path) as bench:
        await bench.mock.faults(latency_ms=[0, 30])
        for number in range(60):
            await bench.rig.accept(SIGNUP, f"u{number}")
        name = database_url.rpartition("/")[2]
        kill = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"
        async with bench.working():
            for _ in range(8):
                await on_server(postgres, kill)
                await asyncio.sleep(0.05)
            rows = await bench.ended(60, deadline_s=20)
        assert {row["state"] for row in rows} == {"sent"}
        assert len(await bench.mock.get("/api/messages", limit=100)) > 0
        users = [row["user_id"] for row in rows]
        assert len(users) == len(set(users)) == 60


async def test_a_sign_of_life_that_meets_a_lock_does_not_end_the_process(
    database_url: str, tmp_path: Path, connection: asyncpg.Connection
) -> None:
    await connection.execute(
        "INSERT INTO workers (id, role, host, pid, heartbeat_at) VALUES ('old', 'api', 'h', 1, now() - interval '2 d')"
    )
    async with connection.transaction():
        await connection.execute("SELECT FROM workers WHERE id = 'old' FOR UPDATE")
        async with a_bench(database_url, tmp_path, lock_timeout_s=0.5) as bench:
            waiting = "SELECT count(*) > 0 FROM pg_locks WHERE NOT granted"

            async def waits() -> bool:
                return bool(await bench.rig.value(waiting))

            async def gave_up() -> bool:
                return not await waits()

            await until(waits, "it waits for the lock", deadline_s=5)
            await until(gave_up, "it gave up", deadline_s=5)
            await bench.rig.accept(SIGNUP, "ada")
            assert told((await bench.work_off())[0]) == ("sent", None, 1)


# ---------------------------------------------------------------------------------------------- stop


async def test_a_stop_gives_back_what_has_not_begun(bench: Bench) -> None:
    failpoints.arm("worker.after_claim=pause:2")
    for number in range(5):
        await bench.rig.accept(SIGNUP, f"u{number}")
    async with bench.working():
        await bench.until_claimed(5)
    rows = await bench.rig.rows("SELECT claimed_by, attempts, generation, doubt_since, calling FROM deliveries")
    assert len(rows) == 5
    for row in rows:
        assert row == {"claimed_by": None, "attempts": 0, "generation": 1, "doubt_since": None, "calling": False}
    assert await bench.calls() == []


async def test_a_stop_lets_calls_end(bench: Bench) -> None:
    failpoints.arm("worker.mid_send=pause:0.5")
    await bench.rig.accept(SIGNUP, "ada")
    async with bench.working():
        await bench.until_taken()
    [row] = await bench.rig.rows("SELECT * FROM settlements")
    assert told(row) == ("sent", None, 1)


@pytest.mark.parametrize("family", ["reject", "none"])
async def test_a_call_that_is_cut_by_a_stop_is_in_doubt(database_url: str, tmp_path: Path, family: str) -> None:
    settings = {"stop_grace_s": 0.2, "provider_timeout_s": 10, "claim_ttl_s": 30, "mock_family": family}
    async with a_bench(database_url, tmp_path, **settings) as bench:
        failpoints.arm("worker.mid_send=pause:60")  # all is written, and the answer is not read
        if family == "none":
            await bench.mock.faults(duplicate_mode="none")
        await bench.rig.accept(SIGNUP, "ada")
        async with bench.working():
            await bench.until_taken()
        failpoints.arm("")
        [attempt] = await bench.rig.rows("SELECT outcome, reason FROM calls")
        assert attempt == {"outcome": "ambiguous", "reason": "cut_by_stop"}
        if family == "reject":
            [row] = await bench.rig.rows("SELECT * FROM deliveries")
            assert (row["claimed_by"], row["attempts"], row["reason"]) == (None, 1, "cut_by_stop")
            assert row["doubt_since"] is not None
        [row] = await bench.work_off()
        assert told(row) == (("sent", None, 2) if family == "reject" else ("uncertain", "cut_by_stop", 1))
        assert len(await bench.mock.inbox()) == 1


# ---------------------------------------------------------------------------------------------- leases


async def test_a_claim_that_is_long_in_hand_is_said_to_redis_and_then_no_more(
    database_url: str, tmp_path: Path, redis_url: str
) -> None:
    async with a_bench(database_url, tmp_path, redis_url=redis_url) as bench:
        failpoints.arm("worker.before_settle=pause:2*1")
        await bench.rig.accept(SIGNUP, "ada")
        key = f"nt:lease:{await bench.rig.value('SELECT id FROM deliveries')}"
        async with Redis.from_url(redis_url, decode_responses=True) as redis, bench.working():

            async def renewed() -> bool:
                return await redis.get(key) == bench.runtime.process_id

            async def released() -> bool:
                return await redis.keys("*") == []

            await until(renewed, "the lease is renewed", deadline_s=6)
            assert await redis.keys("*") == [key]
            assert 0 < await redis.pttl(key) <= 3_000
            await bench.ended()
            await until(released, "and released", deadline_s=2)


async def test_a_renewed_lease_is_respected_for_one_claim_time(
    database_url: str, tmp_path: Path, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("notifier.coordination.client.BUDGET_S", 5.0)  # a slow Redis is another test's business
    async with a_bench(database_url, tmp_path, redis_url=redis_url) as bench:
        await bench.rig.accept(SIGNUP, "held")
        await bench.rig.accept(SIGNUP, "free")
        ids = {claim.user_id: claim.id for claim in await bench.claim("ghost")}
        ghost = RedisClient(redis_url)
        try:
            await Leases(ghost).renew([ids["held"]], "ghost", timedelta(seconds=30))
            await Leases(ghost).renew([ids["free"]], "somebody else", timedelta(seconds=30))
            async with bench.working():
                [free] = await bench.ended(1)
                assert free["user_id"] == "free"
                rows = await bench.ended(2)
        finally:
            await ghost.close()
        [held] = [row for row in rows if row["user_id"] == "held"]
        assert held["state"] == "sent"
        late = await bench.rig.value(
            "SELECT extract(epoch FROM b.claimed_at - a.claimed_at) FROM settlements a, settlements b "
            "WHERE a.user_id = 'free' AND b.user_id = 'held'"
        )
        assert 1.5 < late < 3 + 1, "one more claim time, and no longer"
