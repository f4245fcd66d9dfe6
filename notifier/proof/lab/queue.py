"""A durable job queue as everybody has one: what crashed, stalled or failed comes again after 30 seconds."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from notifier.proof.lab.loop import JobFailed, Loop, Process, Work
from notifier.proof.lab.record import Mail, Record

RETRY_S = 30.0
TRIES_MAX = 20
SLOTS = 4


@dataclass(slots=True, eq=False)
class Job:
    """One piece of work: what is to be done, for which mail. `user` jobs carry an empty kind."""

    what: str
    mail: Mail
    tries: int = 0


@dataclass(slots=True)
class Queue:
    """Gives each job to the live process with the fewest, in the order they came."""

    loop: Loop
    record: Record
    work: Callable[[Job, Process], Work]
    processes: list[Process] = field(default_factory=list)
    _waiting: deque[Job] = field(default_factory=deque)
    _running: dict[Process, dict[Job, None]] = field(default_factory=dict)

    def put(self, job: Job, at: float | None = None) -> None:
        """Have it done, now or at a later time."""

        def arrives() -> None:
            self._waiting.append(job)
            self.dispatch()

        self.loop.at(self.loop.now if at is None else at, arrives)

    def dispatch(self) -> None:
        """Give out what waits, as far as anybody is free."""
        while self._waiting:
            free = [p for p in self.processes if p.is_running and len(self._running.get(p, {})) < SLOTS]
            if not free:
                return
            process = min(free, key=lambda p: len(self._running.get(p, {})))
            self._start(self._waiting.popleft(), process)

    def _start(self, job: Job, process: Process) -> None:
        job.tries += 1
        again = f", try {job.tries}" if job.tries > 1 else ""
        self.record.note(self.loop.now, process.name, f"gets the job {job.what!r}{again}", job.mail)
        running = self._running.setdefault(process, {})
        running[job] = None

        def done(failure: JobFailed | None) -> None:
            if job not in running:
                return  # it was given to somebody else meanwhile
            del running[job]
            if failure is not None:
                self._again(job)
            self.dispatch()

        process.spawn(self.work(job, process), done)

    def lost(self, process: Process) -> None:
        """Hear that a process died, or that it has not been heard of for too long: what it had in hand comes again."""
        running = self._running.pop(process, {})
        jobs = list(running)
        running.clear()
        for job in jobs:
            self._again(Job(job.what, job.mail, job.tries), 0.0 if process.is_alive else RETRY_S)

    def _again(self, job: Job, after_s: float = RETRY_S) -> None:
        if job.tries < TRIES_MAX:
            self.put(job, self.loop.now + after_s)
        else:
            self.record.note(self.loop.now, "queue", "gives the job up", job.mail)
