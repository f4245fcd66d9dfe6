"""What every strategy has: a world to act in, jobs to do, and the words for what it shows."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import ClassVar, Protocol

from notifier.proof.lab.judge import Fault
from notifier.proof.lab.loop import JobFailed, Loop, Process, nap
from notifier.proof.lab.provider import Provider
from notifier.proof.lab.queue import Job, Queue
from notifier.proof.lab.record import Login, Mail, Record
from notifier.proof.lab.redis import Redis
from notifier.proof.lab.script import FOLLOWUP, FOLLOWUP_AFTER_S, ONBOARDING, Script, User
from providers.base import Accepted, Duplicate, Rejected

DAY_EX = 86_400.0


class World(Protocol):
    """What a strategy may touch."""

    script: Script
    loop: Loop
    record: Record
    draw: Random
    redis: Redis
    provider: Provider
    queue: Queue


class Strategy:
    """A way to send each mail once. Unless it says otherwise, each mail is a job of the queue.

    Where one was printed as code, its docstring says so and where it departs from that; the others had words only.

    `shows`: the faults its description predicts. `kinds`: the mails it has an answer for at all. `writes_failed`,
    `says_uncertain`: whether it writes down that a mail has failed, or may have. `uses_redis`: whether what it knows
    stands there. `tells`: a word of the story that shows a fault best, where there are several.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    shows: ClassVar[frozenset[Fault]] = frozenset()
    kinds: ClassVar[tuple[str, ...]] = (ONBOARDING, FOLLOWUP)
    writes_failed: ClassVar[bool] = False
    says_uncertain: ClassVar[bool] = False
    uses_redis: ClassVar[bool] = False
    tells: ClassVar[Mapping[Fault, str]] = {Fault.LOST: "is killed"}

    def __init__(self, world: World) -> None:
        self.world = world

    def signed_up(self, user: User) -> None:
        """Hear of a signup: a job now, and one for the day the follow-up is due. A repeat of it does so again."""
        self.world.queue.put(Job("send", (user.id, ONBOARDING)))
        self.world.queue.put(Job("send", (user.id, FOLLOWUP)), user.signs_up_at + FOLLOWUP_AFTER_S)

    def logged_in(self, user: User) -> None:
        """Hear of a login: it is written down, and everybody may look."""
        self.world.record.logins[user.id] = Login(self.world.loop.now, stopped=None)
        self.world.record.note(self.world.loop.now, user.id, "logs in", (user.id, FOLLOWUP))

    def started(self, process: Process) -> None:
        """Start what this strategy runs beside its jobs, in a process that has just begun."""

    async def work(self, job: Job, process: Process) -> None:
        """Do one job. JobFailed makes the queue bring it again."""
        raise NotImplementedError

    # ------------------------------------------------------------------------------------------ what they share

    def note(self, process: Process, what: str, mail: Mail) -> None:
        """Write one step down."""
        self.world.record.note(self.world.loop.now, process.name, what, mail)

    async def query(self) -> None:
        """Let one way to the database, or back, pass."""
        await nap(self.world.draw.uniform(0.0005, 0.003))

    async def has_logged_in(self, process: Process, mail: Mail) -> bool:
        """Ask the database whether a login is written down; never for a welcome mail."""
        if mail[1] != FOLLOWUP:
            return False
        await self.query()
        found = mail[0] in self.world.record.logins
        await self.query()
        self.note(process, f"asks whether there was a login: {'yes' if found else 'no'}", mail)
        return found

    async def send(self, process: Process, mail: Mail, key: str | None = None) -> bool:
        """Call the provider. False: it refuses this mail for good. Raises JobFailed where it gave no such answer."""
        outcome = await self.world.provider.send(process, mail, key)
        if isinstance(outcome, Accepted | Duplicate):
            return True
        if isinstance(outcome, Rejected):
            return False
        self.note(process, "raises: the job has failed", mail)
        raise JobFailed
