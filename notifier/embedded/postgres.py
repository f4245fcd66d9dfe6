"""One PostgreSQL per DATA_DIR: made once, adopted when it lives, started when it does not."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

import psutil
import structlog

from notifier.domain.errors import NotReady
from notifier.embedded.place import OWN_SERVER, Place, find_place
from notifier.embedded.process import (
    LOOPBACK,
    POLL_S,
    Server,
    birth,
    explain,
    explained,
    free_port,
    log_since,
    log_size,
    make_data_dir,
    make_once,
    popen,
    read_note,
    spawn,
    stop,
    write_private,
)
from notifier.store import probe

NAME = "notifier"
START_TIMEOUT_S = 60.0
ONE_ANSWER_S = 5.0

SMALL_SERVER = {
    "listen_addresses": LOOPBACK,
    "unix_socket_directories": "",
    "max_connections": "200",
    "shared_buffers": "128MB",
    "max_parallel_workers_per_gather": "0",  # short statements only; and containers have little /dev/shm
    "jit": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "lc_messages": "C",
    "log_line_prefix": "%m [%p] %q%a ",
    "log_checkpoints": "off",
    "autovacuum_naptime": "15s",
    "client_connection_check_interval": "5s",  # a client that died must not keep its locks
    "tcp_keepalives_idle": "30",
    "tcp_keepalives_interval": "10",
    "tcp_keepalives_count": "3",
}
THROW_AWAY = {"fsync": "off", "full_page_writes": "off"}

log = structlog.get_logger(__name__)


async def start_postgres(data_dir: Path, *, durable: bool = True, settings: Mapping[str, str] | None = None) -> Server:
    """Answer a running PostgreSQL of this DATA_DIR. `durable=False` is for data nobody will miss.

    `settings` stand above those it starts with, if it is started here.
    Raises NotReady with what to do: wheel missing, disk full, directory not ours, another major version.
    """
    with explained(data_dir):
        data_dir = make_data_dir(data_dir)
        is_new = not any((data_dir / name).exists() for name in ("postgres-place.json", "postgres_password"))
        place = await asyncio.to_thread(find_place, data_dir)
        made = (place.data / "PG_VERSION").exists()
        if made and is_new:
            await _set_aside(place)
            made = False
        password = _password(data_dir, made=made)
        if made and (server := await _adopt(place, password)):
            return server
        if not made:
            await _make_cluster(place, password, durable=durable)
        _check_version(place)
        settings = {**SMALL_SERVER, **({} if durable else THROW_AWAY), **(settings or {})}
        return await _launch(data_dir, place, password, settings)


def _password(data_dir: Path, *, made: bool) -> str:
    path = data_dir / "postgres_password"
    if made and not path.exists():
        raise NotReady(f"{path} is missing: nobody gets into this PostgreSQL without it. Bring it back, or begin anew")
    return make_once(path, secrets.token_hex(24))


def _url(port: int, password: str, database: str = NAME) -> str:
    return f"postgresql://{NAME}:{password}@{LOOPBACK}:{port}/{database}"


def _server(port: int, password: str, process: subprocess.Popen[bytes]) -> Server:
    return Server("postgres", _url(port, password), port, process.pid, birth(process.pid) or "", process=process)


# A server that is there already


async def _adopt(place: Place, password: str) -> Server | None:
    """The live server of this place, once it answers; None when there is none, or it is just going down."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while (found := _postmaster(place)) is not None:
        pid, port, is_ready = found
        if is_ready and await _is_ours(place, port, password):
            await probe.ensure_database(_url(port, password, "postgres"), NAME)
            return Server("postgres", _url(port, password), port, pid, birth(pid) or "", adopted=True)
        if time.monotonic() > deadline:
            raise NotReady(f"the PostgreSQL of {place.root} (pid {pid}) does not answer: look at its log")
        await asyncio.sleep(POLL_S)
    _forget_reused_pid(place)
    return None


