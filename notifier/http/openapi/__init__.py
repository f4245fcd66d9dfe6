"""The description of the API: one table of operations a file, and the OpenAPI document made of them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from notifier.http.openapi import around, build, events, operating, reading
from notifier.http.openapi.operation import Operation

OPERATIONS: tuple[Operation, ...] = (
    *events.OPERATIONS,
    *reading.OPERATIONS,
    *operating.OPERATIONS,
    *around.OPERATIONS,
)


def describe(routes: Collection[tuple[str, str]]) -> dict[str, Any]:
    """Give the OpenAPI document of those (method, path) that this app serves."""
    return build.document([operation for operation in OPERATIONS if (operation.method, operation.path) in routes])
