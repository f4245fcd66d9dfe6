"""The servers from the wheels: private, adopted when they live, healed when they were killed."""

from __future__ import annotations

import asyncio
import errno
import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
from pathlib import Path

import asyncpg
import psutil
import pytest

from notifier import embedded
from notifier.domain.errors import NotReady
from notifier.embedded import place as places
from notifier.embedded import process as processes
from notifier.supervisor.home import open_home
from tests.support.poll import eventually

pytestmark = pytest.mark.database


async def start(data_dir: Path) -> embedded.Server:
    return await embedded.start_postgres(data_dir, durable=False)


async def ask(server: embedded.Server, query: str) -> str:
    conn = await asyncpg.connect(server.url)
    try:
        return str(await conn.fetchval(query))
    finally:
        await conn.close()


def kill(server: embedded.Server) -> None:
    os.kill(server.pid, signal.SIGKILL)
    eventually(lambda: not embedded.alive(server))


async def test_a_live_server_of_its_own_is_adopted_with_its_data(data_dir: Path) -> None:
    first = await start(data_dir)
    await ask(first, "CREATE TABLE kept (a int)")
    second = await start(data_dir)
    assert (second.pid, second.url, second.adopted) == (first.pid, first.url, True)
    await embedded.stop(second)
    assert not embedded.alive(first)
    third = await start(data_dir)
    assert (third.port, third.adopted) == (first.port, False)
    assert await ask(third, "SELECT count(*) FROM kept") == "0"
    await embedded.stop(third)


async def test_a_killed_server_comes_back_with_what_was_committed(data_dir: Path) -> None:
    first = await start(data_dir)
    await ask(first, "CREATE TABLE kept (a int)")
    kill(first)
    second = await start(data_dir)
    assert second.pid != first.pid
    assert await ask(second, "SELECT count(*) FROM kept") == "0"
    await embedded.stop(second)


async def test_a_process_id_that_now_belongs_to_somebody_else_is_no_obstacle(data_dir: Path) -> None:
    first = await start(data_dir)
    kill(first)
    file = places.find_place(data_dir).data / "postmaster.pid"
    account = places.find_place(data_dir).account
    bystander = processes.popen(["/bin/sleep", "60"], output=subprocess.DEVNULL, cwd=Path("/"), account=account)
    try:
        file.write_text(file.read_text().replace(str(first.pid), str(bystander.pid), 1))
        second = await start(data_dir)
        assert await ask(second, "SELECT 1") == "1"
        await embedded.stop(second)
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


async def test_a_port_that_somebody_took_is_left_to_them(data_dir: Path) -> None:
    servers = [await start(data_dir), await embedded.start_valkey(data_dir)]
    for server in servers:
        await embedded.stop(server)
    with socket.create_server(("127.0.0.1", servers[0].port)), socket.create_server(("127.0.0.1", servers[1].port)):
        again = [await start(data_dir), await embedded.start_valkey(data_dir)]
    for server, before in zip(again, servers, strict=True):
        assert server.port != before.port
        await embedded.stop(server)


async def test_what_a_killed_initdb_left_is_not_taken_for_a_cluster(data_dir: Path) -> None:
    place = places.find_place(_made(data_dir))
    half = place.root / "data.new-dead"
    half.mkdir()
    (half / "PG_VERSION").write_text("18\n")
    server = await start(data_dir)
    assert not half.exists()
    await embedded.stop(server)


async def test_nobody_gets_in_without_the_password_or_from_outside(data_dir: Path) -> None:
    server = await start(data_dir)
    with pytest.raises(asyncpg.InvalidPasswordError):
        await asyncpg.connect(server.url.replace("@", "x@"))
    assert await ask(server, "SELECT string_agg(DISTINCT auth_method, ',') FROM pg_hba_file_rules") == "scram-sha-256"
    assert await ask(server, "SHOW unix_socket_directories") == ""
    assert await ask(server, "SHOW server_encoding") == "UTF8"
    listening = psutil.Process(server.pid).net_connections(kind="inet")
    assert {connection.laddr.ip for connection in listening if connection.status == psutil.CONN_LISTEN} == {"127.0.0.1"}
    assert (data_dir / "postgres_password").stat().st_mode & 0o077 == 0
    assert data_dir.stat().st_mode & 0o077 == 0
    await embedded.stop(server)


async def test_data_made_by_another_major_version_are_refused(data_dir: Path) -> None:
    server = await start(data_dir)
    await embedded.stop(server)
    (places.find_place(data_dir).data / "PG_VERSION").write_text("17\n")
    with pytest.raises(NotReady, match=r"made by PostgreSQL 17, this installation brings 1[89]"):
        await start(data_dir)


