"""Small acts on the test servers that product code has no need of."""

from __future__ import annotations

import shutil
from pathlib import Path

import asyncpg

from notifier import embedded
from notifier.embedded.process import read_note


async def on_server(server: embedded.Server, statement: str) -> None:
    """Run one statement outside any test's database."""
    conn = await asyncpg.connect(server.url)
    try:
        await conn.execute(statement)
    finally:
        await conn.close()


def remove_data(data_dir: Path) -> None:
    """Remove a DATA_DIR, and what root's PostgreSQL keeps outside it."""
    root = read_note(data_dir / "postgres-place.json").get("root")
    if isinstance(root, str) and Path(root).name in ("postgres", root.rpartition("/")[2]):
        shutil.rmtree(root, ignore_errors=True)
    shutil.rmtree(data_dir, ignore_errors=True)
