"""The fence, the doubt and the places: what a claim, a take-over and a settle may do. Each test holds one guard."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from notifier.clock import boot_clock
from notifier.domain.notification import Settlement, State
from notifier.store import deliveries, moves, results
from notifier.store.deliveries import Place
from notifier.store.results import Call, Result
from notifier.worker.resume import Resume
from tests.support.rig import SENT, Rig, a_call, ago, open_rig

SIGNUP, LOGIN = "user.signed_up", "user.logged_in"
DOUBT = Settlement(State.PENDING, "timeout", doubt=True)
LATER = Settlement(State.PENDING, "http_429", doubt=False, wait=timedelta(hours=1), counted=False)
UNCERTAIN = Settlement(State.UNCERTAIN, "window_passed", doubt=True)


@pytest.fixture
async def rig(database_url: str) -> AsyncIterator[Rig]:
    async with open_rig(database_url) as opened:
        yield opened


async def test_many_claimers_share_the_rows_without_one_twice(rig: Rig) -> None:
    await asyncio.gather(*(rig.accept(SIGNUP, f"u{n}") for n in range(120)))
    barrier = asyncio.Barrier(6)

    async def claimer(name: str) -> list[str]:
        await barrier.wait()
        found: list[str] = []
        while claims := await rig.claim(name, limit=7):
            found += [str(claim.id) for claim in claims]
        return found

    ids = [id_ for found in await asyncio.gather(*(claimer(f"w{n}") for n in range(6))) for id_ in found]
    assert len(ids) == len(set(ids)) == 120


@pytest.mark.parametrize("settlement", [SENT, UNCERTAIN], ids=["sent", "not sent"])
async def test_a_worker_that_lost_its_claim_changes_nothing(rig: Rig, settlement: Settlement) -> None:
    await rig.accept(SIGNUP, "ada")
    slow = await rig.claim("slow", ttl_s=0)
    fast = await rig.take_over("fast")
    assert fast[0].generation == slow[0].generation + 1
    assert await rig.settle("slow", slow, settlement) == 0
    assert await rig.settle("slow", slow, DOUBT) == 0
    [row] = await rig.rows("SELECT claimed_by, generation FROM deliveries")
    assert (row["claimed_by"], row["generation"]) == ("fast", 2)
    assert await rig.settle("fast", fast) == 1


@pytest.mark.parametrize("settlement", [SENT, UNCERTAIN], ids=["sent", "not sent"])
async def test_the_owner_alone_is_not_enough_nor_is_the_generation(rig: Rig, settlement: Settlement) -> None:
    """After a fail-over a generation may be used twice, and one process claims a row twice: both must match."""
    await rig.accept(SIGNUP, "ada")
    first = await rig.claim("w", ttl_s=0)
    await rig.take_over("w")
    assert await rig.settle("w", first, settlement) == 0, "the same owner with an older generation"
    await rig.rows("UPDATE deliveries SET generation = 1, claimed_by = 'other' RETURNING id")
    assert await rig.settle("w", first, settlement) == 0, "the same generation with another owner"


async def test_a_give_back_needs_owner_and_generation_too(rig: Rig) -> None:
    await rig.accept(SIGNUP, "ada")
    first = await rig.claim("w", ttl_s=0)
    [second] = await rig.take_over("w")
    assert await rig.settle("w", first, LATER) == 0, "the same owner with an older generation"
    assert await rig.settle("other", [second], LATER) == 0, "the same generation with another owner"
    async with rig.database.connection() as conn:
        assert not await deliveries.begin(conn, first[0], "w"), "begin with an older generation"
    [row] = await rig.rows("SELECT claimed_by, generation, calling FROM deliveries")
    assert row == {"claimed_by": "w", "generation": 2, "calling": True}
    assert await rig.settle("w", [second], LATER) == 1


async def test_a_taken_over_claim_is_in_doubt_since_the_first_one(rig: Rig) -> None:
    await rig.accept(SIGNUP, "ada")
    [first] = await rig.claim("w1", ttl_s=0)
    [second] = await rig.take_over("w2", ttl_s=0)
    [third] = await rig.take_over("w3")
    assert first.doubt_since is None
    assert second.doubt_since == third.doubt_since == first.claimed_at
    assert (first.attempts, second.attempts, third.attempts) == (1, 2, 3)


async def test_without_keys_only_begin_makes_doubt(rig: Rig) -> None:
    await rig.accept(SIGNUP, "ada")
    await rig.accept(SIGNUP, "bob")
    claims = await rig.claim("w1", ttl_s=0, has_keys=False)
    async with rig.database.connection() as conn:
        assert await deliveries.begin(conn, claims[0], "w1")
        assert not await deliveries.begin(conn, claims[1], "another")
    doubt = {claim.id: claim.in_doubt for claim in await rig.take_over("w2", has_keys=False)}
    assert doubt == {claims[0].id: True, claims[1].id: False}


async def test_a_live_claim_is_not_taken_over(rig: Rig) -> None:
    await rig.accept(SIGNUP, "ada")
    [claim] = await rig.claim("w1")
    claimant = rig.claimant("w2")
    async with rig.database.connection() as conn:
        assert (await deliveries.look(conn, claimant)).expired == []
        assert await deliveries.take_over(conn, claimant, list(claimant.templates), [claim.id]) == []
    assert await rig.claim("w2") == []


async def test_a_give_back_uncounts_the_attempt_and_keeps_generation_and_doubt(rig: Rig) -> None:
    await rig.accept(SIGNUP, "ada")
    await rig.claim("w1", ttl_s=0)
    [claim] = await rig.take_over("w2")
    async with rig.database.connection() as conn:
        back = Settlement(State.PENDING, None, doubt=False, counted=False)
        assert await results.put_back(conn, "w2", [Result(claim, back, None, "rule:None")]) == {claim.id}
    [row] = await rig.rows("SELECT * FROM deliveries")
    assert (row["generation"], row["attempts"], row["claimed_by"], row["calling"]) == (2, 1, None, False)
    assert row["doubt_since"].timestamp() == claim.doubt_since  # to the microsecond


async def test_a_row_in_doubt_is_never_canceled(rig: Rig) -> None:
    await rig.accept(SIGNUP, "ada", ago(days=4))
    claims = [claim for claim in await rig.claim() if claim.kind == "followup"]
    assert await rig.settle("w1", claims, DOUBT) == 1
    assert await rig.states("ada") == {"onboarding": "sending", "followup": "pending"}
    answer = await rig.accept(LOGIN, "ada")
    assert (answer["canceled"], [row["state"] for row in answer["too_late"]]) == ([], ["pending"])


async def test_a_row_refused_for_certain_is_canceled_by_the_next_event(rig: Rig) -> None:
    await rig.accept(SIGNUP, "ada", ago(days=4))
    claims = [claim for claim in await rig.claim() if claim.kind == "followup"]
    assert (await rig.accept(LOGIN, "ada"))["canceled"] == []
    assert await rig.settle("w1", claims, LATER) == 1
    assert [row["kind"] for row in (await rig.accept(LOGIN, "ada"))["canceled"]] == ["followup"]


async def test_a_wait_is_kept_and_an_uncounted_attempt_given_back(rig: Rig) -> None:
    await rig.accept(SIGNUP, "ada")
    await rig.settle("w1", await rig.claim("w1"), LATER)
    [row] = await rig.rows("SELECT attempts, waits, next_attempt_at - notifier.now() AS wait, reason FROM deliveries")
    assert (row["attempts"], row["waits"], row["reason"]) == (0, 1, "http_429")
    assert timedelta(minutes=59) < row["wait"] <= timedelta(hours=1)
    assert await rig.claim("w2") == []


async def test_settling_twice_records_once(rig: Rig) -> None:
    await rig.accept(SIGNUP, "ada")
    claims = await rig.claim("w1")
    assert await rig.settle("w1", claims) == 1
    assert await rig.settle("w1", claims) == 1, "the answer to the first was lost, and what stands there is ours"
    result = Result(claims[0], SENT, a_call(SENT), "worker:w1")
    async with rig.database.connection() as conn:
        assert await results.settled_by_us(conn, "w1", [result]) == {claims[0].id}
        assert await results.settled_by_us(conn, "w2", [result]) == set()
    assert await rig.value("SELECT count(*) FROM calls") == 1


async def test_each_end_keeps_the_times_of_its_own_call(rig: Rig) -> None:
    """Written together, by one statement: two of one call, and one of another."""
    for user in ("u1", "u2", "u3"):
        await rig.accept(SIGNUP, user)
    claims = sorted(await rig.claim("w1"))
    now = boot_clock()
    calls = [Call("accepted", None, now - 60, 2.5)] * 2 + [Call("accepted", None, now - 30, 0.25)]
    made = [Result(claim, SENT, call, "worker:w1") for claim, call in zip(claims, calls, strict=True)]
    async with rig.database.connection() as conn:
        await results.settle(conn, "w1", made)
    rows = await rig.rows(
        """
        SELECT call_ended_at - call_started_at AS took, settled_at - call_started_at AS ago FROM settlements ORDER BY id
        """
    )
    assert [row["took"].total_seconds() for row in rows] == [2.5, 2.5, 0.25]
    assert [60 < row["ago"].total_seconds() < 70 for row in rows] == [True, True, False]
    assert 30 < rows[2]["ago"].total_seconds() < 40


async def test_a_recorded_call_names_its_claim_to_the_microsecond(rig: Rig) -> None:
    await rig.accept(SIGNUP, "ada")
    claims = await rig.claim("w1")
    claimed_at = await rig.value("SELECT claimed_at FROM deliveries")
    assert await rig.settle("w1", claims, LATER) == 1
    assert await rig.value("SELECT claimed_at FROM attempts") == claimed_at


async def test_late_but_certain_knowledge_ends_the_uncertainty(rig: Rig) -> None:
    await rig.accept(SIGNUP, "ada")
    slow = await rig.claim("slow", ttl_s=0)
    fast = await rig.take_over("fast")
    await rig.settle("fast", fast, UNCERTAIN)
    assert await rig.settle("slow", slow) == 0
    late = Result(slow[0], SENT, a_call(SENT), "worker:slow")
    async with rig.database.connection() as conn:
        assert await results.late_evidence(conn, "slow", [late]) == {slow[0].id}
        assert await results.late_evidence(conn, "slow", [late]) == set()
    [row] = await rig.rows("SELECT state, evidence, doubt_since, reason FROM settlements")
    assert row == {"state": "sent", "evidence": "late_settle", "doubt_since": None, "reason": None}


async def test_the_record_of_attempts_is_evidence_too(rig: Rig) -> None:
    await rig.accept(SIGNUP, "ada")
    slow = await rig.claim("slow", ttl_s=0)
    await rig.settle("fast", await rig.take_over("fast"), UNCERTAIN)
    async with rig.database.connection() as conn:
        assert await results.reconcile(conn) == 0
        assert await rig.settle("slow", slow) == 0
        await results.record(conn, "slow", [Result(claim, SENT, a_call(SENT), "worker:slow") for claim in slow])
        assert await results.reconcile(conn) == 1
    assert await rig.states("ada") == {"onboarding": "sent", "followup": "scheduled"}


async def test_the_address_is_that_of_the_first_claim(rig: Rig) -> None:
    await rig.accept(SIGNUP, "ada", email="old@example.com")
    await rig.accept("user.updated", "ada", email="new@example.com")
    [first] = await rig.claim("w1", ttl_s=0)
    await rig.accept("user.updated", "ada", email="newer@example.com")
    [second] = await rig.take_over("w2")
    assert (first.recipient, second.recipient) == ("new@example.com", "new@example.com")


async def test_the_template_is_that_of_the_first_claim(rig: Rig) -> None:
    await rig.accept(SIGNUP, "ada")
    [first] = await rig.claim("w1", ttl_s=0)
    newer = rig.claimant("w2")
    newer = deliveries.Claimant("w2", newer.ttl, dict.fromkeys(newer.templates, "another"), "mock", "mock:test", True)
    async with rig.database.connection() as conn:
        [second] = await deliveries.take_over(conn, newer, list(newer.templates), [first.id])
    assert second.template_hash == first.template_hash != "another"


GONE = """
    INSERT INTO deliveries (id, user_id, kind, next_attempt_at)
    SELECT uuidv7(), 'gone', 'onboarding', now() - interval '1 hour' FROM generate_series(1, 4000)
