"""Every SQL constant of the store prepares on a migrated database."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import AsyncIterator, Iterator

import asyncpg
import pytest
import pytest_asyncio

import notifier.store
from notifier import embedded
from tests.support.servers import database_like

_VERBS = ("SELECT", "INSERT", "UPDATE", "DELETE", "WITH")


def constants() -> Iterator[tuple[str, str]]:
    for module_info in pkgutil.iter_modules(notifier.store.__path__, "notifier.store."):
        module = importlib.import_module(module_info.name)
        for name, value in vars(module).items():
            is_constant = name.isupper() and not name.startswith("_") and isinstance(value, str)
            if is_constant and value.strip().split(maxsplit=1)[0] in _VERBS:
                yield f"{module_info.name}.{name}", value


CONSTANTS = dict(constants())


def test_there_are_constants_to_check() -> None:
    assert len(CONSTANTS) > 20


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def migrated(postgres: embedded.Server, template: str) -> AsyncIterator[asyncpg.Connection]:
    """A connection to one database for all of them: to prepare changes nothing in it."""
    async with database_like(postgres, template) as url:
        conn = await asyncpg.connect(url)
        yield conn
        await conn.close()


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("name", CONSTANTS)
async def test_statement_prepares(migrated: asyncpg.Connection, name: str) -> None:
    await migrated.prepare(CONSTANTS[name])
