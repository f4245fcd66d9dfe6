"""A base backup of a running PostgreSQL of ours, and a server started on it in another directory."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg

from notifier import embedded
from notifier.embedded.place import Place, find_place
from notifier.embedded.process import make_data_dir, write_private


async def back_up(server: embedded.Server, data_dir: Path) -> None:
    """Copy the running server's cluster to where the PostgreSQL of `data_dir` will look for its own."""
    place = find_place(make_data_dir(data_dir))
    url = urlsplit(server.url)
    argv = [place.bin / "pg_basebackup", "-D", place.data, "-h", "127.0.0.1", "-p", str(server.port)]
    process = await asyncio.create_subprocess_exec(
        *(*argv, "-U", url.username or "", "--checkpoint=fast", "--wal-method=stream", "--no-sync"),
        env={**os.environ, "PGPASSWORD": url.password or ""},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()
    write_private(data_dir / "postgres_password", f"{url.password}\n")
    _give_away(place)


def _give_away(place: Place) -> None:
    """As root another account runs the server, and has to own its data."""
    if place.account is None:
        return
    for folder, _, files in os.walk(place.data):
        for path in (Path(folder), *(Path(folder, name) for name in files)):
            os.chown(path, place.account.uid, place.account.gid, follow_symlinks=False)


async def now_of(server: embedded.Server) -> str:
    """What the server's clock says, as an argument of a command."""
    conn = await asyncpg.connect(server.url)
    try:
        moment = await conn.fetchval("SELECT clock_timestamp()")
        return str(moment.isoformat())
    finally:
        await conn.close()
