"""Pods: processes that are started again whenever they end, and that can be killed, frozen, armed and replaced."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import psutil

from notifier.domain.errors import NotReady
from notifier.embedded.process import log_since, log_size, open_log, read_note
from notifier.proof.chaos.leftovers import forget_clock, note_started
from notifier.proof.chaos.note import Note, Role, SignalName

LOOK_S = 0.03
RESTART_FIRST_S = 0.2
RESTART_MAX_S = 2.0
HEALTHY_AFTER_S = 5.0
END_WITHIN_S = 10.0
START_WITHIN_S = 90.0
ARM_AGAIN_FOR = 2.0  # times as long as it has
WORDS_BYTES = 2_000
ALONE = ("api", "supervisor")  # two of these would want the same port or directory
First = Literal["new", "old"]


@dataclass(frozen=True, slots=True)
class PodSpec:
    """What to start: `settings` without their prefix, `around` the whole rest of its environment."""

    name: str
    role: Role
    command: str
    settings: Mapping[str, str]
    around: Mapping[str, str]


@dataclass(slots=True, eq=False)
class Life:
    """One process of a pod. `armed` is its NOTIFIER_FAILPOINTS; `worker` its own id, once it has said it."""

    pid: int
    process: asyncio.subprocess.Process
    armed: str
    ready_file: Path
    worker: str | None = None
    answers: asyncio.Event = field(default_factory=asyncio.Event)
    frozen: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    sent: set[signal.Signals] = field(default_factory=set)
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    @property
    def struck_itself(self) -> bool:
        """Whether it was armed and has killed itself at its step."""
        killed = self.process.returncode == -signal.SIGKILL and signal.SIGKILL not in self.sent
        return killed and bool(self.armed)


class Pod:
    """A process that is to be there until the end, whoever kills it.

    Only one that replaces another has failpoints armed. Whoever breaks it holds `lock` meanwhile.
    """

    def __init__(self, spec: PodSpec, *, folder: Path, parent_fd: int, note: Note) -> None:
        self.spec = spec
        self.lock = asyncio.Lock()
        self.life: Life | None = None
        self.home = folder / "pods" / spec.name  # a directory without a .env
        self._folder = folder
        self._log = folder / "logs" / f"{spec.name}.log"
        self._parent_fd = parent_fd
        self._note = note
        self._lives = 0
        self._starting = asyncio.Lock()
        self._may_start = asyncio.Event()
        self._may_start.set()
        self._is_ending = False

    async def keep(self) -> None:
        """Have it run until `end`."""
        delay_s = RESTART_FIRST_S
        while not self._is_ending:
            await self._may_start.wait()
            started = time.monotonic()
            async with self._starting:
                if self.life is None or self.life.ended.is_set():
                    self.life = await self._start("")
                life = self.life
            await life.ended.wait()
            if self.life is life and not self._is_ending:
                is_well = time.monotonic() - started > HEALTHY_AFTER_S
                delay_s = RESTART_FIRST_S if is_well else min(delay_s * 2, RESTART_MAX_S)
                await asyncio.sleep(delay_s)

    async def end(self) -> None:
        """End it at once: nobody needs it any more. Nothing of this is noted."""
        self._is_ending = True
        if (life := self.life) is not None and not life.ended.is_set():
            _send(life, signal.SIGKILL)
            await life.ended.wait()

    async def up(self) -> Life:
        """Wait until it answers. Raises NotReady with its last words when it does not in time."""
        deadline = time.monotonic() + START_WITHIN_S
        while (life := self.life) is None or not life.answers.is_set() or life.ended.is_set():
            if time.monotonic() > deadline:
                said = log_since(self._log, max(0, log_size(self._log) - WORDS_BYTES))
                raise NotReady(f"{self.spec.name} does not answer within {START_WITHIN_S:g} s. It said last:\n{said}")
            await asyncio.sleep(LOOK_S)
        return life

    def signal(self, number: signal.Signals, by: str = "schedule") -> None:
        """Send it a signal, and write that down first; nothing when it is not there just now."""
        if (life := self.life) is None or life.ended.is_set():
            return
        self._signalled(life, _NAMES[number], by)
        _send(life, number)

    async def replace(self, *, failpoints: str = "", first: First = "old") -> Life:
        """Replace its process with another one, in order; gives the new one once it answers, `failpoints` armed.

        `first`: whether the new one answers before the old one is told to end, or the old one has ended before.
        """
        async with self._starting:  # `keep` starts none meanwhile, and nobody but this one is armed
            old = self.life
            if old is not None and first == "old":
                await self._terminate(old)
            new = await self._start(failpoints)
            if first == "old":
                self.life = new
            await _any((new.answers, new.ended, new.frozen), START_WITHIN_S)
            self.life = new
        if old is not None:
            await self._terminate(old)
        return new

    async def arm(self, failpoints: str, for_s: float) -> Life:
        """Replace it with an armed one, and give that once it came to its step, or `for_s` after its first answer.

        Where it was long in coming, everything is: it has that time on top. One that something else ended, a database
        that was away say, is armed again.
        """
        began = time.monotonic()
        while True:
            life = await self.replace(failpoints=failpoints, first=order(self))
            came_after_s = time.monotonic() - began
            await _any((life.ended, life.frozen), for_s + came_after_s)
            has_ended = life.ended.is_set() and not life.struck_itself
            if not has_ended or time.monotonic() - began > ARM_AGAIN_FOR * for_s:
                return life
            await asyncio.sleep(RESTART_FIRST_S)

    @contextlib.contextmanager
    def down(self) -> Iterator[None]:
        """Keep it from being started again for as long as the block lasts."""
        self._may_start.clear()
        try:
            yield
        finally:
            self._may_start.set()

    async def heal(self) -> None:
        """Thaw it, let it start, and replace a process that is still armed."""
        self._may_start.set()
        if (life := self.life) is None or life.ended.is_set():
            return
        if is_stopped(life.pid) or signal.SIGSTOP in life.sent:  # which a busy machine is yet to do
            self.signal(signal.SIGCONT, "heal")
            life.frozen.clear()
        if life.armed:
            await self.replace()

    # One process

    async def _start(self, armed: str) -> Life:
        self._lives += 1
        self.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        ready_file = self._folder / "ready" / f"{self.spec.name}-{self._lives}.json"
        ready_file.parent.mkdir(mode=0o700, exist_ok=True)
        settings = {f"NOTIFIER_{name}": value for name, value in self.spec.settings.items()}
        with open_log(self._log) as output:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "notifier", self.spec.command),
                *("--ready-file", str(ready_file), "--parent-fd", str(self._parent_fd)),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**self.spec.around, **settings, "NOTIFIER_FAILPOINTS": armed},
                cwd=self.home,
                pass_fds=(self._parent_fd,),
                start_new_session=True,
            )
        note_started(self._folder, process.pid)
        life = Life(process.pid, process, armed, ready_file)
        self._signalled(life, "START", f"armed {armed}" if armed else "")
        watches = [self._watch_end(life), self._watch_ready(life)]
        if "freeze" in armed:
            watches.append(self._watch_freeze(life))
        life.tasks = [asyncio.create_task(watch) for watch in watches]
        return life

    async def _watch_end(self, life: Life) -> None:
        code = await life.process.wait()
        forget_clock(life.pid)
        if code == -signal.SIGKILL and signal.SIGKILL not in life.sent:
            self._signalled(life, "KILL", f"failpoint {_point(life.armed)}" if life.struck_itself else "somebody else")
        self._signalled(life, "END", "" if code <= 0 else f"exit code {code}")
        for task in life.tasks[1:]:
            task.cancel()
        life.ready_file.unlink(missing_ok=True)
        life.ended.set()

    async def _watch_ready(self, life: Life) -> None:
        while not _is_writer(note := read_note(life.ready_file), life.pid):  # noqa: ASYNC110 - another process says it
            await asyncio.sleep(LOOK_S)
        worker = note.get("process")
        life.worker = worker if isinstance(worker, str) else None
        life.answers.set()

    async def _watch_freeze(self, life: Life) -> None:
        while not is_stopped(life.pid) or signal.SIGSTOP in life.sent:  # noqa: ASYNC110 - it cannot say so itself
            await asyncio.sleep(LOOK_S)
        self._signalled(life, "STOP", f"failpoint {_point(life.armed)}")
        life.frozen.set()

    def _signalled(self, life: Life, name: SignalName, by: str) -> None:
        if not self._is_ending:
            spec = self.spec
            self._note.signal(process=spec.name, role=spec.role, pid=life.pid, signal=name, worker=life.worker, by=by)

    async def _terminate(self, life: Life) -> None:
        if life.ended.is_set():
            return
        self._signalled(life, "TERM", "schedule")
        _send(life, signal.SIGTERM)
        _send(life, signal.SIGCONT)
        if not await within(life.ended, END_WITHIN_S):
            self._signalled(life, "KILL", "it did not end")
            _send(life, signal.SIGKILL)
            await life.ended.wait()


_NAMES: Mapping[signal.Signals, SignalName] = {
    signal.SIGTERM: "TERM",
    signal.SIGKILL: "KILL",
    signal.SIGSTOP: "STOP",
    signal.SIGCONT: "CONT",
}


def is_stopped(pid: int) -> bool:
    """Whether a process is frozen."""
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_STOPPED)
    except psutil.Error:
        return False


def _send(life: Life, number: signal.Signals) -> None:
    life.sent.add(number)
    if number is signal.SIGCONT:
        life.sent.discard(signal.SIGSTOP)
    if life.process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(life.pid, number)


def _is_writer(note: Mapping[str, object], pid: int) -> bool:
    """Whether this process wrote the ready file; a `run` names itself among those it started."""
    pids = note.get("pids")
    return pid == (pids.get("supervisor") if isinstance(pids, dict) else note.get("pid"))


def _point(armed: str) -> str:
    return armed.partition("=")[0]


def order(pod: Pod, wanted: First = "new") -> First:
    """Which of two is there first when a pod is replaced: as wanted, where two can be at once."""
    return "old" if pod.spec.role in ALONE else wanted


async def within(event: asyncio.Event, seconds: float) -> bool:
    """Wait for something; whether it came in time."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True


async def _any(events: tuple[asyncio.Event, ...], seconds: float) -> None:
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
