"""Who was wronged: counts the four faults of one run from its record alone."""

from __future__ import annotations

import enum
from collections.abc import Collection

from notifier.proof.lab.record import Mail, Record
from notifier.proof.lab.script import FOLLOWUP, Script


class Fault(enum.StrEnum):
    """What a mail can suffer."""

    LOST = "lost"
    DUPLICATED = "duplicated"
    AFTER_LOGIN = "sent after login"
    WRONGLY_FAILED = "wrongly failed"


def judge(script: Script, record: Record, kinds: Collection[str]) -> dict[Fault, list[Mail]]:
    """Give the mails that suffered each fault, in the order of the users.

    Lost: owed at the end and never taken by the provider, though it refused nothing; an honest "uncertain" counts.
    Duplicated: taken twice. Sent after login: the call that was taken began after the login, which was not told that
    it came too late, or was told so though the mail still waited, held by nobody and without doubt; or the login was
    told "stopped", and the mail went out all the same.
    Wrongly failed: written down as failed, though the provider took it or was never heard to refuse it.
    """
    found: dict[Fault, list[Mail]] = {fault: [] for fault in Fault}
    for mail in ((user.id, kind) for user in script.users for kind in kinds):
        taken = record.taken.get(mail, [])
        if not taken and mail not in record.refused and not _excused(mail, record):
            found[Fault.LOST].append(mail)
        if len(taken) > 1:
            found[Fault.DUPLICATED].append(mail)
        if _came_after_login(mail, taken, record):
            found[Fault.AFTER_LOGIN].append(mail)
        if mail in record.failed and (taken or mail not in record.refused):
            found[Fault.WRONGLY_FAILED].append(mail)
    return found


def announced(record: Record) -> int:
    """Count mails whose call began after a login that was told it came too late: no fault, but worth a word."""
    told = {user: login.at for user, login in record.logins.items() if login.is_told_too_late}
    return sum(any(began > at for began in record.taken.get((user, FOLLOWUP), [])) for user, at in told.items())


def _excused(mail: Mail, record: Record) -> bool:
    """Whether a login stopped it, or ought to have; one that came too late leaves it owed."""
    login = record.logins.get(mail[0])
    return mail[1] == FOLLOWUP and login is not None and not login.is_told_too_late


def _came_after_login(mail: Mail, taken: list[float], record: Record) -> bool:
    login = record.logins.get(mail[0])
    if mail[1] != FOLLOWUP or login is None or login.is_told_too_late:
        return False
    return bool(taken) if login.stopped else any(began > login.at for began in taken)
