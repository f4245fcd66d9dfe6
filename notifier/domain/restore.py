"""A restore from a backup: which notifications may have been sent in the time the database has forgotten."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

REASON_RESTORED = "restored"
EARLY = timedelta(minutes=5)  # so much may clocks be apart, or a time be given too late
SEVERAL_ACCOUNTS = "several"  # accounts, or keys: no account is called so, and nothing is ever repeated there


@dataclass(frozen=True, slots=True)
class Restore:
    """The database was brought back to `at` (real time); what it took later it has forgotten.

    `events_from`, `events_until`: business time in which events may have been taken and forgotten.
    `account`: the provider account that the mails of the lost time went to.
    """

    at: datetime
    made_at: datetime
    events_from: datetime
    events_until: datetime
    account: str


@dataclass(frozen=True, slots=True)
class Doubt:
    """The earliest real time at which a mail may have been taken, and by which account."""

    since: datetime
    account: str


@dataclass(frozen=True, slots=True)
class LostTime:
    """All that was ever lost. `ahead`: how far business time is ahead of real time, now; it was never more then."""

    restores: tuple[Restore, ...] = ()
    ahead: timedelta = timedelta(0)

    def doubt(self, decided_at: datetime, due_at: datetime, max_age: timedelta) -> Doubt | None:
        """Whether a notification decided only now may have been decided, and sent, before; None: it surely was not.

        Nothing is ever sent before it is due, nor was this one before the backup, which does not know it. When its
        event occurred says nothing of when that was taken, but none older than `max_age` then mailed anybody.
        """
        assert decided_at <= due_at
        if not self.restores:
            return None
        found = [
            r for r in self.restores if r.events_from - decided_at <= max_age and due_at <= r.events_until
        ]  # lengths are compared, not times: an endless max_age leads to no date
        if not found:
            return None
        accounts = {restore.account for restore in found}
        since = max(min(restore.at for restore in found), due_at - self.ahead)
        return Doubt(since, accounts.pop() if len(accounts) == 1 else SEVERAL_ACCOUNTS)


NOTHING_LOST = LostTime()
