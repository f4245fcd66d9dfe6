"""What an operator may do to one notification: cancel, retry, resolve. One transaction each, under the user's lock.

Claim, settle, give-back and release do not take that lock, so every move names what it expects; one that finds
nothing asks why, and tries again only when the row has come back to where it was.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from notifier import observe
from notifier.coordination.wakeup import Wakeup
from notifier.domain.errors import Busy, Moved, NotFound, WrongState
from notifier.domain.journey import Obstacle, replan
from notifier.domain.notification import State
from notifier.store import audit, installation, notifications, operator_moves, users
from notifier.store.database import Connection, Database
from notifier.store.notifications import Notification
from notifier.store.repeat import until_committed

ROUNDS_MAX = 20  # repeats while a row keeps coming back; once is nearly always enough

Outcome = Literal["sent", "not_sent"]


@dataclass(frozen=True, slots=True)
class Act:
    """Who wants something done to which notification, as it was at `generation`; `reason` is for the record."""

    notification: UUID
    generation: int
    actor: str
    reason: str | None

    @property
    def decided_by(self) -> str:
        """How the notification names this act."""
        return f"operator:{self.actor}"


@dataclass(frozen=True, slots=True)
class Operator:
    """Does operator acts for one process. Each raises NotFound, Moved (412), WrongState (409) or Busy (503)."""

    database: Database
    wakeup: Wakeup

    async def cancel(self, act: Act) -> Notification:
        """Stop what waits, or is owed and surely was never taken."""

        async def move(conn: Connection, found: Notification) -> bool:
            if found.state not in (State.SCHEDULED, State.PENDING):
                raise _wrong(found, f"it is {found.state}: only what is scheduled or pending can be canceled")
            if found.doubt_since is not None:
                raise _wrong(found, f"it is {found.state} and in doubt: an earlier attempt may have been accepted")
            return await operator_moves.cancel(conn, act.notification, act.generation, act.decided_by)

        return await self._do("cancel", act, move)

    async def retry(self, act: Act) -> Notification:
        """Plan anew what was skipped, failed, or canceled by an operator: as if it were decided now, under its key."""

        async def move(conn: Connection, found: Notification) -> bool:
            if found.state is State.CANCELED and not _by_operator(found):
                raise _wrong(found, f"it is canceled by {found.decided_by}: only an operator's cancel can be retried")
            if found.state not in (State.SKIPPED, State.FAILED, State.CANCELED):
                instead = "; resolve it, once you know what became of it" if found.state is State.UNCERTAIN else ""
                text = f"it is {found.state}: only what is skipped, failed or canceled can be retried{instead}"
                raise _wrong(found, text)
            if found.trimmed_at is not None:
                text = f"it ended long ago, and what its mail was made of was removed {found.trimmed_at:%Y-%m-%d}"
                raise _wrong(found, f"{text}: there is nothing left to send", "trimmed")
            is_due = found.due_at <= await installation.business_now(conn)
            obstacle = await _replan(conn, found, is_due=is_due)
            if obstacle is not None:
                raise _wrong(found, f"it would end {obstacle.state} at once: {obstacle.reason}", obstacle.reason)
            again = operator_moves.owe_again if is_due else operator_moves.schedule_again
            return await again(conn, act.notification, act.generation, found.state)

        return await self._do("retry", act, move)

    async def resolve(self, act: Act, outcome: Outcome) -> Notification:
        """Say what became of an uncertain notification; `not_sent` plans it anew, under a new key."""

        async def move(conn: Connection, found: Notification) -> bool:
            if found.state is not State.UNCERTAIN:
                raise _wrong(found, f"it is {found.state}: only what is uncertain can be resolved")
            if outcome == "sent":
                return await operator_moves.resolve(
                    conn,
                    act.notification,
                    act.generation,
                    state=State.SENT,
                    decided_by=act.decided_by,
                    evidence="operator",
                )
            obstacle = await _replan(conn, found, is_due=True)
            if obstacle is None:
                return await operator_moves.owe_again(conn, act.notification, act.generation, found.state, new_key=True)
            return await operator_moves.resolve(
                conn,
                act.notification,
                act.generation,
                state=obstacle.state,
                decided_by=obstacle.decided_by,
                reason=obstacle.reason,
            )

        return await self._do("resolve", act, move, outcome=outcome)

    async def _do(self, name: str, act: Act, move: _Move, **detail: Any) -> Notification:
        """Run one act until it is committed, then wake whoever may have work now."""

        async def work(conn: Connection) -> tuple[Notification, Notification]:
            before = await _lock(conn, act.notification)
            at = await installation.real_now(conn)
            for _ in range(ROUNDS_MAX):
                if before.generation != act.generation:
                    raise Moved(
                        f"it is at generation {before.generation} and {before.state} now, not {act.generation}",
                        generation=before.generation,
                    )
                if await move(conn, before):
                    after = await _read(conn, act.notification)
                    await _record(conn, name, act, at, before, after, detail)
                    return before, after
                observe.LOST_RACES.labels(name).inc()
                before = await _read(conn, act.notification)
            raise Busy("the notification keeps moving; read it again and repeat")

        _, after = await until_committed(self.database, work)
        self.wakeup.nudge()
        if after.state in (State.SENT, State.CANCELED, State.SKIPPED):
            observe.count_settled(after.state.value, after.reason)
        observe.log().info("operator_act", act=name, notification=str(act.notification), generation=after.generation)
        return after


_Move = Callable[[Connection, Notification], Awaitable[bool]]


async def _lock(conn: Connection, notification: UUID) -> Notification:
    """Lock the owner, then read: only a later statement sees what the lock waited for."""
    found = await notifications.read(conn, notification)
    if found is None or not await users.lock_known(conn, found.user_id):
        raise NotFound(f"there is no notification {notification}")
    return await _read(conn, notification)


async def _read(conn: Connection, notification: UUID) -> Notification:
    found = await notifications.read(conn, notification)
    assert found is not None, "a decision was deleted"
    return found


async def _replan(conn: Connection, found: Notification, *, is_due: bool) -> Obstacle | None:
    profile = (await users.read(conn, [found.user_id]))[found.user_id]
    seen = (await users.last_seen(conn, [found.user_id]))[found.user_id]
    suppressed = profile.email is not None and await operator_moves.suppressed(conn, profile.email)
    return replan(
        found.cancel_on,
        found.cancel_from,
        seen,
        email=profile.email,
        suppressed=suppressed,
        is_due=is_due,
        erased=profile.erased_at is not None,
    )


async def _record(
    conn: Connection,
    name: str,
    act: Act,
    at: datetime,
    before: Notification,
    after: Notification,
    detail: dict[str, Any],
) -> None:
    """Write the audit, dated before the move: the act is the cause."""
    await audit.write(
        conn,
        at=at,
        actor=act.actor,
        act=name,
        target=str(act.notification),
        user_id=after.user_id,
        detail={"reason": act.reason, "before": _standing(before), "after": _standing(after), **detail},
    )


def _standing(found: Notification) -> dict[str, Any]:
    return {
        "state": found.state,
        "reason": found.reason,
        "decided_by": found.decided_by,
        "generation": found.generation,
        "resend_number": found.resend_number,
    }


def _by_operator(found: Notification) -> bool:
    return found.decided_by is not None and found.decided_by.startswith("operator:")


def _wrong(found: Notification, detail: str, reason: str | None = None) -> WrongState:
    return WrongState(detail, state=found.state.value, reason=reason or found.reason)
