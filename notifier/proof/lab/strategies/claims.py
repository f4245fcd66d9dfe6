"""Fixes 1, 2 and 5: a key in Redis is looked at, or claimed, in front of the send."""

from __future__ import annotations

from notifier.proof.lab.judge import Fault
from notifier.proof.lab.loop import Process
from notifier.proof.lab.queue import Job
from notifier.proof.lab.record import Mail
from notifier.proof.lab.strategies.base import DAY_EX, Strategy


class CheckThenClaim(Strategy):
    """GET the lock; if it is not there SET it for a day, and send.

    As printed; but, as in all that follow, the key is made of kind and user instead of an address, and a follow-up,
    which was not printed, is the same behind a question whether there was a login. Where the send raises, the job
    comes again.
    """

    name = "check-then-claim"
    title = "check, then claim"
    uses_redis = True
    shows = frozenset({Fault.DUPLICATED})

    async def work(self, job: Job, process: Process) -> None:
        """GET, SET, send."""
        if await self.has_logged_in(process, job.mail):
            return
        lock = f"{job.mail[1]}:lock:{job.mail[0]}"
        if await self.world.redis.get(lock):
            self.note(process, "GET lock: it is there, so it returns", job.mail)
            return
        self.note(process, "GET lock: nothing there", job.mail)
        await self.world.redis.set(lock, "1", ex=DAY_EX)
        self.note(process, "SET lock", job.mail)
        await self.send(process, job.mail)


class ClaimForADay(Strategy):
    """SET NX EX 86400 in front of the send, as printed: whoever does not get the lock returns."""

    name = "nx-24h"
    title = "atomic claim, 24 h"
    uses_redis = True
    shows = frozenset({Fault.LOST})

    async def work(self, job: Job, process: Process) -> None:
        """SET NX, send."""
        if await self.has_logged_in(process, job.mail):
            return
        if not await self.world.redis.set(f"{job.mail[1]}:lock:{job.mail[0]}", "1", ex=DAY_EX, nx=True):
            self.note(process, "SET lock NX: somebody has it, so it returns", job.mail)
            return
        self.note(process, "SET lock NX: won", job.mail)
        await self.send(process, job.mail, self.key(job.mail))

    def key(self, mail: Mail) -> str | None:
        """What the provider is told to know the mail by: nothing."""
        return None


class ClaimBeforeKeyedSend(ClaimForADay):
    """The same claim for a day, and behind it a send that carries a key of its own, as printed."""

    name = "nx-24h-keyed"
    title = "24 h claim, keyed send"

    def key(self, mail: Mail) -> str | None:
        """Kind and user, the same on every try."""
        return f"{mail[1]}:{mail[0]}"
