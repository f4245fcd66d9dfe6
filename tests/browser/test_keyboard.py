"""The inbox without a mouse."""

from __future__ import annotations

from playwright.async_api import Locator, Page, expect

from tests.browser.steps import open_live, send, send_many
from tests.support.mock_server import Mock


async def test_from_the_search_to_a_mail_and_back_by_keys_alone(mock: Mock, page: Page) -> None:
    await send_many(mock, 5)
    await send(mock, "other", subject="Other")
    await open_live(page)
    keys = page.keyboard
    await keys.press("/")
    await expect(page.get_by_role("searchbox")).to_be_focused()
    await keys.type("subject:no")
    heading, tab, rows = (
        page.get_by_role("heading", level=1),
        page.locator(".tabs [aria-current]"),
        page.locator("[data-row]"),
    )
    await keys.press("Enter")
    await _arrived(heading, "5 mails for subject:no")
    await keys.press("j")
    await expect(rows.nth(0)).to_be_focused()
    await keys.press("j")
    await keys.press("ArrowDown")
    await keys.press("k")
    await expect(rows.nth(1)).to_be_focused()
    await keys.press("Enter")
    await _arrived(heading, "No 3")

    for key, name in (("2", "Text"), ("3", "Headers"), ("4", "Source"), ("ArrowLeft", "Headers"), ("1", "HTML")):
        await keys.press(key)
        await _arrived(tab, name)
    await keys.press("ArrowRight")
    await _arrived(tab, "Text")
    await keys.press("1")
    await _arrived(tab, "HTML")
    await keys.press("p")
    await expect(page.locator(".narrow iframe")).to_be_visible()
    await _arrived(tab, "HTML")
    await keys.press("j")
    await _arrived(heading, "No 2")
    await keys.press("k")
    await _arrived(heading, "No 3")

    await keys.press("u")
    await _arrived(heading, "5 mails for subject:no")
    await expect(rows.nth(1)).to_be_focused()
    await keys.press("Enter")
    await _arrived(heading, "No 3")
    await keys.press("Escape")
    await _arrived(heading, "5 mails for subject:no")
    await expect(rows.nth(1)).to_be_focused()
    await keys.press("Escape")
    await _arrived(heading, "6 mails")


async def _arrived(sign: Locator, text: str) -> None:
    """Wait for the page that says so, and until it listens to keys."""
    await expect(sign).to_have_text(text)
    await expect(sign.page.locator("#link-state")).to_have_text("Live")


async def test_the_keys_are_told_and_no_key_acts_inside_a_field_or_a_dialog(mock: Mock, page: Page) -> None:
    await send_many(mock, 2)
    await open_live(page)
    keys = page.keyboard
    await keys.press("?")
    dialog = page.get_by_role("dialog", name="Keys")
    await expect(dialog).to_be_visible()
    await keys.press("j")
    await expect(dialog.get_by_role("button", name="Close")).to_be_focused()
    await keys.press("Escape")
    await expect(dialog).to_be_hidden()
    await keys.press("/")
    await keys.type("j?/u")
    await expect(page.get_by_role("searchbox")).to_have_value("j?/u")
    await expect(dialog).to_be_hidden()
    await keys.press("ArrowDown")
    await expect(page.locator("[data-row]").first).to_be_focused()


async def test_tab_begins_with_the_skip_link_and_is_always_seen(mock: Mock, page: Page) -> None:
    await send_many(mock, 2)
    await open_live(page)
    await page.keyboard.press("Tab")
    skip = page.get_by_role("link", name="Skip to the content")
    await expect(skip).to_be_focused()
    await expect(skip).to_be_in_viewport()
    await page.keyboard.press("Enter")
    await page.keyboard.press("Tab")
    await expect(page.get_by_role("link", name="Delete all")).to_be_focused()
    outline = await page.evaluate("getComputedStyle(document.activeElement).outlineWidth")
    assert outline == "3px"


async def test_the_mail_in_its_frame_holds_nobody(mock: Mock, page: Page) -> None:
    links = "".join(f"<p><a href='http://example.com/{number}'>{number}</a></p>" for number in range(3))
    answer = await send(mock, "k", html=links)
    await open_live(page, f"/messages/{answer['id']}")
    frame, skip = page.locator("iframe"), page.get_by_role("link", name="Skip the mail")
    await expect(page.frame_locator("iframe").get_by_text("2")).to_be_attached()
    await skip.focus()
    await expect(skip).to_be_in_viewport()
    await page.keyboard.press("Tab")
    await expect(frame).to_be_focused()
    for _ in range(12):  # the mail itself, its three links, and out
        await page.keyboard.press("Tab")
        await page.wait_for_timeout(100)  # a frame of its own process hands the focus on in its own time
        if await page.evaluate("document.activeElement.tagName") != "IFRAME":
            break
    await expect(frame).not_to_be_focused()
    await skip.focus()
    await page.keyboard.press("Enter")
    await expect(page.locator("#calls")).to_be_focused()
