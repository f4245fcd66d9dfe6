"""Frozen batches: several mails in one call, and the same ones again whatever happens in between."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from notifier import failpoints
from notifier.clock import boot_clock
from notifier.domain.notification import State
from notifier.domain.restore import SEVERAL_ACCOUNTS
from notifier.settings import Settings
from notifier.store import deliveries, moves, restores, results, templates
from notifier.worker.breaker import Breaker
from notifier.worker.deliver import Deliverer, Held
from providers.base import Traits
from tests.support.bench import Bench, a_bench, told
from tests.support.rig import ago
from tests.support.stack import until

SIGNUP, LOGIN = "user.signed_up", "user.logged_in"


@pytest.fixture
async def bench(database_url: str, tmp_path: Path) -> AsyncIterator[Bench]:
    async with a_bench(database_url, tmp_path, batch_max=10) as opened:
        yield opened


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    yield
    failpoints.arm("")


async def sign_up(bench: Bench, number: int, first: int = 0, at: datetime | None = None) -> list[str]:
    users = [f"u{first + n:03}" for n in range(number)]
    await asyncio.gather(*(bench.rig.accept(SIGNUP, user, at) for user in users))
    return users


async def take_over(bench: Bench, worker: str = "next", ttl_s: float = 0) -> list[deliveries.Claim]:
    """Take over every batch that is expired or due."""
    who = bench.claimant(worker, ttl_s)
    async with bench.runtime.database.connection() as conn:
        look = await deliveries.look(conn, who)
        batches = {row.batch_id for row in look.expired if row.batch_id} | set(look.batches)
        return await deliveries.take_over_batches(conn, who, list(who.templates), sorted(batches))


async def call(bench: Bench, claims: list[deliveries.Claim]) -> list[Any]:
    """Make the call of one batch as a worker would that then dies: nothing is written."""
    held = [Held(claim, boot_clock() + 3, probe=False) for claim in sorted(claims, key=lambda claim: claim.id)]
    return await Deliverer(bench.runtime, bench.provider, Breaker()).deliver_batch(held, nobody_is_stopped)


async def nobody_is_stopped(_: object) -> bool:
    raise AssertionError("nobody is stopped here")


async def test_a_backlog_goes_in_full_batches_and_each_mail_is_sent_once(bench: Bench) -> None:
    users = await sign_up(bench, 35)
    rows = await bench.work_off(35)
    assert {told(row) for row in rows} == {("sent", None, 1)}
    inbox = await bench.mock.inbox()
    assert Counter((mail["user"], mail["kind"]) for mail in inbox) == {(user, "onboarding"): 1 for user in users}
    by_key = Counter(mail["key"] for mail in inbox)
    assert max(by_key.values()) == 10
    assert {str(row["batch_id"]) for row in rows if row["batch_id"]} <= set(by_key)
    assert {row["provider_message_id"] for row in rows} == {mail["id"] for mail in inbox}


async def test_one_alone_goes_by_itself_under_its_own_key(bench: Bench) -> None:
    await bench.rig.accept(SIGNUP, "ada")
    [row] = await bench.work_off()
    assert row["batch_id"] is None
    assert await bench.mock.verdicts(bench.key("ada")) == ["accepted"]


async def test_batches_are_of_the_size_asked_for_and_written_with_the_claim(bench: Bench) -> None:
    await sign_up(bench, 25)
    claims = await bench.claim(ttl_s=30)
    assert sorted(Counter(claim.batch_id for claim in claims).values()) == [5, 10, 10]
    stored = await bench.rig.rows("SELECT id, batch_id FROM deliveries")
    assert {row["id"]: row["batch_id"] for row in stored} == {claim.id: claim.batch_id for claim in claims}


async def test_a_batch_sent_by_a_worker_that_died_is_asked_about_as_it_was(bench: Bench) -> None:
    users = await sign_up(bench, 7)
    sent = await call(bench, await bench.claim())
    assert {result.settlement.state.value for result in sent} == {"sent"}
    await sign_up(bench, 3, first=7)  # others that are due meanwhile never join it
    rows = await bench.work_off(10)
    old = [row for row in rows if row["user_id"] in users]
    assert {told(row) for row in old} == {("sent", None, 2)}
    assert {row["evidence"] for row in old} == {"duplicate"}
    [key] = {str(row["batch_id"]) for row in old}
    assert await bench.mock.verdicts(key) == ["accepted", "duplicate"]
    assert len(await bench.mock.inbox()) == 10
    assert {row["provider_message_id"] for row in rows} == {mail["id"] for mail in await bench.mock.inbox()}


async def test_a_lost_answer_is_repeated_with_the_same_members(bench: Bench) -> None:
    await bench.mock.faults(drop_response_rate=1)
    await sign_up(bench, 6)
    async with bench.working():
        await bench.until_taken(6)
        await bench.mock.delete("/api/faults")
        rows = await bench.ended(6)
    assert {(row["state"], row["evidence"]) for row in rows} == {("sent", "duplicate")}
    assert len(await bench.mock.inbox()) == 6


async def test_a_batch_in_doubt_is_taken_over_whole_or_not_at_all(bench: Bench) -> None:
    await sign_up(bench, 5)
    claims = await bench.claim(ttl_s=0)
    held = min(claim.id for claim in claims)
    async with bench.rig.database.transaction() as conn:
        await conn.execute("SELECT FROM deliveries WHERE id = $1 FOR UPDATE", held)
        taking = asyncio.create_task(take_over(bench))

        async def waits() -> bool:
            waiting = (
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
            )
            return taking.done() or await bench.rig.value(waiting) > 0

        await until(waits, "it waits for the one that is held")
    assert len(await taking) == 5
    switch = "INSERT INTO switches VALUES ('pause:onboarding', 'o', 'r', now(), now() + interval '1 hour')"
    await bench.rig.rows(switch)
    assert await take_over(bench) == []


async def test_a_batch_that_cannot_be_had_keeps_nobody_else(
    database_url: str, tmp_path: Path, connection: asyncpg.Connection
) -> None:
    async with a_bench(database_url, tmp_path, batch_max=10, lock_timeout_s=0.2, claim_ttl_s=30) as bench:
        [alone] = await sign_up(bench, 1)
        await bench.claim()
        await sign_up(bench, 3, first=1)
        await bench.claim()
        async with connection.transaction():
            await connection.execute("SELECT FROM deliveries WHERE batch_id IS NOT NULL FOR UPDATE")
            [row] = await bench.work_off()
        assert (row["user_id"], *told(row)) == (alone, "sent", None, 2)


async def test_a_dead_workers_batches_are_taken_over_without_a_pause(database_url: str, tmp_path: Path) -> None:
    """More than one look finds: all of them have to be back in hand within one more claim time."""
    patient = {"claim_ttl_s": 30, "provider_timeout_s": 10}  # all render, send and receive in this process
    async with a_bench(database_url, tmp_path, batch_max=100, poll_s=25, **patient) as bench:
        await sign_up(bench, 600)
        for _ in range(6):
            assert len(await bench.claim()) == 100
        rows = await bench.work_off(600)
        assert {told(row) for row in rows} == {("sent", None, 2)}


async def test_a_member_whose_claim_still_runs_keeps_the_whole_batch(bench: Bench) -> None:
    await sign_up(bench, 4)
    claims = await bench.claim(ttl_s=0)
    await bench.rig.rows(
        "UPDATE deliveries SET claim_expires_at = now() + interval '1 hour' WHERE id = $1", claims[0].id
    )
    assert await take_over(bench) == []


async def test_a_paused_kind_holds_up_no_other(bench: Bench) -> None:
    """A batch is repeated whole or not at all, so nobody may be in one with a mail of another kind."""
    users = await sign_up(bench, 6, at=ago(days=6))  # long enough ago for their follow-ups to be due
    claims = await bench.claim()
    assert len({(claim.batch_id, claim.kind) for claim in claims}) == len({claim.batch_id for claim in claims}) == 2
    switch = "INSERT INTO switches VALUES ('pause:followup', 'o', 'r', now(), now() + interval '1 hour')"
    await bench.rig.rows(switch)
    rows = await bench.work_off(6)
    assert [(row["user_id"], row["kind"], row["state"]) for row in rows] == [(u, "onboarding", "sent") for u in users]


async def test_kinds_share_no_batch_whatever_their_numbers(bench: Bench) -> None:
    await sign_up(bench, 25, at=ago(days=6))
    await sign_up(bench, 6, first=25)
    claims = await bench.claim(ttl_s=30)
    sizes = Counter((claim.kind, claim.batch_id) for claim in claims)
    assert sorted((kind, size) for (kind, _), size in sizes.items()) == [
        *[("followup", size) for size in (5, 10, 10)],
        *[("onboarding", size) for size in (1, 10, 10, 10)],
    ]
    assert None not in {batch for _, batch in sizes}


async def test_what_is_in_doubt_under_its_own_key_joins_no_batch(bench: Bench) -> None:
    await bench.mock.faults(drop_response_rate=1)
    [user] = await sign_up(bench, 1)
    async with bench.working():
        await bench.until_taken(1)
    await bench.mock.delete("/api/faults")
    await sign_up(bench, 4, first=1)
    await bench.rig.rows(
        "UPDATE deliveries SET next_attempt_at = now(), claimed_by = NULL, claimed_at = NULL, "
        "claim_expires_at = NULL, calling = false"
    )
    rows = await bench.work_off(5)
    assert {row["state"] for row in rows} == {"sent"}
    assert await bench.mock.verdicts(bench.key(user)) == ["accepted", "duplicate"]
    assert len(await bench.mock.inbox()) == 5


async def test_a_login_after_the_claim_is_too_late_for_a_member_as_for_any_other(bench: Bench) -> None:
    await sign_up(bench, 3)
    claims = await bench.claim(ttl_s=30)
    async with bench.rig.database.connection() as conn:
        stopped = await moves.cancel_open(conn, [moves.Cancel(claim.id, "login", "event:x") for claim in claims])
    assert stopped == set()


async def test_one_refused_member_harms_no_other(bench: Bench) -> None:
    await bench.mock.faults(reject_to=["u003@*"])
    await sign_up(bench, 8)
    rows = await bench.work_off(8)
    ends = {row["user_id"]: (row["state"], row["reason"]) for row in rows}
    assert ends.pop("u003") == ("failed", "validation_error")
    assert set(ends.values()) == {("sent", None)}
    assert len(await bench.mock.inbox()) == 7
    assert {row["batch_id"] for row in rows} == {None}, "each was asked about by itself, under its own key"
    refused = await bench.rig.rows("SELECT outcome, reason FROM calls WHERE outcome = 'rejected'")
    assert len(refused) == 8 + 1


@dataclass
class Counting:
    """A way out that knows how many calls have been under way at once."""

    provider: Any
    now: int = 0
    most: int = 0

    @property
    def traits(self) -> Traits:
        return self.provider.traits

    async def send(self, *arguments: Any, **more: Any) -> Any:
        return await self._count(self.provider.send(*arguments, **more))

    async def send_batch(self, *arguments: Any, **more: Any) -> Any:
        return await self._count(self.provider.send_batch(*arguments, **more))

    async def close(self) -> None:
        await self.provider.close()

    async def _count(self, call: Any) -> Any:
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            return await call
        finally:
            self.now -= 1


async def test_mails_that_go_one_by_one_are_no_more_calls_at_once(database_url: str, tmp_path: Path) -> None:
    async with a_bench(database_url, tmp_path, batch_max=10, worker_concurrency=3) as bench:
        counting = Counting(bench.provider)
        await bench.mock.faults(reject_to=["u003@*", "u013@*"], latency_ms=[20, 20])
        await sign_up(bench, 20)
        rows = await replace(bench, provider=counting).work_off(20)
        assert Counter(row["state"] for row in rows) == {"sent": 18, "failed": 2}
        assert counting.most == 3


async def test_small_batches_are_no_more_calls_at_once(database_url: str, tmp_path: Path) -> None:
    async with a_bench(database_url, tmp_path, batch_max=10, worker_concurrency=2) as bench:
        counting = Counting(bench.provider)
        await bench.mock.faults(latency_ms=[400, 400])
        async with replace(bench, provider=counting).working():
            for first in range(0, 12, 2):
                users = await sign_up(bench, 2, first)
                known = "SELECT count(*) FROM deliveries WHERE user_id = ANY ($1) AND claimed_by IS NULL"

                async def picked_up(query: str = known, names: list[str] = users) -> bool:
                    return counting.now >= 2 or await bench.rig.value(query, names) == 0

                await until(picked_up, "the worker has them, or as many calls under way as it may")
            await bench.ended(12)
        assert counting.most == 2


async def test_what_waits_for_a_call_goes_back_at_once_when_the_worker_stops(database_url: str, tmp_path: Path) -> None:
    """However short the grace time is: it was never called for, and so there is no doubt about it."""
    async with a_bench(database_url, tmp_path, batch_max=10, worker_concurrency=1, stop_grace_s=0.1) as bench:
        await bench.mock.faults(latency_ms=[800, 800])
        await sign_up(bench, 5)
        await bench.rig.rows("UPDATE deliveries SET alone = true")
        async with bench.working():
            await bench.until_claimed(5)
        rows = await bench.rig.rows("SELECT claimed_by, doubt_since, attempts FROM deliveries ORDER BY doubt_since")
        assert {row["claimed_by"] for row in rows} == {None}
        assert [row["doubt_since"] is None for row in rows] == [False, True, True, True, True]
        assert [row["attempts"] for row in rows] == [1, 0, 0, 0, 0]


async def test_what_was_refused_for_now_goes_in_another_batch(bench: Bench) -> None:
    await bench.mock.faults(fail_rate=1, fail_status=429)
    await sign_up(bench, 4)
    async with bench.working():

        async def refused() -> bool:
            return await bench.rig.value("SELECT count(*) FROM calls WHERE outcome = 'retry_later'") >= 4

        await until(refused, "the batch was refused")
        await bench.mock.delete("/api/faults")
        rows = await bench.ended(4)
    assert {row["state"] for row in rows} == {"sent"}
    assert {row["evidence"] for row in rows} == {"accepted"}


async def test_who_is_stopped_leaves_before_the_call(bench: Bench) -> None:
    await sign_up(bench, 5)
    await bench.rig.rows("INSERT INTO suppressions VALUES ('u002@example.com', 'u002', 'bounce', now())")
    rows = await bench.work_off(5)
    ends = {row["user_id"]: (row["state"], row["reason"]) for row in rows}
    assert ends.pop("u002") == ("skipped", "suppressed")
    assert set(ends.values()) == {("sent", None)}
    assert len(await bench.mock.inbox()) == 4


async def test_nobody_is_called_while_one_who_is_stopped_has_not_left(bench: Bench) -> None:
    """Whoever took the batch over would repeat the call with that one in it."""
    await sign_up(bench, 3)
    await bench.rig.rows("INSERT INTO suppressions VALUES ('u001@example.com', 'u001', 'bounce', now())")
    claims = sorted(await bench.claim(ttl_s=30), key=lambda claim: claim.id)

    async def cannot(_: object) -> bool:
        return False

    held = [Held(claim, boot_clock() + 3, probe=False) for claim in claims]
    results = await Deliverer(bench.runtime, bench.provider, Breaker()).deliver_batch(held, cannot)
    assert await bench.calls() == []
    assert sorted(result.settlement.state.value for result in results) == ["pending", "pending", "skipped"]


async def test_what_went_back_without_a_call_is_in_no_batch_any_more(bench: Bench) -> None:
    await sign_up(bench, 3)
    claims = await bench.claim("w", ttl_s=30)
    assert None not in {claim.batch_id for claim in claims}
    late = [Held(claim, boot_clock(), probe=False) for claim in claims]
    made = await Deliverer(bench.runtime, bench.provider, Breaker()).deliver_batch(late, nobody_is_stopped)
    async with bench.runtime.database.connection() as conn:
        assert len(await results.put_back(conn, "w", made)) == 3
    assert await bench.calls() == []
    for row in await bench.rig.rows("SELECT * FROM deliveries"):
        assert (row["batch_id"], row["doubt_since"], row["alone"], row["attempts"]) == (None, None, False, 0)


async def test_what_went_back_without_a_call_in_doubt_stays_in_its_batch(bench: Bench) -> None:
    await sign_up(bench, 3)
    [batch] = {claim.batch_id for claim in await bench.claim()}
    again = await take_over(bench, "w", ttl_s=30)
    late = [Held(claim, boot_clock(), probe=False) for claim in again]
    made = await Deliverer(bench.runtime, bench.provider, Breaker()).deliver_batch(late, nobody_is_stopped)
    async with bench.runtime.database.connection() as conn:
        assert len(await results.put_back(conn, "w", made)) == 3
    rows = await bench.work_off(3)
    assert {(row["state"], row["batch_id"]) for row in rows} == {("sent", batch)}
    assert {mail["key"] for mail in await bench.mock.inbox()} == {str(batch)}


async def test_an_erased_member_in_doubt_ends_by_itself_and_the_others_by_their_call(bench: Bench) -> None:
    await sign_up(bench, 4)
    await call(bench, await bench.claim())
    async with bench.rig.database.transaction() as conn:
        [row] = await conn.fetch("SELECT id FROM deliveries WHERE user_id = 'u001'")
        await deliveries.forget(conn, [row["id"]])
    rows = await bench.work_off(4)
    ends = {row["user_id"]: (row["state"], row["reason"]) for row in rows}
    assert ends.pop("u001") == ("uncertain", "erased")
    # The others are asked about without it: other bytes under the same key, and so the provider says that it has them.
    assert set(ends.values()) == {("uncertain", "body_mismatch")}
    assert len(await bench.mock.inbox()) == 4


async def test_a_build_without_batches_repeats_one_it_finds(database_url: str, tmp_path: Path) -> None:
    async with a_bench(database_url, tmp_path) as bench:
        await sign_up(bench, 4)
        await call(bench, await bench.claim(batch_max=10))
        rows = await bench.work_off(4)
        assert {(row["state"], row["evidence"]) for row in rows} == {("sent", "duplicate")}
        assert len(await bench.mock.inbox()) == 4


async def test_after_a_restore_nothing_is_repeated_whose_key_may_be_lost(bench: Bench) -> None:
    """Refused for now before the backup, so that an account is named; sent in a batch of the lost time."""
    await bench.mock.faults(fail_rate=1, fail_status=429)
    await sign_up(bench, 2)
    async with bench.working():

        async def refused() -> bool:
            return await bench.rig.value("SELECT count(*) FROM calls") >= 2

        await until(refused, "they were refused")
    await bench.mock.delete("/api/faults")
    called = len(await bench.calls())
    async with bench.rig.database.connection() as conn:
        assert await restores.doubt_open(conn, ago(seconds=1), SEVERAL_ACCOUNTS) == 2
    rows = await bench.work_off(2)
    assert {(row["state"], row["reason"]) for row in rows} == {("uncertain", "restored")}
    assert len(await bench.calls()) == called


@pytest.mark.parametrize(
    ("setting", "words"),
    [({"mock_family": "none"}, "NOTIFIER_MOCK_FAMILY=none"), ({"provider": "smtp"}, "NOTIFIER_PROVIDER=smtp")],
)
def test_batches_need_a_provider_that_takes_them(setting: dict[str, str], words: str) -> None:
    with pytest.raises(ValueError, match=r"NOTIFIER_BATCH_MAX \(5\) must be 1 with " + words):
        Settings(batch_max=5, **setting)


async def test_a_batch_whose_template_is_looked_up_holds_up_no_other(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = asyncio.Event()

    async def find(_conn: object, _hash: str) -> None:
        await found.wait()

    async def settle(_results: object) -> bool:
        return True

    monkeypatch.setattr(templates, "find", find)
    async with a_bench(database_url, tmp_path) as bench:
        for number in range(4):
            await bench.rig.accept("user.signed_up", f"u{number}")
        claims = sorted(await bench.claim(ttl_s=60, batch_max=2), key=lambda claim: str(claim.batch_id))
        lasts = boot_clock() + 60
        strange = [Held(claim._replace(template_hash="another"), lasts, probe=False) for claim in claims[:2]]
        known = [Held(claim, lasts, probe=False) for claim in claims[2:]]
        deliverer = Deliverer(bench.runtime, bench.provider, Breaker())
        waiting = asyncio.create_task(deliverer.deliver_batch(strange, settle))
        await asyncio.sleep(0)
        sent = await asyncio.wait_for(deliverer.deliver_batch(known, settle), 10)
        assert [result.settlement.state for result in sent] == [State.SENT] * 2
        assert not waiting.done()
        found.set()
        await waiting
