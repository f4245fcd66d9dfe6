"""The faults as a person sets them: a form, errors at the field, and a strip on every page until they are off."""

from __future__ import annotations

import asyncio
import contextlib

from playwright.async_api import Page, expect

from tests.browser.steps import open_live, send
from tests.support.mock_server import Mock


async def test_faults_are_loud_on_every_page_and_go_with_one_button(mock: Mock, page: Page) -> None:
    answer = await send(mock, "k")
    strip = page.get_by_role("region", name="Faults")
    await open_live(page)
    await expect(strip).to_have_count(0)
    await mock.faults(fail_rate=0.25, duplicate_mode="drop")  # by somebody else: it shows by itself
    await expect(strip).to_contain_text("Faults are on")
    await expect(strip).to_contain_text("fail_rate 0.25")
    await expect(strip).to_contain_text("duplicate_mode drop")
    for path in ("/calls", "/faults", "/doubles", f"/messages/{answer['id']}"):
        await page.goto(path)
        await expect(strip).to_be_visible()
    await strip.get_by_role("button", name="Switch all off").click()
    await expect(page).to_have_url(f"{mock.url}/messages/{answer['id']}")
    await expect(strip).to_have_count(0)
    faults = await mock.get("/api/faults")
    assert (faults["fail_rate"], faults["duplicate_mode"]) == (0, "reject")


async def test_the_form_sets_what_is_typed_and_says_what_is_wrong(mock: Mock, page: Page) -> None:
    await page.goto("/faults")
    await page.get_by_label("latency_ms, least").fill("5")
    await page.get_by_label("latency_ms, most").fill("10")
    await page.get_by_label("reject_to").fill("*@bad.example\neve@*")
    await page.get_by_label("duplicate_mode").select_option("replay")
    await page.get_by_role("button", name="Set", exact=True).click()
    await expect(page.get_by_text("Faults are on")).to_be_visible()
    faults = await mock.get("/api/faults")
    assert faults["latency_ms"] == [5, 10]
    assert faults["reject_to"] == ["*@bad.example", "eve@*"]
    assert faults["duplicate_mode"] == "replay"

    await page.get_by_label("fail_rate").fill("1.5")
    await page.get_by_label("hang_s").fill("3")
    await page.get_by_role("button", name="Set", exact=True).click()
    await expect(page.get_by_role("alert")).to_contain_text("Nothing was changed")
    rate = page.get_by_label("fail_rate")
    await expect(rate).to_have_value("1.5")
    await expect(rate).to_have_attribute("aria-invalid", "true")
    await expect(page.locator("#fail_rate-error")).to_contain_text("less than or equal to 1")
    await expect(page.get_by_label("hang_s")).to_have_value("3")
    assert (await mock.get("/api/faults"))["hang_s"] == 0
    await rate.fill("0.5")
    await page.get_by_role("button", name="Set", exact=True).click()
    await expect(page.locator("#fail_rate-error")).to_have_count(0)
    assert (await mock.get("/api/faults"))["fail_rate"] == 0.5
    await page.get_by_role("button", name="All off", exact=True).click()
    await expect(page.get_by_text("Faults are on")).to_have_count(0)


async def test_what_is_being_typed_is_not_taken_away(mock: Mock, page: Page) -> None:
    await open_live(page, "/faults")
    await page.get_by_label("fail_rate").fill("0.7")
    await mock.faults(hang_s=0.01)
    await expect(page.get_by_text("Faults are on")).to_be_visible()
    await expect(page.get_by_label("fail_rate")).to_have_value("0.7")


async def test_forgetting_keys_asks_first(mock: Mock, page: Page) -> None:
    await send(mock, "k")
    await page.goto("/faults")
    await page.get_by_role("link", name="Forget keys").click()
    dialog = page.get_by_role("dialog", name="Forget all keys?")
    await dialog.get_by_role("button", name="Cancel").click()
    await send(mock, "k")
    await page.get_by_role("link", name="Forget keys").click()
    async with page.expect_navigation():
        await dialog.get_by_role("button", name="Forget keys").click()
    await send(mock, "k")
    assert await mock.verdicts("k") == ["accepted", "duplicate", "accepted"]


async def test_calls_in_flight_are_counted_live(mock: Mock, page: Page) -> None:
    await open_live(page)
    await mock.faults(hang_s=30)
    call = asyncio.create_task(send(mock, "k"))
    await expect(page.locator("#in-flight")).to_have_text("1")
    await expect(page.locator("#counts")).to_contain_text("1 refused")
    call.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await call
    await expect(page.locator("#in-flight")).to_have_text("0")
