"""GET /v1/invariants: what must never be, with live counts; and, openly, what is not counted here."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from aiohttp import web

from notifier import observe
from notifier.http.bodies import answer
from notifier.http.context import CONTEXT
from notifier.runtime import Runtime
from notifier.store import invariants
from notifier.store.database import Connection
from notifier.store.invariants import Suspects
from notifier.store.notifications import WALK_IN_ORDER
from providers.base import Family

RULES: Mapping[str, str] = {
    "I0": "every notification is in exactly one place: scheduled, open or closed",
    "I1": "every acknowledged signup has exactly one accepted onboarding mail, or a reason why not",
    "I2": "no two accepted mails share user, kind and resend number",
    "I3": "nothing canceled is accepted, and no call for it starts afterwards",
    "I4": "whatever waited for its date and reached it was taken once, or ended with a reason",
    "I5": "every mail taken goes back to an event",
    "I6": "what was accepted is sent or uncertain, and what is sent was accepted",
    "I7": "no claim stays expired for longer than one more claim time and a poll while a worker could take it",
    "A1": "no answer leaves standing what its event could have stopped (counted since this process started)",
}
SECOND_LOOK_S = 8.0  # 2 s to do what was left undone, and one heartbeat after them to prove who was alive
TIME_TO_ACT = timedelta(seconds=2)


@dataclass(slots=True)
class Judge:
    """Counts violations, one count at a time: who asks while one is under way gets that one.

    What is late may just have become so: a scheduler came back, business time was moved. It counts when it is still
    there at a second look, after somebody who could have moved it was alive all the while.
    """

    runtime: Runtime
    family: Family
    second_look_s: float = SECOND_LOOK_S
    _under_way: asyncio.Task[dict[str, int]] | None = None

    async def count(self) -> dict[str, int]:
        """Rule → live violations, for the rules that are counted; sets their gauges."""
        if self._under_way is None or self._under_way.done():
            self._under_way = asyncio.create_task(self._count())
        return await asyncio.shield(self._under_way)  # who goes away leaves it to the others

    async def rest(self) -> None:
        """Count no more."""
        if self._under_way is not None:
            self._under_way.cancel()
            await asyncio.wait({self._under_way})

    async def _count(self) -> dict[str, int]:
        async with self.runtime.database.transaction() as conn:
            await conn.execute(WALK_IN_ORDER)
            counted = await self._on_record(conn)
            sends, claims = await self._late(conn)
        if sends.rows or claims.rows:
            await asyncio.sleep(self.second_look_s)
            async with self.runtime.database.transaction() as conn:
                await conn.execute(WALK_IN_ORDER)
                sends_after, claims_after = await self._late(conn, sends.at or claims.at)
            counted |= {"I4": sends_after.among(sends), "I7": claims_after.among(claims)}
        else:
            counted |= {"I4": 0, "I7": 0}
        counted["A1"] = observe.answers_left_standing()
        for rule, violations in counted.items():
            observe.INVARIANT_VIOLATIONS.labels(rule).set(violations)
        return counted

    async def _on_record(self, conn: Connection) -> dict[str, int]:
        counted = {
            "I0": await invariants.doubled_or_lost(conn),
            "I1": await invariants.promised_and_missing(conn),
            "I3": await invariants.canceled_and_called(conn),
            "I5": await invariants.unasked(conn),
            "I6": await invariants.sent_and_record_differ(conn),
        }
        # A provider that drops the second copy gives it an id all the same: our record cannot tell one mail from two.
        if self.family is not Family.DROP:
            counted["I2"] = await invariants.accepted_twice(conn)
        return counted

    async def _late(self, conn: Connection, first_look: datetime | None = None) -> tuple[Suspects, Suspects]:
        alive_since = None if first_look is None else first_look + TIME_TO_ACT
        patience = invariants.patience(self.runtime.settings)
        return (
            await invariants.overdue_sends(conn, patience, alive_since),
            await invariants.overdue_claims(conn, patience, self.runtime.journeys.kinds, alive_since),
        )


JUDGE: web.AppKey[Judge] = web.AppKey("judge", Judge)


async def get_invariants(request: web.Request) -> web.Response:
    """Count what can be counted cheaply on a running installation: the newest rows, from indexes."""
    request.app[CONTEXT].keys.require(request, "read")
    counted = await request.app[JUDGE].count()
    rules = {
        rule: {"rule": text, "checked": rule in counted, "violations": counted.get(rule)}
        for rule, text in RULES.items()
    }
    return answer({"invariants": rules, "violations": sum(counted.values())})
