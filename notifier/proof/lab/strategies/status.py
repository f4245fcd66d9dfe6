"""A row with a status, a worker that sends, and a cleanup that settles what has been open for a minute."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from notifier.proof.lab.judge import Fault
from notifier.proof.lab.loop import Process, Signal, nap
from notifier.proof.lab.queue import Job
from notifier.proof.lab.record import Mail
from notifier.proof.lab.script import FOLLOWUP, FOLLOWUP_AFTER_S, ONBOARDING, User
from notifier.proof.lab.strategies.base import Strategy, World

CLEANUP_S = 10.0
STUCK_S = 60.0


class Status(enum.StrEnum):
    """What the row may say."""

    PENDING = "PENDING"
    PROCESSING = "PROCESSING"
    SENT = "SENT"
    FAILED = "FAILED"


OPEN = (Status.PENDING, Status.PROCESSING)


@dataclass(slots=True)
class _Row:
    since: float  # due, or claimed
    status: Status = Status.PENDING


class StatusById(Strategy):
    """Worker and cleanup each set how it ended, by id alone, whatever the row said before.

    Told of orders and in words; here the order is a mail, the charge its send. Added: the follow-up's row is written at
    signup with its date, its job asks for a login first, and a send that raises brings the job again. The cleanup looks
    every ten seconds for what is older than a minute, as told.
    """

    name = "status-by-id"
    title = "status written by id"
    tells: ClassVar[Mapping[Fault, str]] = {Fault.WRONGLY_FAILED: "the cleanup finds", Fault.LOST: "the cleanup finds"}
    shows = frozenset({Fault.WRONGLY_FAILED, Fault.DUPLICATED})
    writes_failed = True
    cleans: ClassVar[tuple[Status, ...]] = (Status.PENDING,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._rows: dict[Mail, _Row] = {}
        self._open: dict[Mail, None] = {}
        self._more = Signal()

    def signed_up(self, user: User) -> None:
        """Insert both rows, unless they are there, and queue both jobs."""
        super().signed_up(user)
        for mail, due in (
            ((user.id, ONBOARDING), self.world.loop.now),
            ((user.id, FOLLOWUP), user.signs_up_at + FOLLOWUP_AFTER_S),
        ):
            if mail not in self._rows:
                self._rows[mail] = _Row(due)
                self._open[mail] = None
        self._more.fire(self.world.loop)

    def started(self, process: Process) -> None:
        """One process cleans up."""
        if process.slot == 0:
            process.spawn(self._clean_up(process))

    async def work(self, job: Job, process: Process) -> None:
        """Send, and write what came of it."""
        if await self.has_logged_in(process, job.mail):
            await self.write(process, job.mail, Status.SENT)  # settled: there is nothing left to do
            return
        sent = await self.send(process, job.mail)
        await self.write(process, job.mail, Status.SENT if sent else Status.FAILED)

    async def write(
        self, process: Process, mail: Mail, status: Status, expected: tuple[Status, ...] | None = None
    ) -> bool:
        """UPDATE … SET status WHERE id, and the expected status if there is one; whether it matched."""
        await self.query()
        row = self._rows[mail]
        matches = expected is None or row.status in expected
        guard = "" if expected is None else f" AND status = {' or '.join(expected)}"
        self.note(process, f"UPDATE SET {status} WHERE id{guard}: {'1 row' if matches else '0 rows'}", mail)
        if matches:
            row.status, row.since = status, self.world.loop.now
            if status is Status.FAILED:
                self.world.record.failed.add(mail)
            if status not in OPEN:
                self._open.pop(mail, None)
        await self.query()
        return matches

    async def _clean_up(self, process: Process) -> None:
        while True:
            await nap(self._idle_s(), self._more)
            late = self.world.loop.now - STUCK_S
            await self.query()
            stuck = [m for m in self._open if self._rows[m].status in self.cleans and self._rows[m].since < late]
            for mail in stuck:
                self.note(process, f"the cleanup finds it {self._rows[mail].status} for more than a minute", mail)
                await self.settle_stuck(process, mail)

    def _idle_s(self) -> float:
        """Until the next look that can find anything; those in between are left out."""
        first = min((self._rows[mail].since for mail in self._open), default=1e12)
        return max(CLEANUP_S, first + STUCK_S - self.world.loop.now)

    async def settle_stuck(self, process: Process, mail: Mail) -> None:
        """Fail it."""
        await self.write(process, mail, Status.FAILED)


class StatusAsLock(StatusById):
    """The status is the claim: PENDING → PROCESSING by a conditional update, and whoever matches 0 rows stops.

    The two updates are as printed, with a mail for an order. No two of them ever send. But the cleanup fails what is
    queued or running, and cannot know whether it went out; nor could it of a charge.
    """

    name = "status-as-lock"
    title = "status lock, cleanup fails"
    shows = frozenset({Fault.WRONGLY_FAILED, Fault.LOST})
    cleans = OPEN

    async def work(self, job: Job, process: Process) -> None:
        """Claim, send, and write what came of it if the claim still stands."""
        if not await self.write(process, job.mail, Status.PROCESSING, expected=(Status.PENDING,)):
            return
        if await self.has_logged_in(process, job.mail):
            await self.write(process, job.mail, Status.SENT, expected=(Status.PROCESSING,))
            return
        sent = await self.send(process, job.mail)
        await self.write(process, job.mail, Status.SENT if sent else Status.FAILED, expected=(Status.PROCESSING,))

    async def settle_stuck(self, process: Process, mail: Mail) -> None:
        """Fail it, unless somebody was faster."""
        await self.write(process, mail, Status.FAILED, expected=OPEN)
