"""What several integration tests stand on."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.support.api import Api, running_api


@pytest.fixture
async def api(database_url: str) -> AsyncIterator[Api]:
    """A running api on the test's own database."""
    async with running_api(database_url) as running:
        yield running
