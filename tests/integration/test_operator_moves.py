"""Each operator's move by itself: it takes the row it names, and no other, whatever was true when it was read."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from notifier.domain.notification import State
from notifier.store import operator_moves
from tests.support.api import Api

BY = "operator:key:test"


async def snapshot(api: Api) -> list[Any]:
    return [
        [dict(row) for row in await api.conn.fetch(f"SELECT * FROM {table} ORDER BY id")]
        for table in ("scheduled_sends", "deliveries", "settlements")
    ]


async def test_a_cancel_takes_nothing_of_another_generation_claimed_or_in_doubt(api: Api) -> None:
    both = await api.signup("u_1")
    sending = await api.bring_to("sending", "u_2") if await api.claim() else ""
    doubtful = await api.bring_to("doubtful", "u_3")
    before = await snapshot(api)
    for notification, generation in [(both["followup"], 1), (both["onboarding"], 0), (sending, 1), (doubtful, 1)]:
        assert not await operator_moves.cancel(api.conn, UUID(notification), generation, BY), notification
    assert await snapshot(api) == before
    assert await operator_moves.cancel(api.conn, UUID(both["followup"]), 0, BY)
    assert not await operator_moves.cancel(api.conn, UUID(both["followup"]), 0, BY)


async def test_what_is_closed_moves_only_from_the_state_and_generation_named(api: Api) -> None:
    failed = UUID(await api.bring_to("failed", "u_1"))
    uncertain = UUID(await api.bring_to("uncertain", "u_2"))
    before = await snapshot(api)
    for generation, state in [(0, State.FAILED), (1, State.SKIPPED), (1, State.SENT)]:
        assert not await operator_moves.owe_again(api.conn, failed, generation, state)
        assert not await operator_moves.schedule_again(api.conn, failed, generation, state)
    assert not await operator_moves.owe_again(api.conn, failed, 1, State.UNCERTAIN, new_key=True)
    ends = {"state": State.SENT, "decided_by": BY, "evidence": "operator"}
    assert not await operator_moves.resolve(api.conn, failed, 1, **ends)
    assert not await operator_moves.resolve(api.conn, uncertain, 0, **ends)
    assert await snapshot(api) == before
    assert await operator_moves.owe_again(api.conn, failed, 1, State.FAILED)
    assert await operator_moves.resolve(api.conn, uncertain, 1, **ends)
    assert not await operator_moves.resolve(api.conn, uncertain, 2, **ends)
