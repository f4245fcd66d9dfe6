"""DATA_DIR: who may use it, what is made in it once, and whether the ports it needs are free."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import errno
import fcntl
import os
import secrets
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import structlog

from notifier.domain.errors import NotReady
from notifier.embedded.process import birth, explained, make_data_dir, make_once, make_own_dir, port_is_free, read_note
from notifier.settings import Settings

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Home:
    """The files of one DATA_DIR."""

    path: Path
    api_key: str
    login_webhook_secret: str

    @property
    def logs(self) -> Path:
        """One log per process."""
        return self.path / "logs"

    @property
    def ready_files(self) -> Path:
        """Where children say that they answer."""
        return self.path / "run"

    @property
    def note(self) -> Path:
        """The processes of the last run."""
        return self.path / "run.json"


@contextlib.contextmanager
def open_home(path: Path) -> Iterator[Home]:
    """Have DATA_DIR to ourselves until the end; the lock goes with its process, however that ends."""
    with explained(path):
        path = make_data_dir(path)
        handle = os.open(path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = os.pread(handle, 32, 0).decode(errors="replace").strip()
            raise NotReady(
                f"another `notifier run` (pid {pid or 'unknown'}) uses {path}: stop it, or set NOTIFIER_DATA_DIR"
            ) from None
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        with explained(path):
            home = Home(
                path,
                make_once(path / "api_key", "nk_" + secrets.token_urlsafe(24)),
                make_once(
                    path / "login_webhook_secret",
                    "whsec_" + base64.b64encode(secrets.token_bytes(32)).decode("ascii"),
                ),
            )
            for directory in (home.logs, home.ready_files):
                make_own_dir(directory)
        yield home
    finally:
        os.close(handle)


async def await_ports(settings: Settings, home: Home) -> None:
    """Raise NotReady for a port that somebody else has; give our own leftovers time to leave theirs."""
    wanted = settings.ports_of_run
    deadline = time.monotonic() + settings.stop_grace_s + 5
    said = False
    while taken := [(name, port) for name, port in wanted.items() if port and not _is_free(settings.host, port)]:
        name, port = taken[0]
        leftovers = _leftovers(home)
        if not leftovers:
            raise NotReady(
                "\n".join(
                    f"port {port} is taken: set {name} to another one, or to 0 for any free one" for name, port in taken
                )
            )
        if time.monotonic() > deadline:
            raise NotReady(
                f"port {port} is still held by what the last run left behind (pids "
                f"{', '.join(map(str, leftovers))}): end that, or set {name} to another one"
            )
        if not said:
            said = True
            log.info("run.waiting", for_port=port, of_pids=leftovers)
        await asyncio.sleep(0.1)


def _leftovers(home: Home) -> list[int]:
    noted = read_note(home.note).get("children")
    pairs = noted if isinstance(noted, list) else []
    return [pid for pid, born in pairs if isinstance(pid, int) and born is not None and birth(pid) == born]


def _is_free(host: str, port: int) -> bool:
    try:
        address = str(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][4][0])
        return port_is_free(port, address)
    except OSError as error:
        if error.errno == errno.EACCES:
            raise NotReady(f"this user may not listen on port {port}: take one above 1023") from error
        raise NotReady(f"cannot listen on NOTIFIER_HOST={host}: {error.strerror or error}") from error
