"""A lease of 30 seconds that a heartbeat renews, a flag after the send, and a sweeper for what nobody finished."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from notifier.proof.lab.judge import Fault
from notifier.proof.lab.loop import Process, Signal, nap
from notifier.proof.lab.queue import Job
from notifier.proof.lab.record import Mail
from notifier.proof.lab.script import FOLLOWUP, FOLLOWUP_AFTER_S, ONBOARDING, User
from notifier.proof.lab.strategies.base import DAY_EX, Strategy, World

LEASE_S = 30.0
BEAT_S = 10.0
SWEEP_S = 60.0


class ShortLease(Strategy):
    """The heartbeat is a thread of the process that works, so a pause stops both; nobody looks again before the send.

    Never printed as code: 30 s, a thread that renews, perhaps a sweeper. The rest is added, to be as good as it gets:
    an owner's token which renewal and release check, the flag after the send, and a table from which the sweeper queues
    again what was not marked as sent and is held by nobody. A follow-up asks for a login inside the lease.
    """

    name = "short-lease"
    title = "lease, heartbeat, sweeper"
    uses_redis = True
    tells: ClassVar[Mapping[Fault, str]] = {Fault.DUPLICATED: "s just before the call"}
    shows = frozenset({Fault.DUPLICATED})

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._owed: dict[Mail, float] = {}  # the sweeper's table: mail → due
        self._more = Signal()

    def signed_up(self, user: User) -> None:
        """Queue both jobs, and have the sweeper know of them; a repeat does not write a row twice."""
        super().signed_up(user)
        self._owed.setdefault((user.id, ONBOARDING), self.world.loop.now)
        self._owed.setdefault((user.id, FOLLOWUP), user.signs_up_at + FOLLOWUP_AFTER_S)
        self._more.fire(self.world.loop)

    def started(self, process: Process) -> None:
        """One process sweeps."""
        if process.slot == 0:
            process.spawn(self._sweep(process))

    async def work(self, job: Job, process: Process) -> None:
        """Take the lease, look at the flag, send while the heart beats, set the flag."""
        mail, lease, sent = job.mail, f"{job.mail[1]}:lease:{job.mail[0]}", f"{job.mail[1]}:sent:{job.mail[0]}"
        if not await self.world.redis.set(lease, process.name, ex=LEASE_S, nx=True):
            self.note(process, "lease: somebody has it, so it returns", mail)
            return
        self.note(process, "lease: taken for 30 s", mail)
        at_work = [True]
        process.spawn(self._beat(process, lease, at_work))
        try:
            if await self.world.redis.get(sent):
                self.note(process, "GET sent: it is there, so it returns", mail)
            elif await self.has_logged_in(process, mail) or not await self.send(process, mail):
                self._owed.pop(mail, None)
            else:
                await self.world.redis.set(sent, "1", ex=DAY_EX)
                self.note(process, "SET sent", mail)
        finally:
            at_work[0] = False
        await self.world.redis.delete(lease, process.name)

    async def _beat(self, process: Process, lease: str, at_work: list[bool]) -> None:
        await nap(BEAT_S)
        while at_work[0]:
            await self.world.redis.expire(lease, process.name, LEASE_S)
            await nap(BEAT_S)

    async def _sweep(self, process: Process) -> None:
        while True:
            first = min(self._owed.values(), default=1e12)
            await nap(max(SWEEP_S, first + SWEEP_S - self.world.loop.now), self._more)
            for mail in [mail for mail, due in self._owed.items() if due + SWEEP_S < self.world.loop.now]:
                if await self.world.redis.get(f"{mail[1]}:sent:{mail[0]}"):
                    self._owed.pop(mail, None)
                elif not await self.world.redis.get(f"{mail[1]}:lease:{mail[0]}"):
                    self.note(process, "the sweeper finds it unsent and held by nobody: queued again", mail)
                    self.world.queue.put(Job("send", mail))
