"""`notifier restored` on a database that holds what a backup would: what it marks, what it leaves, what it refuses."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import asyncpg
import pytest

from notifier.domain.errors import NotReady
from notifier.domain.notification import Settlement, State
from notifier.domain.restore import SEVERAL_ACCOUNTS
from notifier.ingest.transaction import transact
from notifier.restore import NotThen, Report, Told, restore
from notifier.store import deliveries, moves, operator_moves
from tests.support.command import Command
from tests.support.rig import ACCOUNT, Rig, ago, an_event, open_rig
from tests.support.stack import until

SIGNUP, LOGIN = "user.signed_up", "user.logged_in"
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
PATIENCE_S = 9.0


@pytest.fixture
async def rig(database_url: str) -> AsyncIterator[Rig]:
    async with open_rig(database_url) as opened:
        await opened.rows("UPDATE installation SET created_at = now() - interval '60 days' RETURNING 1")
        yield opened


async def told(rig: Rig, at: datetime, *, account: str = ACCOUNT, dry_run: bool = False) -> Report:
    return await restore(rig.settings, Told(at, account, DAY, timedelta(0), "test", dry_run))


async def signed_up(rig: Rig, user: str, before: timedelta) -> datetime:
    """A signup that was decided in its own time: its follow-up is still scheduled. Gives when that is due."""
    await rig.accept(SIGNUP, user)
    for table in ("outbox", "scheduled_sends"):
        columns = ("decided_at", "cancel_from", "due_at") if table == "outbox" else ("due_at",)
        changes = ", ".join(f"{column} = {column} - $2::interval" for column in columns)
        await rig.rows(f"UPDATE {table} SET {changes} WHERE user_id = $1 RETURNING id", user, before)
    due: datetime = await rig.value("SELECT due_at FROM scheduled_sends WHERE user_id = $1", user)
    return due


async def doubts(rig: Rig) -> dict[tuple[str, str], datetime | None]:
    rows = await rig.rows("SELECT user_id, kind, doubt_since FROM deliveries")
    return {(row["user_id"], row["kind"]): row["doubt_since"] for row in rows}


async def test_whatever_is_owed_is_in_doubt_since_then_or_since_before(rig: Rig) -> None:
    at = ago(hours=2)
    await rig.accept(SIGNUP, "claimed", ago(hours=5))
    [claimed] = await rig.claim("gone")
    await rig.accept(SIGNUP, "doubted", ago(hours=5))
    await rig.claim("gone")
    await rig.rows(
        "UPDATE deliveries SET claimed_at = now() - interval '3 hours', claim_expires_at = now() - interval '2 hours'"
        " RETURNING id"
    )
    await rig.rows("UPDATE deliveries SET doubt_since = $1 WHERE user_id = 'doubted' RETURNING id", ago(hours=4))
    await rig.accept(SIGNUP, "open", ago(hours=5))
    before = await doubts(rig)
    report = await told(rig, at)
    assert (report.opened, report.due, report.not_again) == (3, 0, 0)
    after = await doubts(rig)
    assert after["open", "onboarding"] == at
    assert after["doubted", "onboarding"] == before["doubted", "onboarding"]
    [row] = await rig.rows("SELECT * FROM deliveries WHERE id = $1", claimed.id)
    assert row["doubt_since"] == row["claimed_at"], "the call of its owner may be older than the backup"
    assert row["claimed_by"] == "gone", "the claim runs out by itself"
    assert {row["provider"] for row in await rig.rows("SELECT provider FROM deliveries")} == {ACCOUNT}
    [open_] = await rig.claim("w")
    assert (open_.doubt_since, open_.restored, open_.generation, open_.provider) == (at.timestamp(), True, 1, ACCOUNT)
    assert open_.recipient == "open@example.com"
    others = {since.timestamp() for since in after.values() if since != at}
    assert {claim.doubt_since for claim in await rig.take_over("w")} == others


async def test_a_row_that_names_another_account_keeps_it(rig: Rig) -> None:
    await rig.accept(SIGNUP, "ada", ago(hours=5))
    await rig.claim("gone")
    report = await told(rig, ago(hours=1), account="mock:other")
    assert report.not_again == 1
    assert await rig.value("SELECT provider FROM deliveries") == ACCOUNT


@pytest.mark.parametrize("sent", [False, True])
async def test_where_mails_went_in_batches_nothing_is_repeated_whatever_the_settings_say(rig: Rig, sent: bool) -> None:
    """The keys of the lost time cannot be derived; who switched batches off before telling must not mail twice."""
    for user in ("ada", "bob"):
        await rig.accept(SIGNUP, user, ago(hours=5))
    async with rig.database.connection() as conn:
        who = replace(rig.claimant("gone"), batch_max=10)
        claims = await deliveries.claim(conn, who, list(who.templates), 10)
    if sent:
        assert await rig.settle("gone", claims) == 2
    await rig.accept(SIGNUP, "open", ago(hours=5))
    report = await told(rig, ago(hours=1))
    assert report.account == SEVERAL_ACCOUNTS
    assert report.not_again == report.opened
    assert {row["provider"] for row in await rig.rows("SELECT provider FROM deliveries")} == {SEVERAL_ACCOUNTS}
    await rig.accept(SIGNUP, "late", ago(hours=5))
    assert await rig.value("SELECT provider FROM deliveries WHERE user_id = 'late'") == SEVERAL_ACCOUNTS


async def test_what_fell_due_since_is_owed_in_doubt_and_the_rest_waits(rig: Rig) -> None:
    """Nothing is sent before it is due, so that the key of what fell due late is known for longer."""
    at = ago(days=2)
    await signed_up(rig, "early", 6 * DAY)
    due_late = await signed_up(rig, "late", 3 * DAY + HOUR)
    await signed_up(rig, "waits", HOUR)
    report = await told(rig, at)
    assert (report.due, report.scheduled) == (2, 1)
    found = await doubts(rig)
    assert found["early", "followup"] == at
    assert found["late", "followup"] == due_late
    assert ("waits", "followup") not in found
    assert report.not_again == 4, "three onboardings and a follow-up that nobody can ask about any more"
    assert [(row.user_id, row.is_scheduled) for row in report.cancelable] == [
        ("early", False),
        ("late", False),
        ("waits", True),
    ]
    answer = await rig.accept(LOGIN, "early")
    assert [row["kind"] for row in answer["too_late"]] == ["followup"]
    answer = await rig.accept(LOGIN, "waits")
    assert [row["kind"] for row in answer["canceled"]] == ["followup"]


async def test_a_login_that_was_repeated_first_holds_back_what_is_in_doubt(rig: Rig) -> None:
    await rig.accept(SIGNUP, "ada", ago(days=4))
    await told(rig, ago(days=2))
    await rig.accept(LOGIN, "ada", ago(days=1, hours=12))
    called_off = {claim.kind: claim.called_off_by for claim in await rig.claim("w")}
    assert called_off == {"onboarding": None, "followup": LOGIN}


async def test_a_row_from_a_restore_stays_one_whatever_a_later_attempt_met(rig: Rig) -> None:
    """Its first call meets a busy provider; only then the login is repeated, and no mail may go out any more."""
    await rig.accept(SIGNUP, "ada", ago(days=4))
    await told(rig, ago(days=2))
    busy = Settlement(State.PENDING, "http_503", doubt=True)
    claims = await rig.claim("w")
    assert await rig.settle("w", claims, busy) == len(claims) == 2
    assert {row["reason"] for row in await rig.rows("SELECT reason FROM deliveries")} == {"restored"}
    await rig.accept(LOGIN, "ada", ago(days=1, hours=12))
    again = {claim.kind: claim for claim in await rig.claim("w")}
    assert {claim.restored for claim in again.values()} == {True}
    assert {kind: claim.called_off_by for kind, claim in again.items()} == {"onboarding": None, "followup": LOGIN}


async def test_a_login_means_nothing_to_a_claim_where_nothing_was_restored(rig: Rig) -> None:
    await rig.accept(SIGNUP, "ada", ago(days=4))
    async with rig.database.connection() as conn:
        await moves.release(conn)
    await rig.claim("gone", ttl_s=0)
    await rig.accept(LOGIN, "ada")
    assert {claim.called_off_by for claim in await rig.take_over("w")} == {None}


@pytest.mark.parametrize(
    ("before", "since"),
    [
        (timedelta(days=2, minutes=10), "the backup"),  # it was late: taken, and mailed, only after the backup
        (timedelta(days=2, minutes=4), "the backup"),
        (timedelta(hours=3), "the event"),
        (None, None),
    ],
)
async def test_what_is_decided_later_may_have_been_taken_in_the_lost_time(
    rig: Rig, before: timedelta | None, since: str | None
) -> None:
    at = ago(days=2)
    occurred_at = None if before is None else at + 2 * DAY - before
    await told(rig, at)
    await rig.accept(SIGNUP, "ada", occurred_at)
    assert await rig.states("ada") == {"onboarding": "pending", "followup": "scheduled"}
    assert await doubts(rig) == {("ada", "onboarding"): {"the backup": at, "the event": occurred_at, None: None}[since]}


async def test_a_follow_up_that_may_have_gone_out_is_in_doubt_whatever_came_before_its_signup(rig: Rig) -> None:
    """The login is there already; nobody may say for that reason that the mail was never sent."""
    at = ago(days=5)
    await told(rig, at)
    await rig.accept(LOGIN, "ada", ago(hours=1))
    occurred_at = ago(days=4)
    await rig.accept(SIGNUP, "ada", occurred_at)
    assert await doubts(rig) == {("ada", "onboarding"): occurred_at, ("ada", "followup"): occurred_at + 3 * DAY}
    assert {claim.kind: claim.called_off_by for claim in await rig.claim("w")}["followup"] == LOGIN


async def test_a_try_changes_nothing_and_the_same_again_changes_nothing(rig: Rig) -> None:
    await signed_up(rig, "ada", 4 * DAY)
    at = ago(days=1)
    tried = await told(rig, at, dry_run=True)
    assert set((await doubts(rig)).values()) == {None}
    assert await rig.value("SELECT count(*) FROM restores") + await rig.value("SELECT count(*) FROM audit_log") == 0
    done = await told(rig, at)
    assert (tried.opened, tried.due, tried.scheduled) == (done.opened, done.due, done.scheduled) == (1, 1, 0)
    again = await told(rig, at)
    assert (again.opened, again.due) == (0, 0)
    assert again.known_since is not None
    assert (again.events_from, again.events_until) == (done.events_from, done.events_until)
    [entry] = await rig.rows("SELECT act, target, detail FROM audit_log")
    assert (entry["act"], entry["target"]) == ("restored", at.isoformat())
    assert json.loads(entry["detail"])["opened"] == 1


async def test_the_same_time_told_after_a_second_loss_is_refused(rig: Rig) -> None:
    at = ago(days=1)
    await told(rig, at)
    await rig.accept(SIGNUP, "bob")
    for dry_run in (True, False):
        with pytest.raises(NotThen, match=r"told already at .* been at work since.* a second earlier"):
            await told(rig, at, dry_run=dry_run)
    assert (await doubts(rig))["bob", "onboarding"] is None
    assert (await told(rig, at - timedelta(seconds=1))).opened == 1


async def test_a_time_told_with_one_account_is_not_told_with_another(rig: Rig) -> None:
    at = ago(days=1)
    await told(rig, at)
    with pytest.raises(NotThen, match=f"account {ACCOUNT}, but these settings name mock:other: use the settings"):
        await told(rig, at, account="mock:other")
    assert (await told(rig, at)).account == ACCOUNT


async def test_what_was_repeated_after_a_restore_and_lost_again_is_in_doubt(rig: Rig) -> None:
    """The second backup was made right after the first restore: a follow-up fell due after that, and went out."""
    await told(rig, ago(days=4))
    second = ago(days=2)
    await rig.rows("UPDATE restores SET made_at = $1, events_until = $1 RETURNING 1", second)
    await told(rig, second)
    occurred_at = ago(days=3, hours=12)
    await rig.accept(SIGNUP, "ada", occurred_at)
    assert await doubts(rig) == {("ada", "onboarding"): occurred_at, ("ada", "followup"): occurred_at + 3 * DAY}


async def test_an_earlier_time_told_afterwards_counts(rig: Rig) -> None:
    await rig.accept(SIGNUP, "ada", ago(days=2))
    for at in (ago(hours=1), ago(hours=2), ago(minutes=30)):
        await told(rig, at)
    assert set((await doubts(rig)).values()) == {min([row["at"] for row in await rig.rows("SELECT at FROM restores")])}
    assert await rig.value("SELECT count(*) FROM restores") == 3


@pytest.mark.parametrize(
    ("ended", "new_key", "since"),
    [("3 hours", False, "the backup"), ("0 hours", False, None), ("3 hours", True, None)],
)
async def test_what_had_ended_may_have_been_retried_in_the_lost_time(
    rig: Rig, ended: str, new_key: bool, since: str | None
) -> None:
    at, state = ago(hours=2), State.UNCERTAIN if new_key else State.FAILED
    await rig.accept(SIGNUP, "ada", ago(days=1))
    await rig.settle("w1", await rig.claim("w1"), Settlement(state, "rejected", doubt=new_key))
    await told(rig, at)
    await rig.rows("UPDATE settlements SET settled_at = clock_timestamp() - $1::text::interval RETURNING id", ended)
    [row] = await rig.rows("SELECT id, generation FROM settlements")
    async with rig.database.connection() as conn:
        assert await operator_moves.owe_again(conn, row["id"], row["generation"], state, new_key=new_key)
    assert await doubts(rig) == {("ada", "onboarding"): at if since else None}
    [claim] = await rig.claim("w2")
    assert (claim.restored, claim.in_doubt, claim.generation) == (bool(since), bool(since), 3)


@pytest.mark.parametrize("changes", ["provider = NULL", "reason = 'timeout'", "reason = NULL"])
async def test_only_a_restore_brings_in_doubt_what_nobody_claimed(rig: Rig, changes: str) -> None:
    await rig.accept(SIGNUP, "ada", ago(days=1))
    await told(rig, ago(hours=1))
    with pytest.raises(asyncpg.CheckViolationError):
        await rig.rows(f"UPDATE deliveries SET {changes} RETURNING id")


async def test_while_a_process_lives_or_holds_a_row_nothing_happens(rig: Rig, connection: asyncpg.Connection) -> None:
    await rig.accept(SIGNUP, "ada", ago(days=1))
    await connection.execute(
        "INSERT INTO workers (id, role, host, pid, heartbeat_at)"
        " VALUES ('w', 'worker', 'here', 1, now() - $1::interval)",
        timedelta(seconds=10),
    )
    with pytest.raises(NotReady, match=r"worker 1 on here \(1\d s ago\).*Stop every"):
        await told(rig, ago(hours=1))
    await connection.execute("UPDATE workers SET heartbeat_at = now() - interval '16 seconds'")
    async with connection.transaction():  # one that just starts: nobody sees it yet
        await connection.execute("INSERT INTO workers (id, role, host, pid) VALUES ('w2', 'worker', 'here', 2)")
        with pytest.raises(NotReady, match="stop them first"):
            await told(rig, ago(hours=1))
        await connection.execute("DELETE FROM workers WHERE id = 'w2'")
    assert set((await doubts(rig)).values()) == {None}
    assert (await told(rig, ago(hours=1))).opened == 1


async def waited_for(connection: asyncpg.Connection, table: str) -> None:
    """Wait until somebody waits for a lock on this table."""

    async def somebody_waits() -> bool:
        query = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = $1::text::regclass AND database = $2"
        return bool(await connection.fetchval(query, table, here))

    here = await connection.fetchval("SELECT oid FROM pg_database WHERE datname = current_database()")
    await until(somebody_waits, f"somebody waits for {table}")


@pytest.fixture
async def patient(database_url: str) -> AsyncIterator[Rig]:
    async with open_rig(database_url, lock_timeout_s=PATIENCE_S) as opened:
        await opened.rows("UPDATE installation SET created_at = now() - interval '60 days' RETURNING 1")
        yield opened


async def decide(rig: Rig, occurred_at: datetime) -> None:
    """Take a signup as an api does, but wait for locks longer than its sender would."""
    await transact(rig.ingest._door, [an_event(SIGNUP, "ada", occurred_at)], PATIENCE_S)


async def test_a_decision_under_way_is_waited_for(patient: Rig, connection: asyncpg.Connection) -> None:
    """An api that just started has not been heard of yet; what it decides by what it read before is in doubt too."""
    at = ago(hours=2)
    async with connection.transaction():  # it has read what was lost, and written no notification
        await connection.execute("LOCK TABLE last_seen IN SHARE MODE")
        signing_up = asyncio.create_task(decide(patient, ago(hours=1)))
        await waited_for(connection, "last_seen")
        restoring = asyncio.create_task(told(patient, at))
        await waited_for(connection, "restores")
    await signing_up
    assert (await restoring).opened == 1
    assert await doubts(patient) == {("ada", "onboarding"): at}


async def test_a_decision_that_comes_meanwhile_waits_and_knows(patient: Rig, connection: asyncpg.Connection) -> None:
    occurred_at = ago(hours=1)
    async with connection.transaction():
        await connection.execute("LOCK TABLE workers IN ROW EXCLUSIVE MODE")
        restoring = asyncio.create_task(told(patient, ago(hours=2)))
        await waited_for(connection, "workers")
        signing_up = asyncio.create_task(decide(patient, occurred_at))
        await waited_for(connection, "restores")
    assert (await restoring).opened == 0
    await signing_up
    assert await doubts(patient) == {("ada", "onboarding"): occurred_at}


@pytest.mark.parametrize(
    ("argv", "settings", "code", "words"),
    [
        (["--at", "2999-01-01T00:00:00Z"], {}, 2, "it is in the future"),
        (["--at", "2001-01-01T00:00:00Z"], {}, 2, "this installation was made at"),
        (["--at", "2026-11-27"], {}, 2, "write a date and a time"),
        ([], {}, 2, "--at"),
        (["--at", "2026-11-27T00:00:00Z", "--advance-s", "5"], {}, 2, "NOTIFIER_CLOCK=virtual alone"),
        (["--at", "2026-11-27T00:00:00Z", "--json", "/nowhere/at/all"], {}, 2, "there is no directory"),
        (["--at", "2026-11-27T00:00:00Z"], {"DATABASE_URL": ""}, 2, "NOTIFIER_DATABASE_URL is not set"),
        (["--at", "2026-11-27T00:00:00Z"], {"DATABASE_URL": "postgresql://127.0.0.1:1/x"}, 1, "cannot reach"),
        (["--at", "2026-11-27T00:00:00Z"], {"PROVIDER": "smtp"}, 2, "NOTIFIER_SMTP_HOST is not set"),
    ],
)
async def test_what_cannot_be_meant_is_refused_in_words(
    argv: list[str], settings: dict[str, str], code: int, words: str, database_url: str, tmp_path: Path
) -> None:
    done = await Command(tmp_path, {"DATABASE_URL": database_url})("restored", *argv, **settings)
    assert done.code == code, done.err
    assert words in " ".join(done.err.replace("│", " ").split())


async def test_the_report_says_what_is_so_and_what_to_do(rig: Rig, database_url: str, tmp_path: Path) -> None:
    for number in range(25):
        await rig.accept(SIGNUP, f"u{number}", ago(hours=5))
    notifier = Command(tmp_path, {"DATABASE_URL": database_url, "MOCK_FAMILY": "none"})
    at = ago(hours=4).isoformat()
    tried = await notifier("restored", "--at", at, "--dry-run")
    assert tried.code == 0, tried.err
    assert "leave out --dry-run" in tried.out
    done = await notifier("restored", "--at", at, "--json", "all.json")
    assert done.code == 0, done.err
    for words in (
        "Done.",
        "25 owed or in a worker's hands: in doubt",
        "25 of those in doubt can no longer be repeated",  # no keys
        "last sign of life",
        "25 scheduled, 0 in doubt",
        "… and 5 more: all are in all.json",
        "Start `notifier api`, and nothing else yet",
    ):
        assert words in done.out
    document = json.loads((tmp_path / "all.json").read_text())
    assert len(document["may_have_been_canceled"]) == 25
    assert document["account"].startswith("mock-keyless:")
    assert "from a backup of" in (await notifier("status")).out
    assert len((await notifier("status", "--json")).json["restores"]) == 1
    again = await notifier("restored", "--at", at)
    assert "nothing was changed" in again.out
    assert again.code == 0
    other = await notifier("restored", "--at", at, MOCK_FAMILY="reject")
    assert other.code == 2
    assert "use the settings the workers had" in " ".join(other.err.replace("│", " ").split())
