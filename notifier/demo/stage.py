"""The demo's installation: in a directory and an environment of its own, and gone without a trace afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from notifier.domain.errors import NotReady
from notifier.embedded.place import remove
from notifier.embedded.process import explained, read_note
from notifier.supervisor.children import Child, ChildSpec, clean_surroundings

START_WITHIN_S = 90.0
END_WITHIN_S = 75.0  # everybody's own time to end, with PostgreSQL's
SETTINGS = {
    "CLOCK": "virtual",
    "API_PORT": "0",
    "MOCK_PORT": "0",
    "MOCK_SMTP_PORT": "0",
    "WORKERS": "2",
    "WORKER_CONCURRENCY": "3",  # so few that a rush of people leaves something for every worker
    "CLAIM_TTL_S": "3",
    "PROVIDER_TIMEOUT_S": "1",
    "POLL_S": "0.25",
    "BACKOFF_FIRST_S": "0.2",
    "BACKOFF_MAX_S": "1",
    "STOP_GRACE_S": "3",
}


@dataclass(slots=True)
class Stage:
    """A `notifier run`, and workers beside it. Whatever dies is started again."""

    folder: Path
    around: dict[str, str]
    parent_fd: int
    _keepers: dict[Child, asyncio.Task[None]] = field(default_factory=dict)

    @property
    def facts(self) -> dict[str, Any]:
        """The ready file of the `run`, as it is now."""
        return dict(read_note(self.folder / "run.json"))

    async def start_run(self) -> None:
        """Start everything, and wait until it answers."""
        await self.up(self._start("run", "run", {}))

    def start_worker(self, name: str, failpoints: str) -> Child:
        """Start a worker beside those of the `run`; its first life has these failpoints."""
        facts = self.facts
        addresses = {"DATABASE_URL": facts["database_url"], "REDIS_URL": facts["redis_url"], "MOCK_URL": facts["mock"]}
        return self._start("worker", name, addresses | {"FAILPOINTS": failpoints})

    def _start(self, command: str, name: str, settings: dict[str, str]) -> Child:
        spec = ChildSpec(
            name,
            (sys.executable, "-m", "notifier", command),
            {f"NOTIFIER_{key}": value for key, value in settings.items()},
            around=self.around,
            cwd=self.folder,  # where no .env is
        )
        child = Child(spec, run_dir=self.folder, log_dir=self.folder, parent_fd=self.parent_fd, changed=lambda: None)
        self._keepers[child] = asyncio.create_task(child.keep())
        return child

    async def up(self, child: Child) -> None:
        """Wait until it answers. Raises NotReady with its own last words when it never does."""
        answers = asyncio.create_task(child.answers.wait())
        keeper = self._keepers[child]
        await asyncio.wait({answers, keeper}, timeout=START_WITHIN_S, return_when=asyncio.FIRST_COMPLETED)
        if not answers.cancel():
            return
        why = keeper.exception() if keeper.done() else f"{child.spec.name} did not come up in {START_WITHIN_S:g} s"
        raise NotReady(f"{why}\n(The demo's files are in {self.folder}: TMPDIR names another place for them.)")

    async def end(self) -> None:
        """Stop everything: what was started beside the `run` first, and that in its own order."""
        for keeper in self._keepers.values():
            keeper.cancel()
        await asyncio.gather(*self._keepers.values(), return_exceptions=True)
        never = asyncio.Event()  # no hurry: a `run` that is killed leaves its databases behind
        for children in (list(self._keepers)[1:], list(self._keepers)[:1]):
            await asyncio.gather(*(child.end(patience_s=END_WITHIN_S, hurry=never) for child in children))


@contextlib.asynccontextmanager
async def open_stage(*, keep: bool) -> AsyncIterator[Stage]:
    """An empty stage in a new directory, which is removed afterwards unless it is to be kept."""
    with explained(tempfile.gettempdir()):
        folder = Path(tempfile.mkdtemp(prefix="notifier-demo-"))
    parent_fd, our_end = os.pipe()
    stage = Stage(folder, clean_environment(folder / "data"), parent_fd)
    try:
        yield stage
    finally:
        await stage.end()
        for handle in (parent_fd, our_end):
            os.close(handle)
        if not keep:
            remove(folder / "data")
            remove(folder)


def clean_environment(data_dir: Path) -> dict[str, str]:
    """What is around us without any setting of the user's, and ours."""
    ours = {f"NOTIFIER_{name}": value for name, value in SETTINGS.items()} | {"NOTIFIER_DATA_DIR": str(data_dir)}
    return clean_surroundings() | ours
