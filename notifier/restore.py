"""What an operator says after a restore from a backup, and what follows from it, as one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from notifier.domain.errors import NotReady
from notifier.domain.restore import EARLY, SEVERAL_ACCOUNTS, Restore
from notifier.settings import Settings
from notifier.store import audit, installation, migrate, restores, workers
from notifier.store.database import RETRYABLE, UNAVAILABLE, Connection, open_database
from notifier.store.restores import Cancelable, CancelableCount

LONG_S = 3_600.0  # a whole table may change at once, and nobody else is at work


class NotThen(Exception):
    """The time given cannot be that of this backup; the text says why."""


@dataclass(frozen=True, slots=True)
class Told:
    """What the operator says.

    `at`: real time whose state the backup holds. `account`: where mails went after it; `repeatable_for`: how long a
    doubt may be repeated there (None: never). `ahead`: how far virtual business time was moved after the backup.
    `list_max`: how many that may have been canceled are listed (None: all).
    """

    at: datetime
    account: str
    repeatable_for: timedelta | None
    ahead: timedelta
    actor: str
    dry_run: bool
    list_max: int | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """What was found and done. `known_since`: this restore had been told before, and nothing was changed now.

    `account`: the one that was written down. `sent_from`: what senders have to repeat, by the real time they sent it.
    `events_from`, `events_until`: as in Restore. `newest`: the last sign of life in the database, real time.
    `not_again`: of those in doubt, how many will end uncertain without a call.
    """

    at: datetime
    known_since: datetime | None
    account: str
    sent_from: datetime
    events_from: datetime
    events_until: datetime
    opened: int
    due: int
    not_again: int
    scheduled: int
    newest: datetime | None
    cancelable_count: CancelableCount
    cancelable: Sequence[Cancelable]


async def restore(settings: Settings, told: Told) -> Report:
    """Put in doubt whatever may have been sent after `told.at`, now and in later decisions.

    Raises NotThen when that time cannot be, NotReady when processes live or the database does not answer.
    """
    database = await open_database(settings.model_copy(update={"statement_timeout_s": LONG_S}))
    try:
        async with database.transaction() as conn:
            await migrate.require_current(conn)
            await restores.hold_still(conn)
            await _nobody_lives(conn)
            report = await _restore(conn, told)
            if told.dry_run:
                raise _Undo(report)
    except _Undo as undone:
        return undone.report
    except RETRYABLE as error:
        raise NotReady(f"somebody else works on this database ({type(error).__name__}): stop them first") from error
    except UNAVAILABLE as error:
        raise NotReady(
            f"the database went away ({type(error).__name__}): nothing is half done, so ask again"
        ) from error
    finally:
        await database.close()
    return report


class _Undo(Exception):  # no error: the way out of a transaction that is not to be kept
    def __init__(self, report: Report) -> None:
        super().__init__()
        self.report = report


async def _nobody_lives(conn: Connection) -> None:
    found = await workers.live(conn)
    if found:
        names = ", ".join(f"{one.role} {one.pid} on {one.host} ({one.silent_s:.0f} s ago)" for one in found[:10])
        raise NotReady(
            f"processes of this database were heard of in the last 15 s: {names}. Stop every api, worker and "
            "scheduler first; what only the backup remembers is over after 15 s, so ask again then"
        )


async def _restore(conn: Connection, told: Told) -> Report:
    if await restores.batches_made(conn):  # whatever these settings say: which mails went together since is lost
        told = replace(told, account=SEVERAL_ACCOUNTS, repeatable_for=None)
    now = await installation.real_now(conn)
    before = await restores.standing(conn, told.repeatable_for, told.account)
    if told.at > now:
        raise NotThen(f"it is in the future: the database's clock says {now:%Y-%m-%dT%H:%M:%SZ}")
    if told.at < before.created_at:
        raise NotThen(f"this installation was made at {before.created_at:%Y-%m-%dT%H:%M:%SZ}, after that")
    known = next((one for one in await restores.read(conn) if one.at == told.at), None)
    opened = due = 0
    if known is not None:
        _require_the_same(known, told, before.newest)
    else:
        offset = (await installation.read(conn)).clock_offset  # what it was at that time
        if told.ahead:
            await installation.advance(conn, told.ahead.total_seconds())
        await restores.record(conn, told.at, told.at + offset - EARLY, told.account)
        opened = await restores.doubt_open(conn, told.at, told.account)
        due = await restores.doubt_due(conn, told.at, told.account)
    written = next(one for one in await restores.read(conn) if one.at == told.at)
    after = await restores.standing(conn, told.repeatable_for, told.account)
    report = Report(
        at=told.at,
        known_since=known.made_at if known else None,
        account=written.account,
        sent_from=told.at - EARLY,
        events_from=written.events_from,
        events_until=written.events_until,
        opened=opened,
        due=due,
        not_again=after.not_again,
        scheduled=after.scheduled,
        newest=before.newest,
        cancelable_count=await restores.cancelable_count(conn),
        cancelable=await restores.cancelable(conn, told.list_max),
    )
    if known is None:
        await audit.write(
            conn,
            actor=told.actor,
            act="restored",
            target=told.at.isoformat(),
            user_id=None,
            detail={"opened": opened, "due": due, "account": told.account, "ahead_s": told.ahead.total_seconds()},
        )
    return report


def _require_the_same(known: Restore, told: Told, newest: datetime | None) -> None:
    """Raise NotThen when what is told again under a known time may be another restore, or of another account."""
    earlier = f"{told.at - timedelta(seconds=1):%Y-%m-%dT%H:%M:%SZ}"
    already = f"told already at {known.made_at:%Y-%m-%dT%H:%M:%SZ}"
    if newest is not None and newest > known.made_at:
        raise NotThen(
            f"{already}, and this database has been at work since; if it was restored anew, give a time a second "
            f"earlier ({earlier}); if not, there is nothing to tell"
        )
    if told.account != known.account:
        raise NotThen(
            f"{already} with the provider account {known.account}, but these settings name {told.account}: use the "
            "settings the workers had. If it was told with the wrong ones, give a time a second earlier "
            f"({earlier}): events repeated after two accounts were named are never sent without a person"
        )
