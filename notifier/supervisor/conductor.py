"""One run: what is started in which order, what is written down about it, and how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args
from urllib.parse import urlsplit

import structlog

from notifier.domain.errors import NotifierError, NotReady
from notifier.embedded.process import birth, write_private
from notifier.lifecycle import parent
from notifier.settings import Scope, Settings
from notifier.supervisor import screen
from notifier.supervisor.children import Child, ChildSpec, note_of
from notifier.supervisor.databases import Databases
from notifier.supervisor.home import Home, await_ports, open_home

PROGRAM = (sys.executable, "-m", "notifier")
GRACE_EXTRA_S = 5.0
MOCK_PORTS = {"url": "NOTIFIER_MOCK_PORT", "smtp": "NOTIFIER_MOCK_SMTP_PORT"}

log = structlog.get_logger(__name__)

T = TypeVar("T")


async def run(
    settings: Settings,
    *,
    ready_file: Path | None = None,
    parent_fd: int | None = None,
    program: Sequence[str] | None = None,
) -> None:
    """Run everything until SIGINT, SIGTERM, or the end of the process that holds the other end of `parent_fd`.

    Raises NotReady or ChildFailed when it cannot be done.
    """
    started = time.monotonic()
    signals = Signals()
    with open_home(settings.data_dir) as home:
        supervisor = Supervisor(settings, home, ready_file=ready_file, program=program or PROGRAM)
        with signals.listening(), parent(parent_fd, signals.stop):
            working = asyncio.create_task(supervisor.work(started))
            stopping = asyncio.create_task(signals.stop.wait())
            try:
                await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                stopping.cancel()
                working.cancel()
                await asyncio.wait({working})
                await supervisor.stop(signals.hurry)
                log.info("run.stopped")
    if not working.cancelled() and (error := working.exception()):
        raise _first(error)


class Signals:
    """The first signal means stop, any further one: hurry."""

    def __init__(self) -> None:
        self.stop = asyncio.Event()
        self.hurry = asyncio.Event()
        self.first: signal.Signals | None = None

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Take SIGINT, SIGTERM and the closing of the terminal."""
        loop = asyncio.get_running_loop()
        numbers = [signal.SIGINT, signal.SIGTERM]
        if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # nohup asks for that one to be ignored
            numbers.append(signal.SIGHUP)
        for number in numbers:
            loop.add_signal_handler(number, self._heard, number)
        try:
            yield
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)

    async def unless_stopped(self, act: Coroutine[Any, Any, T]) -> T | None:
        """What the act comes to; None when a signal comes first, and the act is canceled."""
        acting, stopping = asyncio.create_task(act), asyncio.create_task(self.stop.wait())
        try:
            await asyncio.wait({acting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            acting.cancel()
            await asyncio.wait({acting})
        return None if acting.cancelled() else acting.result()

    def _heard(self, number: signal.Signals) -> None:
        if self.stop.is_set():
            self.hurry.set()
        self.first = self.first or number
        self.stop.set()  # before anything is said: the terminal may be gone
        log.info("run.stopping", signal=number.name, hurry=self.hurry.is_set())


class Supervisor:
    """Everything of one run."""

    def __init__(self, settings: Settings, home: Home, *, ready_file: Path | None, program: Sequence[str]) -> None:
        self._settings = settings
        self._home = home
        self._ready_file = ready_file
        self._program = program
        self._databases = Databases(settings, home.path)
        self._parent_fd, self._our_end = os.pipe()
        self._children: dict[str, Child] = {}
        self._keepers: asyncio.TaskGroup
        self._given: dict[str, str] = {}
        self._up = False

    @property
    def _with_mock(self) -> bool:
        return self._settings.needs_mock

    async def work(self, started: float) -> None:
        """Start everything, say so, and keep it alive until cancelled."""
        if self._ready_file:
            with self._refusing_ready_file():
                self._ready_file.unlink(missing_ok=True)  # what an earlier run wrote is not true any more
        await await_ports(self._settings, self._home)
        async with asyncio.TaskGroup() as self._keepers:
            if self._with_mock:
                self._start("mock", "mock-provider", {}, port_settings=MOCK_PORTS)
            await self._databases.start()
            await self._answers()
            self._start_processes()
            await self._answers()
            self._up = True
            with self._refusing_ready_file():
                self._write_ready_file()
            self._announce(time.monotonic() - started)
            self._keepers.create_task(self._databases.watch(self._databases_changed))

    # Children

    def _start(
        self, name: str, command: str, env: dict[str, str], *, port_settings: Mapping[str, str] | None = None
    ) -> None:
        env = {"NOTIFIER_DATA_DIR": str(self._home.path)} | env
        spec = ChildSpec(name, (*self._program, command), env, port_settings or {})
        child = Child(
            spec,
            run_dir=self._home.ready_files,
            log_dir=self._home.logs,
            parent_fd=self._parent_fd,
            changed=self._children_changed,
        )
        self._children[name] = child
        self._keepers.create_task(child.keep())

    def _start_processes(self) -> None:
        self._given = self._addresses()
        metrics_port = self._settings.metrics_port
        self._start("api", "api", self._given | self._credentials(), port_settings={"url": "NOTIFIER_API_PORT"})
        self._start("scheduler", "scheduler", self._given | {"NOTIFIER_METRICS_PORT": str(metrics_port)})
        for number in range(1, self._settings.workers + 1):
            port = metrics_port + number if metrics_port else 0
            self._start(f"worker-{number}", "worker", self._given | {"NOTIFIER_METRICS_PORT": str(port)})

    def _addresses(self) -> dict[str, str]:
        found = {
            "NOTIFIER_DATABASE_URL": self._databases.database_url,
            "NOTIFIER_REDIS_URL": self._databases.redis_url,
        }
        mock = self._children["mock"].url if self._with_mock else self._settings.mock_url
        if mock:
            found["NOTIFIER_MOCK_URL"] = mock
        if self._with_mock and self._settings.provider == "smtp" and self._settings.smtp_host is None:
            listener = urlsplit(self._children["mock"].smtp or "")
            found |= {"NOTIFIER_SMTP_HOST": str(listener.hostname), "NOTIFIER_SMTP_PORT": str(listener.port)}
        return found

    def _credentials(self) -> dict[str, str]:
        keys = {key.get_secret_value(): sorted(scopes) for key, scopes in self._settings.api_keys.items()}
        secrets = [secret.get_secret_value() for secret in self._settings.login_webhook_secrets]
        return {
            "NOTIFIER_API_KEYS": json.dumps(keys | {self._home.api_key: get_args(Scope)}),
            "NOTIFIER_LOGIN_WEBHOOK_SECRETS": json.dumps([*secrets, self._home.login_webhook_secret]),
        }

    async def _answers(self) -> None:
        await asyncio.gather(*(child.answers.wait() for child in self._children.values()))

    def _children_changed(self) -> None:
        try:
            write_private(self._home.note, note_of(list(self._children.values()), birth))
            if self._up and all(child.answers.is_set() for child in self._children.values()):
                self._write_ready_file()
        except OSError as error:  # a full disk must not end what still works
            log.error("run.not_noted", why=str(error))

    def _databases_changed(self) -> None:
        if (now := self._addresses()) != self._given:
            self._given = now
            for name, child in self._children.items():
                if name != "mock":
                    child.renew(now)
        self._children_changed()

    # What others read

    @contextlib.contextmanager
    def _refusing_ready_file(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise NotReady(f"cannot write --ready-file {self._ready_file}: {error.strerror}") from error

    def _write_ready_file(self) -> None:
        if self._ready_file:
            write_private(self._ready_file, json.dumps(self._facts(), indent=2) + "\n")

    def _facts(self) -> dict[str, object]:
        children = self._children
        workers = [child for name, child in children.items() if name.startswith("worker-")]
        postgres, valkey = self._databases.postgres, self._databases.valkey
        return {
            "api": children["api"].url,
            "mock": children["mock"].url if "mock" in children else self._settings.mock_url,
            "smtp": children["mock"].smtp if "mock" in children else None,
            "database_url": self._databases.database_url,
            "redis_url": self._databases.redis_url,
            "api_key": self._home.api_key,
            "login_webhook_secret": self._home.login_webhook_secret,
            "pids": {
                "supervisor": os.getpid(),
                "postgres": postgres.pid if postgres else None,
                "redis": valkey.pid if valkey else None,
                "api": children["api"].pid,
                "scheduler": children["scheduler"].pid,
                "mock": children["mock"].pid if "mock" in children else None,
                "workers": [worker.pid for worker in workers],
            },
            "metrics": {
                "api": children["api"].metrics,
                "scheduler": children["scheduler"].metrics,
                "workers": [worker.metrics for worker in workers],
            },
        }

    def _announce(self, seconds: float) -> None:
        facts = self._databases
        screen.announce(
            api=self._children["api"].url or "",
            mock=self._children["mock"].url if self._with_mock else self._settings.mock_url,
            smtp=self._children["mock"].smtp if self._with_mock else None,
            data_dir=self._home.path,
            postgres=_bare(facts.database_url) + (" (embedded)" if facts.postgres else ""),
            redis=(_bare(facts.redis_url) + (" (embedded)" if facts.valkey else "")) if facts.redis_url else "-",
            seconds=seconds,
            workers=self._settings.workers,
        )

    # The end

    async def stop(self, hurry: asyncio.Event) -> None:
        """End senders first, then the mock they talk to, then the databases."""
        patience_s = self._settings.stop_grace_s + GRACE_EXTRA_S
        mock = self._children.pop("mock", None)
        await asyncio.gather(*(child.end(patience_s=patience_s, hurry=hurry) for child in self._children.values()))
        if mock:
            await mock.end(patience_s=patience_s, hurry=hurry)
        await self._databases.stop()
        for handle in (self._parent_fd, self._our_end):
            os.close(handle)


def _bare(url: str) -> str:
    return urlsplit(url).netloc.rpartition("@")[2]


def _first(error: BaseException) -> BaseException:
    """The one error of a group that tells the operator most."""
    while isinstance(error, BaseExceptionGroup):
        ours = [inner for inner in error.exceptions if isinstance(inner, NotifierError)]
        error = (ours or error.exceptions)[0]
    return error
