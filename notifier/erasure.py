"""Erasing a user: nothing personal is kept, nothing open is sent any more, and the guards stay for ever."""

from __future__ import annotations

from dataclasses import dataclass

from notifier import observe
from notifier.coordination.wakeup import Wakeup
from notifier.domain.errors import Busy, NotFound
from notifier.domain.journey import REASON_ERASED
from notifier.domain.notification import NotificationRow, State
from notifier.store import audit, deliveries, moves, outbox, users
from notifier.store.database import Connection, Database
from notifier.store.repeat import until_committed

CANCEL_ROUNDS_MAX = 20  # repeats while a row keeps coming back; once is nearly always enough


@dataclass(frozen=True, slots=True)
class Erased:
    """All notifications of the user: stopped now, too late to stop (claimed, in doubt, sent), or closed before."""

    canceled: list[NotificationRow]
    too_late: list[NotificationRow]
    untouched: list[NotificationRow]


async def erase(database: Database, wakeup: Wakeup, user_id: str, actor: str) -> Erased:
    """Erase one user in one transaction; raises NotFound or Busy. Erasing again is harmless.

    A claimed row keeps the address it was frozen to until its claim ends; then it ends sent, canceled or uncertain.
    """

    async def work(conn: Connection) -> Erased:
        if not await users.lock_known(conn, user_id):
            raise NotFound("there is no user of this id")
        await users.erase(conn, user_id)
        erased = await _stop(conn, user_id, f"operator:{actor}")
        await deliveries.forget(conn, [row.id for row in erased.too_late])
        await outbox.empty(conn, user_id)
        detail = {"canceled": len(erased.canceled), "too_late": len(erased.too_late)}
        await audit.write(conn, actor=actor, act="erase", target="user", user_id=user_id, detail=detail)
        return erased

    erased = await until_committed(database, work)
    wakeup.nudge()
    observe.count_settled(State.CANCELED.value, REASON_ERASED, len(erased.canceled))
    return erased


async def _stop(conn: Connection, user_id: str, decided_by: str) -> Erased:
    """Cancel what can be stopped, in the order of the ingest: what waits first, then what is owed."""
    stopped = set()
    for _ in range(CANCEL_ROUNDS_MAX):
        standing = (await outbox.of_users(conn, [user_id]))[user_id]
        open_rows = [moves.Cancel(row.id, REASON_ERASED, decided_by) for row in standing if not row.state_is_closed]
        if not any(row.can_still_be_canceled for row in standing):
            return Erased(
                canceled=[row for row in standing if row.id in stopped],
                too_late=[row for row in standing if row.id not in stopped and row.is_too_late],
                untouched=[row for row in standing if row.id not in stopped and not row.is_too_late],
            )
        stopped |= await moves.cancel_scheduled(conn, open_rows)
        stopped |= await moves.cancel_open(conn, open_rows)
    raise Busy("a notification keeps moving while this stops it; repeat the request")
