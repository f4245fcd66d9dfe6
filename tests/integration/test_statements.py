"""Every SQL constant of the store prepares on a migrated database."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator

import asyncpg
import pytest

import notifier.store

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


@pytest.mark.parametrize("name", CONSTANTS)
async def test_statement_prepares(connection: asyncpg.Connection, name: str) -> None:
    await connection.prepare(CONSTANTS[name])
