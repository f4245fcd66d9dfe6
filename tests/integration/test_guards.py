"""Guards that only a race shows: each test stops somebody half way and looks at what the other one does.

The rest of the guards are tested beside the statements they stand in; docs/guarantees.md has the whole list, and
`make guards` takes each of them out of a copy and sees its test fail.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from notifier import observe
from notifier.domain.event import Event, Profile
from notifier.domain.journey import Creation
from notifier.domain.notification import Settlement, State
from notifier.ids import new_id_text
from notifier.ingest.transaction import Accepted, Door, transact
from notifier.store import acceptance, deliveries, moves, operator_moves, outbox, results, users
from notifier.store.acceptance import Overtaken, Taken
from notifier.store.results import Result
from tests.support.rig import SENT, Rig, a_call, ago, an_event, open_rig
from tests.support.stack import until

SIGNUP, LOGIN = "user.signed_up", "user.logged_in"
NOT_BEGUN = Settlement(State.PENDING, None, doubt=False, counted=False)
UNCERTAIN = Settlement(State.UNCERTAIN, "timeout", doubt=True)
PATIENCE_S = 5.0


@pytest.fixture
async def rig(database_url: str) -> AsyncIterator[Rig]:
    async with open_rig(database_url) as opened:
        yield opened


async def take(rig: Rig, *group: Event) -> list[dict[str, Any]]:
    """Run a group as one transaction that waits for whoever is in its way; their answers."""
    door = Door(rig.database, rig.journeys, rig.ingest.wakeup)
    taken = await transact(door, group, PATIENCE_S)
    return [dict(one.answer) for one in taken if isinstance(one, Accepted)]


async def until_it_waits(rig: Rig, task: asyncio.Task[Any], waiting: int = 1) -> None:
    """Until the task stands at a lock too, so that `waiting` do, or is through because there was none."""
    mine = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"

    async def stopped() -> bool:
        return task.done() or await rig.value(mine) >= waiting

    await until(stopped, "it waits or is through")


async def three_days_pass(rig: Rig) -> None:
    await rig.rows("UPDATE installation SET clock_offset = interval '72 hours'")


async def places(rig: Rig, notification: UUID) -> list[str]:
    tables = ("scheduled_sends", "deliveries", "settlements")
    return [t for t in tables if await rig.value(f"SELECT count(*) FROM {t} WHERE id = $1", notification)]


def repeats() -> float:
    return float(observe.CANCEL_REPEATS._value.get())


# ---------------------------------------------------------------------------------------------- deciding


def a_decision() -> Taken:
    at = ago(minutes=1)
    creation = Creation("onboarding", at, at, (), at, {}, State.PENDING, None, None)
    return Taken(an_event(SIGNUP, "ada", at), at, {}, [outbox.Decision(new_id_text(), creation)])


async def test_of_two_decisions_at_once_one_stands(rig: Rig) -> None:
    """Nobody holds the user's lock here, as if there were none: the outbox itself lets one of them in."""
    first, second = a_decision(), a_decision()

    async def decide() -> None:
        async with rig.database.connection() as conn:
            await acceptance.write(conn, [second], ago(), ago())

    async with rig.database.transaction() as conn:
        await acceptance.write(conn, [first], ago(), ago())
        other = asyncio.create_task(decide())
        await until_it_waits(rig, other)
    with pytest.raises(asyncpg.UniqueViolationError, match="outbox_once"):
        await other
    [decision] = first.decisions
    assert [row["id"] for row in await rig.rows("SELECT id FROM outbox")] == [UUID(decision.id)]
    assert [row["id"] for row in await rig.rows("SELECT id FROM deliveries")] == [UUID(decision.id)]


async def test_a_login_beside_a_signup_in_flight_waits_for_it(rig: Rig) -> None:
    """Side by side each would miss the other: the follow-up would be scheduled although the user logged in."""
    # A known user, and a signup that adds nothing to the profile: nobody waits for a row that is only being written.
    await rig.accept("user.updated", "ada", email="ada@example.com")
    async with rig.database.connection() as conn:
        await conn.execute("BEGIN")
        await acceptance.write(conn, [a_decision()], ago(), ago())  # the signup has read, and cannot decide yet
        signup = asyncio.create_task(take(rig, an_event(SIGNUP, "ada", ago(minutes=1), email=None)))
        await until_it_waits(rig, signup)
        login = asyncio.create_task(take(rig, an_event(LOGIN, "ada")))
        await until_it_waits(rig, login, waiting=2)
        await conn.execute("ROLLBACK")
    await signup
    [answer] = await login
    assert [row["kind"] for row in answer["canceled"]] == ["followup"]
    assert (await rig.states("ada"))["followup"] == "canceled"