def _postmaster(place: Place) -> tuple[int, int, bool] | None:
    """Process id, port and readiness from postmaster.pid, if that process lives in our directory."""
    try:
        lines = (place.data / "postmaster.pid").read_text(encoding="utf-8", errors="replace").splitlines()
        pid, port = int(lines[0]), int(lines[3])
    except (FileNotFoundError, ValueError, IndexError):
        return None
    if not _works_in(pid, place.data):
        return None
    return pid, port, len(lines) > 7 and lines[7].strip() == "ready"


def _works_in(pid: int, directory: Path) -> bool:
    try:
        return birth(pid) is not None and _same(psutil.Process(pid).cwd(), directory)
    except (psutil.Error, OSError):
        return False


async def _is_ours(place: Place, port: int, password: str) -> bool:
    directory = await probe.data_directory(_url(port, password, "postgres"), timeout_s=ONE_ANSWER_S)
    return directory is not None and _same(directory, place.data)


def _same(left: str | Path, right: str | Path) -> bool:
    try:
        return os.path.samefile(left, right)
    except OSError:
        return False


def _forget_reused_pid(place: Place) -> None:
    """Remove a postmaster.pid whose number now belongs to somebody else, which PostgreSQL would not dare.

    After a reboot or in a fresh container that happens easily. A process that still works in the directory
    (a backend that outlived its postmaster for a moment) keeps the file where it is.
    """
    file = place.data / "postmaster.pid"
    try:
        pid = int(file.read_text(encoding="utf-8", errors="replace").partition("\n")[0])
    except (FileNotFoundError, ValueError):
        return
    if birth(pid) is None or any(_works_in(process.pid, place.data) for process in psutil.process_iter()):
        return
    file.unlink(missing_ok=True)


# A new cluster


async def _make_cluster(place: Place, password: str, *, durable: bool) -> None:
    """Make the cluster under another name first: what a kill leaves half done is never taken for one.

    As root we make the directory and give it away while it is empty: around it nothing is the other account's.
    """
    for leftover in place.root.glob("data.new-*"):
        shutil.rmtree(leftover, ignore_errors=True)  # its initdb may still be dying
    new = place.root / f"data.new-{secrets.token_hex(4)}"
    pwfile = place.root / f"data.new-{secrets.token_hex(4)}.password"
    try:
        new.mkdir(mode=0o700)
        if place.account:
            os.chown(new, place.account.uid, place.account.gid, follow_symlinks=False)
        write_private(pwfile, password + "\n", owner=place.account)
        await _initdb(place, new, pwfile, durable=durable)
    finally:
        pwfile.unlink(missing_ok=True)
    new.rename(place.data)
    _sync_directory(place.root)


async def _initdb(place: Place, new: Path, pwfile: Path, *, durable: bool) -> None:
    argv: list[str | Path] = [place.bin / "initdb", "-D", new, "-U", NAME, f"--pwfile={pwfile}"]
    argv += ["--auth=scram-sha-256", "--encoding=UTF8", "--locale=C"]
    argv += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--no-instructions"]
    if not durable:
        argv.append("--no-sync")
    process = popen(argv, output=subprocess.PIPE, cwd=place.root, account=place.account)
    output, _ = await asyncio.to_thread(process.communicate)
    if process.returncode != 0:
        raise NotReady(_why(output.decode(errors="replace"), place))


