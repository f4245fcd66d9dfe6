"""The follow-up as a table and a cron: every five minutes what is due is read, checked, sent, and then deleted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from notifier.proof.lab.judge import Fault
from notifier.proof.lab.loop import JobFailed, Process, nap
from notifier.proof.lab.script import FOLLOWUP, FOLLOWUP_AFTER_S, User
from notifier.proof.lab.strategies.base import Strategy, World

EVERY_S = 300.0
BATCH = 100


@dataclass(eq=False)
class _Row:
    mail: tuple[str, str]
    due: float


class CronSweeper(Strategy):
    """One row for each follow-up; every five minutes up to a hundred are read, and row for row checked, sent, deleted.

    The loop is as printed. Added in its favour: a repeated signup writes no second row, a row that fails does not hold
    up the rows behind it, and the cron is in one process alone. A run that is not over when the next begins goes on, as
    a cron has it. It has no word on welcome mails.
    """

    name = "cron-sweeper"
    title = "cron for the follow-up"
    shows = frozenset({Fault.DUPLICATED, Fault.AFTER_LOGIN})
    kinds = (FOLLOWUP,)
    tells: ClassVar[Mapping[Fault, str]] = {Fault.DUPLICATED: "is killed just after the answer"}

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._table: dict[str, _Row] = {}
        self._known: set[str] = set()

    def signed_up(self, user: User) -> None:
        """Insert the row."""
        if user.id not in self._known:
            self._known.add(user.id)
            self._table[user.id] = _Row((user.id, FOLLOWUP), user.signs_up_at + FOLLOWUP_AFTER_S)

    def started(self, process: Process) -> None:
        """One process has the cron."""
        if process.slot == 0:
            process.spawn(self._cron(process))

    async def _cron(self, process: Process) -> None:
        while True:
            await nap(EVERY_S - self.world.loop.now % EVERY_S)
            process.spawn(self._tick(process))

    async def _tick(self, process: Process) -> None:
        await self.query()
        due = [row for row in self._table.values() if row.due < self.world.loop.now][:BATCH]
        await self.query()
        for row in due:
            self.note(process, "the cron has it in its batch", row.mail)
            if not await self.has_logged_in(process, row.mail):
                try:
                    await self.send(process, row.mail)
                except JobFailed:
                    continue
            await self.query()
            self._table.pop(row.mail[0], None)
            self.note(process, "deletes the row", row.mail)
            await self.query()