@pytest.mark.parametrize("is_stored", [True, False])
async def test_a_user_somebody_else_was_making_is_read_and_one_that_came_to_nothing_is_new(
    rig: Rig, *, is_stored: bool
) -> None:
    """The look began before there was such a user; only what the lock waited for says whether there is one now."""
    async with rig.database.connection() as conn:
        await conn.execute("BEGIN")
        await acceptance.meet(conn, [an_event(SIGNUP, "ada", ago(minutes=1))])
        await acceptance.write(conn, [a_decision()], ago(), ago())
        login = asyncio.create_task(take(rig, an_event(LOGIN, "ada")))
        await until_it_waits(rig, login)
        await conn.execute("COMMIT" if is_stored else "ROLLBACK")
    [answer] = await login
    assert [row["kind"] for row in answer["untouched"]] == (["onboarding"] if is_stored else [])


@pytest.mark.parametrize("says", [{}, {"email": "new@example.com"}])
async def test_only_a_user_that_was_not_there_is_new(rig: Rig, says: dict[str, str]) -> None:
    """Also where the look writes a user anew, because the event says something new of it."""
    await rig.accept("user.seen", "ada", email="old@example.com")
    async with rig.database.transaction() as conn:
        meeting = await acceptance.meet(conn, [an_event(LOGIN, user, ago(), **says) for user in ("ada", "bob")])
    assert [met.is_new_user for met in meeting.met] == [False, True]


async def test_an_event_that_waits_for_anothers_lock_is_later_than_what_came_meanwhile(rig: Rig) -> None:
    """Neither login nor signup says when it was: the login waits with its group, so it is the later of the two."""
    for user in ("ada", "bob"):
        await rig.accept("user.seen", user, email=f"{user}@example.com")
    async with rig.database.connection() as conn:
        await conn.execute("BEGIN")
        await conn.execute("SELECT FROM users WHERE user_id = 'ada' FOR NO KEY UPDATE")
        group = asyncio.create_task(take(rig, an_event("user.seen", "ada"), an_event(LOGIN, "bob")))
        await until_it_waits(rig, group)
        await rig.accept(SIGNUP, "bob")
        await conn.execute("ROLLBACK")
    [_, answer] = await group
    assert [row["kind"] for row in answer["canceled"]] == ["followup"]


# ---------------------------------------------------------------------------------------------- one order for all
#
# Each of these asks for the later row first. Who takes rows in their order waits for the earlier one with empty hands,
# and whoever holds that can go on; otherwise the two would wait for each other.


async def test_users_are_locked_in_their_order(rig: Rig) -> None:
    for user in ("ada", "bob"):
        await rig.accept("user.seen", user)

    async def lock() -> None:
        async with rig.database.transaction() as conn:
            await acceptance.meet(conn, [an_event(SIGNUP, "bob"), an_event(SIGNUP, "ada")])

    async with rig.database.transaction() as conn:
        await users.lock(conn, [("ada", None, Profile())])
        other = asyncio.create_task(lock())
        await until_it_waits(rig, other)
        await conn.fetch("SELECT FROM users WHERE user_id = 'bob' FOR NO KEY UPDATE NOWAIT")
    await other


async def test_events_are_entered_in_their_order(rig: Rig) -> None:
    first, second = (Taken(an_event(SIGNUP, user, id_=user), ago(), {}) for user in ("ada", "bob"))

    async def enter(*taken: Taken) -> None:
        async with rig.database.transaction() as conn:
            await acceptance.write(conn, taken, ago(), ago())

    async with rig.database.transaction() as conn:
        await acceptance.write(conn, [first], ago(), ago())
        other = asyncio.create_task(enter(second, first))
        await until_it_waits(rig, other)
        await acceptance.write(conn, [second], ago(), ago())
    with pytest.raises(Overtaken):
        await other