async def test_data_that_are_gone_are_missed(data_dir: Path) -> None:
    server = await start(data_dir)
    await embedded.stop(server)
    shutil.rmtree(places.find_place(data_dir).data)
    with pytest.raises(NotReady, match="are gone"):
        await start(data_dir)


async def test_valkey_is_adopted_and_replaced(data_dir: Path) -> None:
    first = await embedded.start_valkey(data_dir)
    second = await embedded.start_valkey(data_dir)
    assert (second.pid, second.url, second.adopted) == (first.pid, first.url, True)
    kill(first)
    third = await embedded.start_valkey(data_dir)
    assert third.pid != first.pid
    assert third.port == first.port
    await embedded.stop(third)


async def test_a_valkey_of_ours_that_does_not_answer_is_ended_and_replaced(data_dir: Path) -> None:
    first = await embedded.start_valkey(data_dir)
    os.kill(first.pid, signal.SIGSTOP)
    second = await embedded.start_valkey(data_dir)
    assert second.pid != first.pid
    assert not embedded.alive(first)
    await embedded.stop(second)


async def test_a_stopped_server_is_heard_to_the_end(data_dir: Path) -> None:
    server = await start(data_dir)
    os.kill(server.pid, signal.SIGSTOP)
    await asyncio.wait_for(embedded.stop(server), 10)
    assert not embedded.alive(server)
    assert "database system is shut down" in (data_dir / "logs" / "postgres.log").read_text()


async def test_a_noted_valkey_that_is_not_ours_is_not_adopted(data_dir: Path, valkey: embedded.Server) -> None:
    _made(data_dir)
    (data_dir / "valkey.json").write_text(json.dumps({"pid": valkey.pid, "port": valkey.port, "born": valkey.born}))
    server = await embedded.start_valkey(data_dir)
    assert server.pid != valkey.pid
    assert embedded.alive(valkey)
    await embedded.stop(server)


async def test_being_told_to_stop_while_starting_leaves_no_server(data_dir: Path) -> None:
    server = await start(data_dir)
    await embedded.stop(server)
    starting = asyncio.create_task(start(data_dir))
    pid_file = places.find_place(data_dir).data / "postmaster.pid"
    while not pid_file.exists():  # noqa: ASYNC110 - another process makes it
        await asyncio.sleep(0)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert not pid_file.exists()


async def test_a_file_in_place_of_the_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    for act in (embedded.start_postgres, embedded.start_valkey):
        with pytest.raises(NotReady, match="data is not a directory: set NOTIFIER_DATA_DIR"):
            await act(tmp_path / "data")


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702, 0o1777])
async def test_a_directory_that_others_may_write_is_refused_with_advice(data_dir: Path, mode: int) -> None:
    data_dir.mkdir()
    data_dir.chmod(mode)
    for act in (embedded.start_postgres, embedded.start_valkey):
        with pytest.raises(NotReady, match=f"others may write in {data_dir}.*chmod go-w {data_dir}.*NOTIFIER_DATA_DIR"):
            await act(data_dir)
    assert not list(data_dir.iterdir())


def test_a_directory_that_others_may_read_stays_so_and_what_we_make_in_it_is_closed(data_dir: Path) -> None:
    data_dir.mkdir()
    (data_dir / "logs").mkdir()
    for path in (data_dir, data_dir / "logs"):
        path.chmod(0o755)
    before = os.umask(0)
    try:
        with open_home(data_dir) as home:
            made = [home.path, *home.path.rglob("*")]
            modes = {str(path.relative_to(home.path)): path.stat().st_mode & 0o777 for path in made}
    finally:
        os.umask(before)
    files = ("lock", "api_key", "login_webhook_secret")
    assert modes == {".": 0o755, "logs": 0o700, "run": 0o700} | dict.fromkeys(files, 0o600)


async def test_without_the_wheels_the_way_out_is_named(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(NotReady, match="set NOTIFIER_DATABASE_URL to a PostgreSQL of your own"):
        await start(data_dir)
    with pytest.raises(NotReady, match=r"NOTIFIER_REDIS_URL=\) to run without"):
        await embedded.start_valkey(data_dir)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (errno.ENOSPC, "no space left.*NOTIFIER_DATA_DIR"),
        (errno.EACCES, "no permission.*NOTIFIER_DATA_DIR"),
        (errno.ENOEXEC, "another processor.*NOTIFIER_DATABASE_URL"),
    ],
)
def test_a_refusal_of_the_system_says_what_to_do(number: int, text: str) -> None:
    with pytest.raises(NotReady, match=text), processes.explained("it"):
        raise OSError(number, os.strerror(number))


def _made(path: Path) -> Path:
    path.mkdir(mode=0o700, exist_ok=True)
    return path