def _sync_directory(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _check_version(place: Place) -> None:
    made_by = (place.data / "PG_VERSION").read_text(encoding="ascii").strip()
    template = place.bin.parent / "share" / "postgres.bki"
    brought = template.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# PostgreSQL ").strip()
    if brought.isdigit() and made_by != brought:
        raise NotReady(
            f"{place.data} was made by PostgreSQL {made_by}, this installation brings {brought}: dump it "
            f"with the version that made it and restore into a new NOTIFIER_DATA_DIR, or {OWN_SERVER}"
        )


async def _set_aside(place: Place) -> None:
    """Make room where root's data are not below DATA_DIR, and somebody removed DATA_DIR to begin anew.

    Kept until that happens again, in case it was a mistake.
    """
    if found := _postmaster(place):
        await stop(Server("postgres", "", found[1], found[0], birth(found[0]) or ""))
    aside = place.root / "data.aside"
    if aside.exists():
        shutil.rmtree(aside)
    place.data.rename(aside)
    log.warning("postgres.set_aside", data_of="a removed NOTIFIER_DATA_DIR", kept_in=str(aside))


# Starting


async def _launch(data_dir: Path, place: Place, password: str, settings: Mapping[str, str]) -> Server:
    note = data_dir / "postgres.json"
    noted = read_note(note).get("port")
    port = free_port(noted if isinstance(noted, int) else None)
    log_file = data_dir / "logs" / "postgres.log"
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        server, output = await _attempt(place, port, password, log_file, settings)
        if server:
            write_private(note, json.dumps({"pid": server.pid, "port": port, "born": server.born}) + "\n")
            return server
        if "could not bind" in output:  # somebody was quicker
            port = free_port()
        elif "pre-existing shared memory block" not in output and "already exists" not in output:
            raise NotReady(_why(output, place, log_file))
        if time.monotonic() > deadline:
            raise NotReady(_why(output, place, log_file))
        await asyncio.sleep(0.2)


async def _attempt(
    place: Place, port: int, password: str, log_file: Path, settings: Mapping[str, str]
) -> tuple[Server | None, str]:
    """Start once. Answers the server, or what it wrote before it gave up."""
    argv: list[str | Path] = [place.bin / "postgres", "-D", place.data, "-p", str(port)]
    argv += [f"--{name}={value}" for name, value in settings.items()]
    offset = log_size(log_file)
    hold = _hold(place)
    try:
        process = spawn(argv, log=log_file, cwd=place.data, account=place.account, keep_fds=[hold])
    finally:
        os.close(hold)
    try:
        server, output = await _until_ready(place, port, password, process, log_file, offset)
        if server:
            await probe.ensure_database(_url(port, password, "postgres"), NAME)
        return server, output
    except BaseException:  # whoever is told to stop meanwhile leaves no server behind that nobody knows of
        process.send_signal(signal.SIGINT)
        process.wait()
        raise


async def _until_ready(
    place: Place, port: int, password: str, process: subprocess.Popen[bytes], log_file: Path, offset: int
) -> tuple[Server | None, str]:
    deadline = time.monotonic() + START_TIMEOUT_S
    while process.poll() is None:
        found = _postmaster(place)
        if found and found[0] == process.pid and found[2] and await _is_ours(place, port, password):
            return _server(port, password, process), ""
        if time.monotonic() > deadline:
            process.terminate()
            await asyncio.to_thread(process.wait)
            return None, "it did not answer in time\n" + log_since(log_file, offset)
        await asyncio.sleep(POLL_S)
    return None, log_since(log_file, offset)


def _hold(place: Place) -> int:
    """Lock the directory for as long as the server lives: tidiers of /var/tmp leave a locked one alone."""
    handle = os.open(place.root, os.O_RDONLY)
    with contextlib.suppress(OSError):
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    return handle


def _why(output: str, place: Place, log_file: Path | None = None) -> str:
    if "No space left on device" in output or "Disk quota exceeded" in output:
        return explain(OSError(28, "No space left on device"), place.root)
    tail = "\n".join(output.splitlines()[-8:]) or "(it said nothing)"
    where = f"; its log: {log_file}" if log_file else ""
    return f"PostgreSQL did not start in {place.root}{where}. It said:\n{tail}\nIf this stays, {OWN_SERVER}"


def noted_url(data_dir: Path) -> str | None:
    """Give the URL of the PostgreSQL that a `run` in this DATA_DIR started last, whether or not it still runs."""
    port = read_note(data_dir / "postgres.json").get("port")
    try:
        password = (data_dir / "postgres_password").read_text("utf-8").strip()
    except OSError:
        return None
    return _url(port, password) if isinstance(port, int) else None
