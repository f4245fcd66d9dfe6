"""Server processes that outlive us: how they are started, recognised, noted and stopped."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import shlex
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import psutil

from notifier.domain.errors import NotReady

LOOPBACK = "127.0.0.1"
LOG_MAX_BYTES = 10 * 1024 * 1024
POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class Account:
    """The user a server runs as when we are root; None wherever we are not."""

    name: str
    uid: int
    gid: int


@dataclass(frozen=True, slots=True)
class Server:
    """A running server: where it answers (the URL holds its password), and which process it is."""

    name: str
    url: str
    port: int
    pid: int
    born: str
    adopted: bool = False
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False, compare=False)


def alive(server: Server) -> bool:
    """Whether this very process still runs; a reused process id does not count."""
    if server.process is not None:
        return server.process.poll() is None
    return birth(server.pid) == server.born


async def stop(server: Server, *, timeout_s: float = 30) -> None:
    """Shut a server down cleanly, harder when it does not listen; returns when it is gone."""
    first = signal.SIGINT if server.name == "postgres" else signal.SIGTERM
    last = signal.SIGQUIT if server.name == "postgres" else signal.SIGKILL
    for number, patience_s in ((first, timeout_s), (last, 5.0), (signal.SIGKILL, 5.0)):
        if not alive(server):
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(server.pid, number)
            os.kill(server.pid, signal.SIGCONT)  # one that was stopped hears nothing else but SIGKILL
        if await gone(server, patience_s):
            return


async def gone(server: Server, timeout_s: float) -> bool:
    """Wait for the end of a server's process; False when it still runs after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while alive(server):
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(POLL_S)
    return True


def birth(pid: int) -> str | None:
    """What tells a process from a later one with the same id; None when there is none (or a zombie)."""
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        return _birth_in_ticks(pid) or f"{process.create_time():.2f}"
    except psutil.Error:
        return None


def _birth_in_ticks(pid: int) -> str | None:
    """Linux counts from boot, which no correction of the clock moves; the boot's id makes it unique."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return f"{boot}/{stat.rpartition(')')[2].split()[19]}"


def spawn(
    argv: Sequence[str | os.PathLike[str]],
    *,
    log: Path,
    cwd: Path,
    account: Account | None = None,
    keep_fds: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Start a server in its own session, so that a Ctrl-C in our terminal is not meant for it."""
    with open_log(log) as output:
        return popen(argv, output=output, cwd=cwd, account=account, keep_fds=keep_fds)


def popen(
    argv: Sequence[str | os.PathLike[str]],
    *,
    output: int | IO[bytes],
    cwd: Path,
    account: Account | None = None,
    keep_fds: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Start a program of the wheels as the account that has to run it."""
    with explained(argv[0]):
        return subprocess.Popen(  # noqa: S603 - our own argv, no shell
            argv,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=cwd,
            env=clean_environment(),
            start_new_session=True,
            user=account.uid if account else None,
            group=account.gid if account else None,
            extra_groups=[] if account else None,
            umask=0o077,
            pass_fds=keep_fds,
        )


def clean_environment() -> Mapping[str, str]:
    """Nothing of ours: PGDATA, PGOPTIONS or a German locale must not change how a server behaves."""
    return {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"}


def open_log(path: Path) -> IO[bytes]:
    """Open a log for appending, readable by us only; the one before is kept when it has grown large."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        if path.stat().st_size > LOG_MAX_BYTES:
            path.replace(path.with_suffix(path.suffix + ".1"))
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "ab", buffering=0)


def log_since(path: Path, offset: int) -> str:
    """What was written to a log after `offset` bytes."""
    with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
        file.seek(offset)
        return file.read(64 * 1024).decode(errors="replace").strip()
    return ""


def log_size(path: Path) -> int:
    """Bytes in a log that may not exist yet."""
    return path.stat().st_size if path.exists() else 0


def port_is_free(port: int, host: str = LOOPBACK) -> bool:
    """Whether nobody listens on this port now."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return False
            raise
        return True


def free_port(preferred: int | None = None, host: str = LOOPBACK) -> int:
    """The preferred port if it is free, else any free one."""
    if preferred and port_is_free(preferred, host):
        return preferred
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def read_note(path: Path) -> dict[str, object]:
    """What an earlier process noted; empty when there is nothing that makes sense."""
    try:
        note = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    return note if isinstance(note, dict) else {}


def write_private(path: Path, text: str, *, owner: Account | None = None) -> None:
    """Write a file whole or not at all, readable by us only, or by `owner` instead."""
    new = path.with_name(f"{path.name}.{os.getpid()}.new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        if owner:
            os.fchown(file.fileno(), owner.uid, owner.gid)  # by the descriptor: no name that could be a link by now
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


def make_data_dir(path: Path) -> Path:
    """Make a DATA_DIR readable by us only, and answer its absolute path.

    One that is there already keeps its mode: it may be somebody's home. What we make in it is closed to others by
    itself, so that they may look at its names; where they could exchange what is in it, NotReady is raised.
    """
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = path.resolve()
    if path.stat().st_mode & 0o022:
        raise NotReady(
            f"others may write in {path}, and so exchange keys and data: `chmod go-w {shlex.quote(str(path))}`, or set "
            f"NOTIFIER_DATA_DIR to a directory of its own, e.g. {path / 'notifier'}"
        )
    return path


def make_own_dir(path: Path) -> Path:
    """Make a directory inside DATA_DIR, or close the one that is there to others, and answer its absolute path."""
    path.mkdir(mode=0o700, exist_ok=True)
    if path.stat().st_uid == os.geteuid():
        path.chmod(0o700)
    return path.resolve()


def make_once(path: Path, text: str) -> str:
    """The content of a private file, which is made with `text` if it is not there."""
    try:
        if kept := path.read_text(encoding="utf-8").strip():
            return kept
    except FileNotFoundError:
        pass
    write_private(path, text + "\n")
    return text


@contextlib.contextmanager
def explained(what: object) -> Iterator[None]:
    """Turn an operating system's refusal into words about what to do."""
    try:
        yield
    except OSError as error:
        raise NotReady(explain(error, what)) from error


def explain(error: OSError, what: object) -> str:
    """One refusal of the operating system, in words about what to do."""
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            return f"no space left on the disk of {what}: free some, or point NOTIFIER_DATA_DIR elsewhere"
        case errno.EACCES | errno.EPERM | errno.EROFS:
            return f"no permission for {what} ({error.strerror}): set NOTIFIER_DATA_DIR to one you may write"
        case errno.ENOTDIR | errno.EEXIST:
            return f"{error.filename or what} is not a directory: set NOTIFIER_DATA_DIR to another path"
        case errno.ENOEXEC:
            return (
                f"{what} is made for another processor: reinstall on this machine, "
                "or set NOTIFIER_DATABASE_URL and NOTIFIER_REDIS_URL to servers of your own"
            )
        case errno.ENOENT:
            return (
                f"{error.filename or what} cannot be started here: the file, or the loader it asks for, is missing. "
                "Reinstall, or set NOTIFIER_DATABASE_URL and NOTIFIER_REDIS_URL to servers of your own"
            )
        case _:
            return f"{what}: {error}"
