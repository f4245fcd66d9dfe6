"""One child process: started, watched, started again when it dies, and ended."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sysconfig
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import structlog

from notifier.client.address import reachable
from notifier.domain.errors import NotifierError
from notifier.embedded.process import log_since, log_size, open_log, read_note

EXIT_REFUSED = 2
NOT_STARTED = 1_000  # no exit code, which ends at 255
BACKOFF_FIRST_S = 0.2
BACKOFF_MAX_S = 5.0
HEALTHY_AFTER_S = 30.0
START_ATTEMPTS = 5
POLL_S = 0.03

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """What to start: `env` comes on top of `around` (ours).

    `port_settings` are pinned to the ports of the first start, by the name that the ready file gives the address.
    """

    name: str
    argv: Sequence[str]
    env: Mapping[str, str]
    port_settings: Mapping[str, str] = field(default_factory=dict)
    around: Mapping[str, str] = field(default_factory=lambda: os.environ)
    cwd: Path | None = None


class ChildFailed(NotifierError):
    """A child will not run whatever we do; the text is what it said. `refused`: its configuration is wrong."""

    def __init__(self, text: str, *, refused: bool) -> None:
        super().__init__(text)
        self.refused = refused


class Child:
    """A process of ours that is to be there until we say otherwise."""

    def __init__(
        self, spec: ChildSpec, *, run_dir: Path, log_dir: Path, parent_fd: int, changed: Callable[[], None]
    ) -> None:
        self.spec = spec
        self.env = dict(spec.env)
        self.pid: int | None = None
        self.url: str | None = None
        self.metrics: str | None = None
        self.smtp: str | None = None
        self.answers = asyncio.Event()
        self.log_path = log_dir / f"{spec.name}.log"
        self._ready_file = run_dir / f"{spec.name}.json"
        self._parent_fd = parent_fd
        self._changed = changed
        self._ending = asyncio.Event()
        self._why_not = ""
        self._process: asyncio.subprocess.Process | None = None

    async def keep(self) -> None:
        """Have it run until `end`. Raises ChildFailed when it refuses to, or never once answers.

        One that did answer is started again for ever, whatever it says: everything else still does its work, and
        what holds it back (a schema in between two builds, a port, a full disk) may pass.
        """
        delay_s, attempts, ever_answered = BACKOFF_FIRST_S, 0, False
        while not self._ending.is_set():
            offset, started = log_size(self.log_path), time.monotonic()
            code = await self._live_once()
            if self._ending.is_set():
                return
            attempts += 1
            ever_answered = ever_answered or self.answers.is_set()
            if not ever_answered and (code == EXIT_REFUSED or attempts == START_ATTEMPTS):
                raise ChildFailed(self._last_words(offset, code), refused=code == EXIT_REFUSED)
            if time.monotonic() - started > HEALTHY_AFTER_S:
                delay_s = BACKOFF_FIRST_S
            said = "" if self.answers.is_set() else self._said(offset)
            log.warning("child.ended", child=self.spec.name, how=describe(code), again_in_s=delay_s, said=said)
            self.answers.clear()
            self.env["NOTIFIER_FAILPOINTS"] = ""  # a test arms one life, not the ones after it
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ending.wait(), delay_s)
            delay_s = min(delay_s * 2, BACKOFF_MAX_S)

    async def end(self, *, patience_s: float, hurry: asyncio.Event) -> None:
        """Ask it to stop, and insist after `patience_s`, or at once when there is hurry."""
        self._ending.set()
        if (process := self._process) is None or process.returncode is not None:
            return
        self._send(signal.SIGTERM)
        self._send(signal.SIGCONT)  # a process that a failpoint froze would not hear us
        waits = [asyncio.ensure_future(process.wait()), asyncio.ensure_future(hurry.wait())]
        await asyncio.wait(waits, timeout=patience_s, return_when=asyncio.FIRST_COMPLETED)
        for task in waits:
            task.cancel()
        if process.returncode is None:
            log.warning("child.killed", child=self.spec.name, pid=process.pid, waited_s=patience_s)
            self._send(signal.SIGKILL)
            await process.wait()

    def renew(self, env: Mapping[str, str]) -> None:
        """Have it start again with another environment (an address moved)."""
        self.env |= env
        self._send(signal.SIGTERM)

    def _send(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    async def _live_once(self) -> int:
        """Start it and wait for its end; the code of one that could not even be started is NOT_STARTED."""
        try:
            self._ready_file.unlink(missing_ok=True)
            with open_log(self.log_path) as output:
                self._process = process = await asyncio.create_subprocess_exec(
                    *self.spec.argv,
                    *("--ready-file", str(self._ready_file), "--parent-fd", str(self._parent_fd)),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    env=self._environment(),
                    cwd=self.spec.cwd,
                    pass_fds=(self._parent_fd,),
                    start_new_session=True,  # a Ctrl-C is for us; we pass it on in the right order
                )
        except OSError as error:  # no more processes, no space for a log
            self._why_not = str(error)
            return NOT_STARTED
        self._why_not = ""
        self.pid = process.pid
        self._changed()
        watch = asyncio.create_task(self._watch_ready(process.pid))
        try:
            return await process.wait()
        finally:
            watch.cancel()

    def _environment(self) -> dict[str, str]:
        """The child's on top; names are compared as settings are read, without regard to case."""
        return {name: value for name, value in self.spec.around.items() if name.upper() not in self.env} | self.env

    async def _watch_ready(self, pid: int) -> None:
        while _writer(note := read_note(self._ready_file)) != pid:  # noqa: ASYNC110 - another process says it
            await asyncio.sleep(POLL_S)
        self.url = reachable(note.get("url"))
        self.metrics = reachable(note.get("metrics"))
        self.smtp = reachable(note.get("smtp"))
        for name, setting in self.spec.port_settings.items():
            if address := reachable(note.get(name)):
                self.env[setting] = str(urlsplit(address).port)
        self.answers.set()
        self._changed()

    def _last_words(self, offset: int, code: int) -> str:
        how, said = describe(code), self._said(offset)
        return f"{self.spec.name} does not start ({how}): {said}\nIts log: {self.log_path}"

    def _said(self, offset: int) -> str:
        if self._why_not:
            return self._why_not
        lines = [line for line in log_since(self.log_path, offset).splitlines() if line.strip()]
        mine = next((number for number, line in enumerate(lines) if line.startswith("notifier: ")), None)
        return "\n".join(lines[mine:] if mine is not None else lines[-12:]).removeprefix("notifier: ")


def _writer(note: Mapping[str, object]) -> object:
    """Who wrote a ready file; a `run` names itself among the processes it started."""
    pids = note.get("pids")
    return pids.get("supervisor") if isinstance(pids, dict) else note.get("pid")


def describe(code: int) -> str:
    """How a process ended, in words."""
    if code == NOT_STARTED:
        return "not started"
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def clean_surroundings() -> dict[str, str]:
    """What is around us without any setting of the user's, for this service or for PostgreSQL's clients.

    A child started from another directory, where no .env is, finds the code of a checkout all the same.
    """
    around = {name: value for name, value in os.environ.items() if not name.upper().startswith(("NOTIFIER_", "PG"))}
    source = str(Path(__file__).parents[2])
    if source != sysconfig.get_path("purelib"):
        around["PYTHONPATH"] = os.pathsep.join(filter(None, [source, around.get("PYTHONPATH")]))
    return around


def note_of(children: Sequence[Child], births: Callable[[int], str | None]) -> str:
    """Who runs now, for a later `run` that finds their ports taken."""
    pids = [child.pid for child in children if child.pid is not None]
    return json.dumps({"children": [[pid, births(pid)] for pid in pids]}) + "\n"