async def test_one_id_of_two_users_at_once_is_one_event(rig: Rig) -> None:
    """No user's lock stands between them: whoever comes second is undone as a whole, and told when it tries again."""
    await rig.accept("user.seen", "bob")
    async with rig.database.transaction() as conn:
        await acceptance.write(conn, [Taken(an_event(SIGNUP, "ada", id_="one"), ago(), {})], ago(), ago())
        other = asyncio.create_task(take(rig, an_event(SIGNUP, "bob", ago(minutes=1), id_="one")))
        await until_it_waits(rig, other)
    with pytest.raises(Overtaken):
        await other
    assert await rig.states("bob") == {}
    assert await rig.rows("SELECT FROM users WHERE user_id = 'bob' AND email IS NOT NULL") == []


@pytest.mark.parametrize("settlement", [SENT, NOT_BEGUN], ids=["settle", "give-back"])
async def test_results_are_written_in_the_order_of_their_ids(rig: Rig, settlement: Settlement) -> None:
    for user in ("ada", "bob"):
        await rig.accept(SIGNUP, user)
    first, second = sorted(await rig.claim("w1"), key=lambda claim: claim.id)
    async with rig.database.transaction() as conn:
        await conn.execute("SELECT FROM deliveries WHERE id = $1 FOR UPDATE", first.id)
        writing = asyncio.create_task(rig.settle("w1", [second, first], settlement))
        await until_it_waits(rig, writing)
        await conn.fetch("SELECT FROM deliveries WHERE id = $1 FOR UPDATE NOWAIT", second.id)
    assert await writing == 2


@pytest.mark.parametrize("settlement", [SENT, UNCERTAIN, NOT_BEGUN], ids=["sent", "settle", "give-back"])
async def test_a_result_that_waited_for_its_row_is_written_if_the_claim_still_stands(
    rig: Rig, settlement: Settlement
) -> None:
    for user in ("ada", "bob"):
        await rig.accept(SIGNUP, user)
    erased, lost = sorted(await rig.claim("w1", ttl_s=0), key=lambda claim: claim.id)
    other = rig.claimant("w2")
    async with rig.database.transaction() as conn:
        await deliveries.forget(conn, [erased.id])
        assert len(await deliveries.take_over(conn, other, list(other.templates), [lost.id])) == 1
        writing = asyncio.create_task(rig.settle("w1", [erased, lost], settlement))
        await until_it_waits(rig, writing)
    assert await writing == 1
    states = [(await rig.states(user))["onboarding"] for user in (erased.user_id, lost.user_id)]
    assert states == [settlement.state.value, "sending"]


# ---------------------------------------------------------------------------------------------- canceling


async def test_a_login_finds_what_a_release_in_flight_moves_at_the_first_look(rig: Rig) -> None:
    """Where it waited first it asks first: the row is gone from there, and the next statement sees where it went."""
    await rig.accept(SIGNUP, "ada")
    await three_days_pass(rig)
    before = repeats()
    async with rig.database.transaction() as conn:
        assert (await moves.release(conn)).owed == 1
        login = asyncio.create_task(take(rig, an_event(LOGIN, "ada")))
        await until_it_waits(rig, login)
    [answer] = await login
    assert [row["kind"] for row in answer["canceled"]] == ["followup"]
    assert repeats() == before, "a worker may have it before a second look"


async def test_an_operator_finds_what_a_release_in_flight_moves_at_the_first_look(rig: Rig) -> None:
    await rig.accept(SIGNUP, "ada")
    await three_days_pass(rig)
    notification = await rig.value("SELECT id FROM scheduled_sends")

    async def cancel() -> bool:
        async with rig.database.connection() as conn:
            return await operator_moves.cancel(conn, notification, 0, "operator:key:test")

    async with rig.database.transaction() as conn:
        assert (await moves.release(conn)).owed == 1
        canceling = asyncio.create_task(cancel())
        await until_it_waits(rig, canceling)
    assert await canceling
    assert await places(rig, notification) == ["settlements"]


async def test_what_comes_back_behind_a_cancel_is_stopped_in_the_next_round(rig: Rig) -> None:
    """The cancel waits for one row and has read the other as claimed, which is given back meanwhile."""
    for user in ("ada", "bob"):
        await rig.accept(SIGNUP, user, ago(days=4))
    claims = [claim for claim in await rig.claim() if claim.kind == "followup"]
    held, late = sorted(claims, key=lambda claim: claim.id)
    assert await rig.settle("w1", [held], NOT_BEGUN) == 1
    before = repeats()
    async with rig.database.transaction() as conn:
        await conn.execute("SELECT FROM deliveries WHERE id = $1 FOR UPDATE", held.id)
        logins = asyncio.create_task(take(rig, *(an_event(LOGIN, claim.user_id) for claim in (held, late))))
        await until_it_waits(rig, logins)
        assert await rig.settle("w1", [late], NOT_BEGUN) == 1
    for answer in await logins:
        assert [row["kind"] for row in answer["canceled"]] == ["followup"], answer
    assert repeats() == before + 1


