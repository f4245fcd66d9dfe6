"""One run: a strategy in a world that is settled by its seed."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from notifier.proof.lab.loop import Loop, Process
from notifier.proof.lab.provider import Provider
from notifier.proof.lab.queue import RETRY_S, Queue
from notifier.proof.lab.record import KILLED, STANDS_STILL, Mail, Record
from notifier.proof.lab.redis import Redis
from notifier.proof.lab.script import END_S, WORKERS, Script, Trouble, User, What
from notifier.proof.lab.strategies.base import Strategy, World

RESTART_S = 3.0
DEPLOY_STEP_S = 8.0


class Run(World):
    """Processes, Redis, a queue and a provider, and what the script does to them."""

    def __init__(self, script: Script, strategy: Callable[[World], Strategy]) -> None:
        self.script = script
        self.loop = Loop()
        self.record = Record()
        self.draw = Random(f"lab/{script.seed}/ways")
        self.redis = Redis(self.loop, self.draw)
        self.provider = Provider(self.loop, self.record, script, self._kill, self._pause, self._log_in)
        self._starts = 0
        self._users = {user.id: user for user in script.users}
        self._in: set[str] = set()
        self.strategy = strategy(self)
        self.queue = Queue(self.loop, self.record, self.strategy.work)

    def to_the_end(self) -> Record:
        """Let it all happen, and give the record."""
        for slot in range(WORKERS):
            self._start(slot)
        for user in self.script.users:
            self._live(user)
        for trouble in self.script.troubles:
            self.loop.at(trouble.at, self._strike, trouble)
        self.loop.run(END_S)
        return self.record

    def _live(self, user: User) -> None:
        for at in (user.signs_up_at, *user.again_at):
            self.loop.at(at, self.strategy.signed_up, user)
        if user.logs_in_at is not None:
            self.loop.at(user.logs_in_at, self._log_in, user.id)

    def _log_in(self, user: str) -> None:
        """Have a user log in, for the first time only: later ones change nothing."""
        if user not in self._in:
            self._in.add(user)
            self.strategy.logged_in(self._users[user])

    def _start(self, slot: int) -> None:
        self._starts += 1
        process = Process(self.loop, slot, f"worker-{slot + 1}.{self._starts}")
        self.queue.processes.append(process)
        self.strategy.started(process)
        self.queue.dispatch()

    def _strike(self, trouble: Trouble) -> None:
        now = self.loop.now
        match trouble.what:
            case What.KILL:
                self._kill(self._at(trouble.slot), "")
            case What.PAUSE:
                self._pause(self._at(trouble.slot), trouble.seconds, "")
            case What.DEPLOY:
                for slot in range(WORKERS):
                    self.loop.at(now + slot * DEPLOY_STEP_S, self._replace, slot)
            case What.REDIS_EMPTY:
                self.record.note(now, "redis", "loses all its data")
                self.redis.forget()
            case What.REDIS_FAILOVER:
                self.record.note(now, "redis", f"fails over and loses the writes of its last {trouble.seconds:.0f} s")
                self.redis.forget(newer_than=now - trouble.seconds)

    def _replace(self, slot: int) -> None:
        self._kill(self._at(slot), "by a deploy")

    def _at(self, slot: int) -> Process | None:
        return next((process for process in self.queue.processes if process.slot == slot), None)

    def _kill(self, process: Process | None, when: str, mail: Mail | None = None) -> None:
        if process is None or not process.is_alive:
            return
        self._note_blow(process, KILLED, when, mail)
        process.kill()
        self.queue.processes.remove(process)
        self.queue.lost(process)
        self.loop.at(self.loop.now + RESTART_S, self._start, process.slot)

    def _pause(self, process: Process | None, seconds: float, when: str, mail: Mail | None = None) -> None:
        if process is None or not process.is_alive:
            return
        self._note_blow(process, f"{STANDS_STILL} for {seconds:.0f} s", when, mail)
        process.pause(seconds)

        def missed() -> None:
            if process.is_alive and not process.is_running:
                self.queue.lost(process)

        self.loop.at(self.loop.now + RETRY_S, missed)
        self.loop.at(process.paused_until, self.queue.dispatch)

    def _note_blow(self, process: Process, what: str, when: str, mail: Mail | None) -> None:
        """Write it down for all whom it hits, and at which moment for the mail whose call drew it."""
        if mail is None:
            self.record.note(self.loop.now, process.name, f"{what} {when}".strip())
        else:
            self.record.note(self.loop.now, process.name, what)
            self.record.note(self.loop.now, process.name, f"{what} {when}", mail)
