"""Processes of a run: drivers that are spoken to, and the service's own; each ended by its own id."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from notifier.domain.errors import NotReady
from notifier.embedded.process import log_since, log_size, open_log, read_note
from notifier.proof.chaos.leftovers import note_started
from notifier.supervisor.children import clean_surroundings

ANSWER_WITHIN_S = 600.0
READY_WITHIN_S = 60.0
END_WITHIN_S = 30.0
LOOK_S = 0.02
LINE_MAX = 2**26
WORDS_BYTES = 3_000
SOURCE = Path(__file__).parents[3]


class Broken(Exception):
    """A side did not do what it was asked to: its figures would mean nothing."""


class Talking:
    """A driver in a process of its own."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, log: Path) -> None:
        self.name = name
        self._process = process
        self._log = log

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    async def ask(self, do: str, **fields: Any) -> dict[str, Any]:
        """Have it do something; gives its answer. Raises Broken with what it said."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(ANSWER_WITHIN_S):
                self._process.stdin.write(json.dumps({"do": do, **fields}).encode() + b"\n")
                await self._process.stdin.drain()
                line = await self._process.stdout.readline()
        except (OSError, TimeoutError) as error:
            raise Broken(f"{self.name} did not answer to {do!r} ({type(error).__name__}). {self.words()}") from error
        if not line:
            raise Broken(f"{self.name} ended while it was asked to {do!r}. {self.words()}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise Broken(f"{self.name}, asked to {do!r}: {answer['error']}. {self.words()}")
        return answer

    def words(self) -> str:
        """Give what it said last beside its answers."""
        said = log_since(self._log, max(0, log_size(self._log) - WORDS_BYTES)).strip()
        return f"It said last:\n{said}" if said else "It said nothing."

    async def end(self) -> None:
        """Hang up, and end it where that is not enough."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        await _gone(self._process)


async def _gone(process: asyncio.subprocess.Process) -> None:
    """Wait for its end, which it has been told of; then insist."""
    for number, patience_s in ((None, END_WITHIN_S), (signal.SIGTERM, 5.0), (signal.SIGKILL, 5.0)):
        with contextlib.suppress(ProcessLookupError):
            if number is not None and process.returncode is None:
                process.send_signal(number)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), patience_s)
            return


@contextlib.asynccontextmanager
async def driver(folder: Path, module: str, python: str = sys.executable) -> AsyncIterator[Talking]:
    """Start a driver, by the name of its module below this package; it ends with the block."""
    name = module.rpartition(".")[2]
    log = folder / "logs" / f"{name}.log"
    with open_log(log) as output:
        process = await asyncio.create_subprocess_exec(
            *(python, "-m", f"notifier.proof.bench.{module}"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=output,
            env={**clean_surroundings(), "PYTHONPATH": str(SOURCE)},
            cwd=folder,  # where no .env is
            start_new_session=True,
            limit=LINE_MAX,
        )
    note_started(folder, process.pid)
    talking = Talking(name, process, log)
    try:
        yield talking
    finally:
        await asyncio.shield(talking.end())


@contextlib.asynccontextmanager
async def service(
    folder: Path, python: str, command: str, settings: Mapping[str, str]
) -> AsyncIterator[Mapping[str, Any]]:
    """Start a process of the service; gives what its ready file says. It ends with the block. Raises NotReady."""
    parent_fd, our_end = os.pipe()
    log = folder / "logs" / f"{command}.log"
    ready = folder / f"ready-{command}-{our_end}-{os.urandom(4).hex()}.json"
    before = log_size(log)
    environ = {f"NOTIFIER_{name}": value for name, value in settings.items()}
    with open_log(log) as output:
        process = await asyncio.create_subprocess_exec(
            *(python, "-m", "notifier", command),
            *("--ready-file", str(ready), "--parent-fd", str(parent_fd)),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**clean_surroundings(), "PYTHONPATH": str(SOURCE), **environ},
            cwd=folder,
            pass_fds=(parent_fd,),
            start_new_session=True,
        )
    note_started(folder, process.pid)
    try:
        async with asyncio.timeout(READY_WITHIN_S):
            while not (note := read_note(ready)):
                if process.returncode is not None:
                    raise NotReady(f"{command} did not start. It said:\n{log_since(log, before)[-WORDS_BYTES:]}")
                await asyncio.sleep(LOOK_S)
        yield note
    finally:
        os.close(our_end)  # its end is the process's sign to stop
        os.close(parent_fd)
        await asyncio.shield(_gone(process))
        ready.unlink(missing_ok=True)
