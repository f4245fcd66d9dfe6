"""Small acts on the test servers that product code has no need of."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg

from notifier import embedded
from notifier.embedded.place import SHARED
from notifier.embedded.process import birth, read_note

MEMORY = Path("/dev/shm")
ROOM = 4 * 2**30  # far more than is ever used: two databases at a time, of which few are filled


async def keep_in_memory(server: embedded.Server) -> Path | None:
    """Make every database from now on in memory, if the machine has room; gives the folder, to be removed at the end.

    A database is 300 files: a disk's file system spends more on making and removing them for every test than the
    tests do on their statements.
    """
    if not MEMORY.is_dir() or shutil.disk_usage(MEMORY).free < ROOM:
        return None
    folder = Path(tempfile.mkdtemp(prefix="notifier-tests-", dir=MEMORY))
    conn = await asyncpg.connect(server.url)
    try:
        owner = Path(await conn.fetchval("SHOW data_directory")).stat()
        os.chown(folder, owner.st_uid, owner.st_gid)
        await conn.execute(f"CREATE TABLESPACE memory LOCATION '{folder}'")
        await conn.execute("ALTER DATABASE template1 SET TABLESPACE memory")  # whose copies go where it is
    except BaseException:
        shutil.rmtree(folder)
        raise
    finally:
        await conn.close()
    return folder


@asynccontextmanager
async def database_like(server: embedded.Server, template: str) -> AsyncIterator[str]:
    """Give the URL of a copy of a database; dropped afterwards, whoever is still connected."""
    name = f"test_{uuid.uuid4().hex[:12]}"
    await on_server(server, f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")
    yield database_of(server, name)
    await on_server(server, f"DROP DATABASE {name} WITH (FORCE)")


def database_of(server: embedded.Server, name: str) -> str:
    """The URL of another database of the same server."""
    return server.url.rpartition("/")[0] + "/" + name


async def on_server(server: embedded.Server, statement: str) -> None:
    """Run one statement outside any test's database."""
    conn = await asyncpg.connect(server.url)
    try:
        await conn.execute(statement)
    finally:
        await conn.close()


def end_servers(data_dir: Path) -> None:
    """Kill what still runs of a DATA_DIR: the processes noted there, and no others."""
    notes = [(note.get("pid"), note.get("born")) for note in map(read_note, data_dir.glob("*.json"))]
    children = read_note(data_dir / "run.json").get("children")
    for pid, born in [*notes, *(children if isinstance(children, list) else [])]:
        if isinstance(pid, int) and birth(pid) == born is not None:
            os.kill(pid, signal.SIGKILL)


def remove_data(data_dir: Path) -> None:
    """Remove a DATA_DIR, and what root's PostgreSQL keeps outside it."""
    root = read_note(data_dir / "postgres-place.json").get("root")
    if isinstance(root, str) and Path(root).parent == SHARED and Path(root).name.startswith("notifier-"):
        shutil.rmtree(root, ignore_errors=True)
    shutil.rmtree(data_dir, ignore_errors=True)
