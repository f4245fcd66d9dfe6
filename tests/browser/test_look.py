"""What holds for every page: it fits a phone, it can be read by everybody, and it names its parts."""

from __future__ import annotations

import pytest
from playwright.async_api import Browser, Page, expect

from tests.browser.steps import no_sideways, send
from tests.support.chromium import Noted
from tests.support.mock_server import Mock

LONG = "donaudampfschifffahrtsgesellschaftskapitaen" * 4

# The contrast of every text with what is behind it (WCAG 2): those below what its size needs.
POOR_CONTRAST = """() => {
  const parse = (color) => (color.match(/[\\d.]+/g) ?? []).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((c) => c / 255)
    .map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, n) => sum + c * [0.2126, 0.7152, 0.0722][n], 0);
  const behind = (element) => {
    for (; element; element = element.parentElement) {
      const color = parse(getComputedStyle(element).backgroundColor);
      if (color.length === 3 || color[3] === 1) return color;
    }
    return [255, 255, 255];
  };
  const poor = [];
  for (const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT); walk.nextNode(); ) {
    const element = walk.currentNode.parentElement;
    if (!walk.currentNode.data.trim() || !element.checkVisibility()) continue;
    const style = getComputedStyle(element);
    const [a, b] = [light(parse(style.color)), light(behind(element))].sort((x, y) => y - x);
    const size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
    const contrast = (a + 0.05) / (b + 0.05);
    if (contrast < (large ? 3 : 4.5)) poor.push(`${contrast}: ${walk.currentNode.data.trim()}`);
  }
  return poor;
}"""
UNNAMED = """() => [...document.querySelectorAll("input, select, textarea, button, a, iframe, dialog")]
  .filter((e) => !(e.labels?.length || e.textContent.trim() || e.ariaLabel || e.title || e.ariaLabelledByElements))
  .map((e) => e.outerHTML)"""


async def _everything_at_once(mock: Mock) -> list[str]:
    """A mock with all there is to show; its pages."""
    answer = await send(
        mock, LONG, user=LONG, kind=LONG, subject=LONG, text=LONG, to=[f"{LONG} <a@{LONG[:60]}.example>"]
    )
    for worker in ("w-1", LONG):
        await send(mock, LONG, user=LONG, kind=LONG, worker=worker, subject="Other body")
    await send(mock, "k2", user=LONG, kind=LONG)
    await send(mock, "k3", user=LONG, kind="other")
    await mock.faults(reject_to=[f"*@{LONG}"], fail_rate=0.5, latency_ms=[1, 2])
    mail = f"/messages/{answer['id']}"
    views = [f"{mail}?view={view}" for view in ("text", "headers", "source")]
    lists = ["/", "/?q=nothing", f"/?q={LONG}", "/?q=before:x", "/calls", f"/calls?key={LONG}", "/doubles"]
    return [*lists, "/faults", "/delete", "/forget", "/messages/none", mail, *views, f"{mail}?width=phone"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_every_page_fits_a_phone_and_can_be_read(mock: Mock, browser: Browser, noted: Noted, scheme: str) -> None:
    pages = await _everything_at_once(mock)
    look = {"width": 375, "height": 700}
    async with await browser.new_context(base_url=mock.url, viewport=look, color_scheme=scheme) as context:
        page = await context.new_page()
        noted.watch(page)
        for path in pages:
            await page.goto(path)
            assert await no_sideways(page), path
            assert await page.evaluate(POOR_CONTRAST) == [], path
            assert await page.evaluate(UNNAMED) == [], path
            await expect(page.get_by_role("heading", level=1)).to_have_count(1)
            for part in ("banner", "main", "search"):
                await expect(page.get_by_role(part)).to_have_count(1)
    noted.errors = [error for error in noted.errors if "404" not in error]


async def test_who_wants_no_motion_gets_none(mock: Mock, page: Page) -> None:
    await send(mock, "first")
    await page.emulate_media(reduced_motion="reduce")
    await page.goto("/")
    await expect(page.locator("#link-state")).to_have_text("Live")
    await send(mock, "k")
    await expect(page.locator(".mails li")).to_have_count(2)
    await expect(page.locator(".mails li").first).to_have_class("new")
    assert await page.locator(".mails li.new").evaluate("li => getComputedStyle(li).animationName") == "none"
