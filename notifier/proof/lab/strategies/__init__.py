"""The strategies of the lab, one idea each, as small as they can be and still behave as they are described."""

from __future__ import annotations

from notifier.proof.lab.strategies.advisory import AdvisoryLock
from notifier.proof.lab.strategies.base import Strategy
from notifier.proof.lab.strategies.claims import CheckThenClaim, ClaimBeforeKeyedSend, ClaimForADay
from notifier.proof.lab.strategies.constraint import UniqueIndex
from notifier.proof.lab.strategies.cron import CronSweeper
from notifier.proof.lab.strategies.flags import (
    FlagAfterSend,
    FlagAskedAfterSend,
    FlagBeforeSend,
    FlagCheckedBeforeSend,
)
from notifier.proof.lab.strategies.guards import Guard
from notifier.proof.lab.strategies.lease import ShortLease
from notifier.proof.lab.strategies.ours import Ours
from notifier.proof.lab.strategies.status import StatusAsLock, StatusById

__all__ = ["ALL", "Guard", "Ours", "Strategy"]

ALL: tuple[type[Strategy], ...] = (
    CheckThenClaim,
    ClaimForADay,
    FlagAfterSend,
    FlagAskedAfterSend,
    FlagBeforeSend,
    FlagCheckedBeforeSend,
    ShortLease,
    ClaimBeforeKeyedSend,
    CronSweeper,
    StatusById,
    StatusAsLock,
    AdvisoryLock,
    UniqueIndex,
    Ours,
)