async def test_a_claim_in_between_is_never_canceled(rig: Rig) -> None:
    """The cancel has found both owed and waits for the first; the other one is claimed meanwhile."""
    for user in ("ada", "bob"):
        await rig.accept(SIGNUP, user, ago(days=4))
    rows = await rig.rows("SELECT id, user_id FROM deliveries WHERE kind = 'followup' ORDER BY id")
    held, late = rows
    async with rig.database.transaction() as conn:
        await conn.execute("SELECT FROM deliveries WHERE id = $1 FOR UPDATE", held["id"])
        logins = asyncio.create_task(take(rig, *(an_event(LOGIN, row["user_id"]) for row in rows)))
        await until_it_waits(rig, logins)
        assert late["id"] in {claim.id for claim in await rig.claim()}
    first, second = await logins
    assert [row["id"] for row in first["canceled"]] == [str(held["id"])]
    assert second["canceled"] == []
    assert ("followup", "sending") in [(row["kind"], row["state"]) for row in second["too_late"]]
    assert await places(rig, late["id"]) == ["deliveries"]


# ---------------------------------------------------------------------------------------------- release and claim


async def test_a_release_passes_over_what_somebody_holds(rig: Rig) -> None:
    """An api that froze over one user's follow-up must not hold up everybody else's."""
    for user in ("held", "free"):
        await rig.accept(SIGNUP, user)
    await three_days_pass(rig)
    async with rig.database.transaction() as conn:
        await conn.execute("SELECT FROM scheduled_sends WHERE user_id = 'held' FOR UPDATE")
        async with rig.database.connection() as other:
            assert (await moves.release(other)).moved == 1
        assert (await rig.states("free"))["followup"] == "pending"
    async with rig.database.connection() as other:
        assert (await moves.release(other)).moved == 1


async def test_a_release_moves_nothing_that_a_cancel_in_flight_has_taken(rig: Rig) -> None:
    await rig.accept(SIGNUP, "ada")
    await three_days_pass(rig)
    notification = await rig.value("SELECT id FROM scheduled_sends")

    async def release() -> int:
        async with rig.database.connection() as conn:
            return (await moves.release(conn)).moved

    async with rig.database.transaction() as conn:
        cancel = moves.Cancel(notification, "login", "event:test")
        assert await moves.cancel_scheduled(conn, [cancel]) == {notification}
        releasing = asyncio.create_task(release())
        await until_it_waits(rig, releasing)
    assert await releasing == 0
    assert await places(rig, notification) == ["settlements"]


async def test_a_claim_passes_over_what_another_claim_holds(rig: Rig) -> None:
    for user in ("ada", "bob"):
        await rig.accept(SIGNUP, user)
    claimant = rig.claimant("w1")
    async with rig.database.transaction() as conn:
        [first] = await deliveries.claim(conn, claimant, list(claimant.templates), 1)
        [second] = await rig.claim("w2")
    assert first.id != second.id
    assert await rig.claim("w3") == []


# ---------------------------------------------------------------------------------------------- evidence


async def test_evidence_counts_for_its_own_key_only(rig: Rig) -> None:
    """A person ordered a second mail under a new key: that the first one went out says nothing of the second."""
    await rig.accept(SIGNUP, "ada")
    old = await rig.claim("slow", ttl_s=0)
    assert await rig.settle("fast", await rig.take_over("fast"), UNCERTAIN) == 1
    async with rig.database.connection() as conn:
        assert await operator_moves.owe_again(conn, old[0].id, 2, State.UNCERTAIN, new_key=True)
    assert await rig.settle("w", await rig.claim("w"), UNCERTAIN) == 1
    late = [Result(old[0], SENT, a_call(SENT), "worker:slow")]
    async with rig.database.connection() as conn:
        assert not (await results.settle(conn, "slow", late)).ids
        await results.record(conn, "slow", late)
        assert await results.late_evidence(conn, "slow", late) == set()
        assert await results.reconcile(conn) == 0
    assert (await rig.states("ada"))["onboarding"] == "uncertain"
