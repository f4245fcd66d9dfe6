"""A Chromium a session, a mock and a page a test; whatever a page complains of fails its test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, Page, async_playwright

from tests.support.chromium import MISSING, WATCH_POLICY, Noted, find_chromium, flags
from tests.support.mock_server import Mock, running_mock

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All of them need the browser, and share its event loop."""
    ours = [item for item in items if HERE in item.path.parents]
    missing = pytest.mark.skip(reason=MISSING) if find_chromium() is None else None
    for item in ours:
        item.add_marker("browser")
        item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)
        if missing:
            item.add_marker(missing)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    """One for all tests; each has a context of its own."""
    async with async_playwright() as playwright:
        chromium = await playwright.chromium.launch(executable_path=find_chromium(), args=flags())
        yield chromium
        await chromium.close()


@pytest_asyncio.fixture(loop_scope="session")
async def mock(tmp_path: Path) -> AsyncIterator[Mock]:
    """An empty inbox."""
    async with running_mock(tmp_path / "mock") as running:
        yield running


@pytest_asyncio.fixture(loop_scope="session")
async def noted(mock: Mock) -> AsyncIterator[Noted]:
    """What the pages of a test complained of; nothing, unless the test itself takes it out."""
    noted = Noted(mock.url)
    yield noted
    assert noted.errors == []
    assert noted.strangers == []


@pytest_asyncio.fixture(loop_scope="session")
async def context(browser: Browser, mock: Mock, noted: Noted) -> AsyncIterator[BrowserContext]:
    """A person's browser: paths are the mock's."""
    context = await browser.new_context(base_url=mock.url, viewport={"width": 1280, "height": 800})
    context.set_default_timeout(10_000)
    await context.add_init_script(WATCH_POLICY)
    context.on("page", noted.watch)
    yield context
    await context.close()


@pytest_asyncio.fixture(loop_scope="session")
async def page(context: BrowserContext) -> Page:
    """A tab."""
    return await context.new_page()
