"""What the tests do again and again: send a mail, wait for a page to be live."""

from __future__ import annotations

from typing import Any

from playwright.async_api import Page, expect

from tests.support.mock_server import Mock

BODY = {
    "from": "Notifier <hello@example.com>",
    "to": ["Ada <ada@example.com>"],
    "subject": "Welcome, Ada",
    "html": "<!doctype html><p>Hello Ada, the HTML says.</p>",
    "text": "Hello Ada, the text says.",
}


async def send(
    mock: Mock,
    key: str,
    *,
    user: str = "",
    kind: str = "onboarding",
    worker: str = "w-1",
    generation: int = 1,
    **body: Any,
) -> dict[str, Any]:
    """One call for one mail; a user of its own unless named."""
    headers = {
        "X-Notifier-User": user or f"u_{key}",
        "X-Notifier-Kind": kind,
        "X-Notifier-Worker": worker,
        "X-Notifier-Generation": str(generation),
    }
    _, answer, _ = await mock.post("/emails", {**BODY, **body}, key, **headers)
    return answer


async def send_many(mock: Mock, number: int, **body: Any) -> list[str]:
    """So many mails one after the other, `No 0` first; their ids."""
    return [(await send(mock, f"k{n}", **{"subject": f"No {n}", **body}))["id"] for n in range(number)]


async def open_live(page: Page, path: str = "/") -> None:
    """Go there and wait until the page hears of changes."""
    await page.goto(path)
    await expect(page.locator("#link-state")).to_have_text("Live")


async def no_sideways(page: Page) -> bool:
    """Whether nothing is wider than the window."""
    return bool(await page.evaluate("document.documentElement.scrollWidth <= innerWidth"))
