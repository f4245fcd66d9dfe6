"""A unique index alone: insert the row that says it was sent, and send if that worked."""

from __future__ import annotations

from notifier.proof.lab.judge import Fault
from notifier.proof.lab.loop import Process
from notifier.proof.lab.queue import Job
from notifier.proof.lab.record import Mail
from notifier.proof.lab.script import ONBOARDING, User
from notifier.proof.lab.strategies.base import Strategy, World


class UniqueIndex(Strategy):
    """INSERT … (user, kind), and whoever hits the index returns: no two ever send, whatever Redis or a clock does.

    The index was printed, the rest told in words, which leave open when the insert commits. Here it does so before the
    send, and whoever is killed in between has sent it as far as anybody can see. With the send inside the transaction
    it is the advisory lock's gap instead. No follow-up: a row cannot wait.
    """

    name = "unique-index"
    title = "unique index, then send"
    shows = frozenset({Fault.LOST})
    kinds = (ONBOARDING,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._sent: set[Mail] = set()

    def signed_up(self, user: User) -> None:
        """Queue the welcome mail."""
        self.world.queue.put(Job("send", (user.id, ONBOARDING)))

    async def work(self, job: Job, process: Process) -> None:
        """INSERT; send."""
        await self.query()
        is_first = job.mail not in self._sent
        self._sent.add(job.mail)
        self.note(process, f"INSERT: {'1 row' if is_first else 'violates the index, so it returns'}", job.mail)
        await self.query()
        if is_first:
            await self.send(process, job.mail)
