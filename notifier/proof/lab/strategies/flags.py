"""Fixes 3 and 4: a flag says that the mail was sent, set after the send or before; as printed, and as meant."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from notifier.proof.lab.judge import Fault
from notifier.proof.lab.loop import Process
from notifier.proof.lab.queue import Job
from notifier.proof.lab.strategies.base import DAY_EX, Strategy


class FlagAfterSend(Strategy):
    """Claim for a day, look at the flag, send, set the flag, as printed.

    The claim is that of fix 2: a retry never gets as far as the flag, and loses and doubles what fix 2 does.
    """

    name = "flag-after"
    title = "flag after the send"
    uses_redis = True
    shows = frozenset({Fault.LOST})
    claim_s: ClassVar[float] = DAY_EX

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


class FlagAskedAfterSend(FlagAfterSend):
    """The same with a claim of 30 s, when the queue tries again: not as printed, but what the words about it say.

    A crash, or a failure, between send and flag: the retry wins the claim, finds no flag, and sends again.
    """

    name = "flag-after-30s"
    title = "flag after, claim of 30 s"
    shows = frozenset({Fault.DUPLICATED})
    tells: ClassVar[Mapping[Fault, str]] = {Fault.DUPLICATED: "is killed just after the answer"}
    claim_s = 30.0


class FlagBeforeSend(Strategy):
    """SET the flag and send, as printed: two lines, and nobody looks whether the SET wrote anything.

    So the flag keeps nobody from sending: no mail is lost, and every repeat is a second mail.
    """

    name = "flag-before"
    title = "flag before the send"
    uses_redis = True
    shows = frozenset({Fault.DUPLICATED})

    async def work(self, job: Job, process: Process) -> None:
        """SET NX sent, send."""
        user, kind = job.mail
        if await self.has_logged_in(process, job.mail):
            return
        is_first = await self.world.redis.set(f"{kind}:sent:{user}", "1", ex=DAY_EX, nx=True)
        self.note(process, f"SET sent NX: {'it was not there' if is_first else 'it is there'}", job.mail)
        if self.goes_on(is_first):
            await self.send(process, job.mail)

    def goes_on(self, is_first: bool) -> bool:
        """Whether it sends."""
        return True


class FlagCheckedBeforeSend(FlagBeforeSend):
    """The same, but who finds the flag returns: not as printed, but what the words about it say.

    Flag set, send failed, nobody gets the mail. It is the claim for a day under another name, with its figures.
    """

    name = "flag-before-checked"
    title = "flag before, and checked"
    shows = frozenset({Fault.LOST})

    def goes_on(self, is_first: bool) -> bool:
        """Only who set the flag."""
        return is_first
