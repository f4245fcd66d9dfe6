"""An advisory lock of one transaction round the check, the send and the row that says it was sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from notifier.proof.lab.judge import Fault
from notifier.proof.lab.loop import JobFailed, Process, nap
from notifier.proof.lab.queue import Job
from notifier.proof.lab.record import Mail
from notifier.proof.lab.script import ONBOARDING, User
from notifier.proof.lab.strategies.base import Strategy, World


class AdvisoryLock(Strategy):
    """No two ever hold the lock: the server gives it back at the commit, and when the connection of a dead owner ends.

    Never printed as code: the row that says "sent", and the look at it, are added. A pause holds the lock, and
    everybody waits. But what the provider took before a rollback is taken, and the row that should say so is gone with
    the transaction. It cannot say "in three days", so there is no follow-up.
    """

    name = "advisory-lock"
    title = "advisory lock"
    shows = frozenset({Fault.DUPLICATED})
    kinds = (ONBOARDING,)
    tells: ClassVar[Mapping[Fault, str]] = {Fault.DUPLICATED: "is killed just after the answer"}

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._sent: set[Mail] = set()
        self._holders: dict[Mail, Process] = {}

    def signed_up(self, user: User) -> None:
        """Queue the welcome mail."""
        self.world.queue.put(Job("send", (user.id, ONBOARDING)))

    async def work(self, job: Job, process: Process) -> None:
        """BEGIN; lock; SELECT; send; INSERT; COMMIT."""
        mail = job.mail
        await self.query()
        while mail in self._holders and self._holders[mail].is_alive:
            await nap(0.2)  # the server's queue of waiters; a dead owner's connection is noticed at once
        self._holders[mail] = process
        self.note(process, "BEGIN; has the advisory lock", mail)
        await self.query()
        if mail in self._sent:
            self.note(process, "SELECT: it was sent; COMMIT", mail)
            del self._holders[mail]
            return
        self.note(process, "SELECT: nothing there", mail)
        try:
            await self.send(process, mail)
        except JobFailed:
            self.note(process, "ROLLBACK", mail)
            del self._holders[mail]
            raise
        await self.query()
        self._sent.add(mail)
        del self._holders[mail]
        self.note(process, "INSERT; COMMIT", mail)
        await self.query()
