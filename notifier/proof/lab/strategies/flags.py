"""Fixes 3 and 4: a second flag says that the mail was sent; set after the send, or before it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from notifier.proof.lab.judge import Fault
from notifier.proof.lab.loop import Process
from notifier.proof.lab.queue import Job
from notifier.proof.lab.strategies.base import DAY_EX, Strategy


class FlagAfterSend(Strategy):
    """Claim, look at the flag, send, set the flag: a crash between the last two sends it again.

    As printed, the claim is that of fix 2, for a day: a retry never gets as far as the flag, and as many mails are lost
    and doubled as by fix 2 (a test holds that). So that the flag is asked at all, the claim lasts 30 s here, which is
    when the queue tries again. The follow-up asks for a login first.
    """

    name = "flag-after"
    title = "flag after the send"
    uses_redis = True
    shows = frozenset({Fault.DUPLICATED})
    tells: ClassVar[Mapping[Fault, str]] = {Fault.DUPLICATED: "is killed just after the answer"}
    claim_s = 30.0

    async def work(self, job: Job, process: Process) -> None:
        """SET NX lock, GET sent, send, SET sent."""
        user, kind = job.mail
        if await self.has_logged_in(process, job.mail):
            return
        if not await self.world.redis.set(f"{kind}:lock:{user}", "1", ex=self.claim_s, nx=True):
            self.note(process, "SET lock NX: somebody has it, so it returns", job.mail)
            return
        self.note(process, "SET lock NX: won", job.mail)
        if await self.world.redis.get(f"{kind}:sent:{user}"):
            self.note(process, "GET sent: it is there, so it returns", job.mail)
            return
        self.note(process, "GET sent: nothing there", job.mail)
        await self.send(process, job.mail)
        await self.world.redis.set(f"{kind}:sent:{user}", "1", ex=DAY_EX, nx=True)
        self.note(process, "SET sent", job.mail)


class FlagBeforeSend(Strategy):
    """Set the flag, and send if it was not there: the claim for a day under another name, and to the mail its figures.

    The follow-up asks for a login first.
    """

    name = "flag-before"
    title = "flag before the send"
    uses_redis = True
    shows = frozenset({Fault.LOST})

    async def work(self, job: Job, process: Process) -> None:
        """SET NX sent, send."""
        user, kind = job.mail
        if await self.has_logged_in(process, job.mail):
            return
        if not await self.world.redis.set(f"{kind}:sent:{user}", "1", ex=DAY_EX, nx=True):
            self.note(process, "SET sent NX: it is there, so it returns", job.mail)
            return
        self.note(process, "SET sent NX: it was not there", job.mail)
        await self.send(process, job.mail)