"""
BLOCKS = "SELECT heap_blks_read + heap_blks_hit FROM pg_statio_user_tables WHERE relname = 'deliveries'"


async def test_no_claim_passes_over_what_a_held_back_horizon_keeps(rig: Rig) -> None:
    claimant, resume = rig.claimant("w"), Resume()
    kinds = list(claimant.templates)
    async with rig.database.connection() as conn, rig.database.transaction() as old:

        async def blocks_of(since: list[Place] | None) -> tuple[int, int]:
            """How many a claim reads, and what it gets."""
            before = await conn.fetchval(BLOCKS)
            claims = await deliveries.claim(conn, claimant, kinds, 10, since)
            resume.learn(claims, 10)
            await conn.execute("SELECT pg_stat_force_next_flush()")
            return await conn.fetchval(BLOCKS) - before, len(claims)

        await conn.execute("ALTER TABLE deliveries SET (autovacuum_enabled = off)")
        await conn.execute(GONE)
        await old.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        await old.fetchval("SELECT count(*) FROM installation")
        await conn.execute("DELETE FROM deliveries")
        await rig.accept(SIGNUP, "ada")
        resume.see(await deliveries.look(conn, claimant))
        await conn.execute("SELECT pg_stat_force_next_flush()")
        blocks, found = await blocks_of(resume.places(kinds))
        assert (blocks < 100, found) == (True, 1), f"{blocks} blocks to the first of its kind"
        await rig.accept(SIGNUP, "bob")
        blocks, found = await blocks_of(resume.places(kinds))
        assert (blocks < 100, found) == (True, 1), f"{blocks} blocks after a claim that was not full"
        blocks, found = await blocks_of(None)
        assert (blocks > 150, found) == (True, 0), f"{blocks} blocks: there was nothing to pass over"


async def test_an_unknown_kind_is_left_alone(rig: Rig) -> None:
    await rig.accept(SIGNUP, "ada")
    claimant = rig.claimant("old")
    async with rig.database.connection() as conn:
        assert await deliveries.claim(conn, claimant, ["followup"], 10) == []
    assert await rig.states("ada") == {"onboarding": "pending", "followup": "scheduled"}


@pytest.mark.parametrize("name", ["pause", "pause:onboarding", "pause:provider:mock"])
async def test_a_switch_holds_claims_and_take_overs(rig: Rig, name: str) -> None:
    await rig.accept(SIGNUP, "ada")
    [claim] = await rig.claim("w1", ttl_s=0)
    await rig.accept(SIGNUP, "bob")
    await rig.rows(
        "INSERT INTO switches VALUES ($1, 'ops', 'test', notifier.now(), notifier.now() + interval '1 min')", name
    )
    claimant = rig.claimant("w2")
    async with rig.database.connection() as conn:
        assert await rig.claim("w2") == []
        look = await deliveries.look(conn, claimant)
        assert (look.expired, look.due) == ([], {}), "what is paused gives nobody a reason to claim"
        assert await deliveries.take_over(conn, claimant, list(claimant.templates), [claim.id]) == []
        await rig.rows("UPDATE installation SET clock_offset = interval '2 min'")  # switches end on business time
        assert len(await deliveries.take_over(conn, claimant, list(claimant.templates), [claim.id])) == 1
    assert len(await rig.claim("w2")) == 1


async def test_a_suppressed_address_is_seen_at_the_claim(rig: Rig) -> None:
    await rig.accept(SIGNUP, "ada", email="Ada@Example.com")
    await rig.rows("INSERT INTO suppressions (address, reason) VALUES ('ada@example.com', 'bounce')")
    [claim] = await rig.claim()
    assert claim.suppressed == "bounce"


async def test_release_moves_what_is_due_and_skips_who_has_no_address(rig: Rig) -> None:
    await rig.accept(SIGNUP, "ada")
    await rig.accept(SIGNUP, "bob", email=None)
    async with rig.database.connection() as conn:
        assert (await moves.release(conn)).moved == 0
        await rig.rows("UPDATE installation SET clock_offset = interval '72 hours'")
        released = await moves.release(conn)
        assert (released.moved, released.owed) == (2, 1)
    assert (await rig.states("ada"))["followup"] == "pending"
    [row] = await rig.rows("SELECT state, reason FROM settlements WHERE user_id = 'bob' AND kind = 'followup'")
    assert row == {"state": "skipped", "reason": "no_recipient"}


async def test_many_releases_at_once_move_each_row_once(rig: Rig) -> None:
    await asyncio.gather(*(rig.accept(SIGNUP, f"u{n}") for n in range(200)))
    await rig.rows("UPDATE installation SET clock_offset = interval '72 hours'")

    async def release() -> int:
        async with rig.database.connection() as conn:
            return (await moves.release(conn)).moved

    assert sum(await asyncio.gather(*(release() for _ in range(6)))) == 200
    assert await rig.value("SELECT count(*) FROM deliveries WHERE kind = 'followup'") == 200


async def test_a_second_decision_for_one_kind_is_impossible(rig: Rig) -> None:
    import asyncpg

    await rig.accept(SIGNUP, "ada")
    with pytest.raises(asyncpg.UniqueViolationError):
        await rig.rows(
            "INSERT INTO outbox (id, user_id, kind, decided_at, decided_by, due_at, cancel_from, data) "
            "SELECT gen_random_uuid(), user_id, kind, decided_at, decided_by, due_at, cancel_from, data FROM outbox"
        )
