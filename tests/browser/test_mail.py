"""A mail as a person sees it: whole, shut in, and beside it what happened under its key."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest_asyncio
from playwright.async_api import Page, expect

from tests.browser.steps import open_live, send
from tests.support.chromium import Noted
from tests.support.mock_server import Mock


async def test_a_mail_is_opened_and_looked_at_from_all_sides(mock: Mock, page: Page) -> None:
    await send(mock, "k", headers={"X-Odd": "yes"})
    await open_live(page)
    await page.get_by_role("link", name="Welcome, Ada").click()
    frame = page.frame_locator("iframe")
    await expect(frame.get_by_text("Hello Ada, the HTML says.")).to_be_visible()
    box = await page.locator("iframe").bounding_box()
    assert box is not None and box["height"] >= 350
    await page.get_by_role("link", name="Text", exact=True).click()
    await expect(page.locator("pre")).to_have_text("Hello Ada, the text says.")
    await page.get_by_role("link", name="Headers", exact=True).click()
    await expect(page.locator(".shown")).to_contain_text("X-Odd")
    await page.get_by_role("link", name="Source", exact=True).click()
    await expect(page.locator("pre")).to_contain_text("Content-Type: multipart/alternative")
    await page.get_by_role("link", name="HTML", exact=True).click()
    await page.get_by_role("link", name="Phone width").click()
    await expect(frame.get_by_text("Hello Ada, the HTML says.")).to_be_visible()
    assert await frame.locator("html").evaluate("innerWidth") in (373, 375)  # without and with its border
    await page.get_by_role("link", name="Full width").click()
    await expect(page.get_by_role("link", name="Phone width")).to_be_visible()


async def test_a_mail_of_one_part_is_shown_by_it(mock: Mock, page: Page) -> None:
    await send(mock, "text", subject="Only text", html=None)
    await open_live(page)
    await page.get_by_role("link", name="Only text").click()
    await expect(page.locator("pre")).to_have_text("Hello Ada, the text says.")
    await page.get_by_role("link", name="HTML", exact=True).click()
    await expect(page.get_by_text("This mail has no HTML part.")).to_be_visible()


async def test_a_refused_repeat_appears_beside_the_mail_while_it_is_open(mock: Mock, page: Page) -> None:
    await send(mock, "k")
    await open_live(page)
    await page.get_by_role("link", name="Welcome, Ada").click()
    await expect(page.locator("#link-state")).to_have_text("Live")
    await expect(page.locator(".story li")).to_have_count(1)
    frame = page.frame_locator("iframe")
    await frame.locator("p").evaluate("p => p.dataset.seen = 'yes'")
    await send(mock, "k", worker="w-2", generation=2)
    await expect(page.locator(".story li")).to_have_count(2)
    await expect(page.locator(".story li").last).to_contain_text(
        "Worker w-2, generation 2, tried again: refused as duplicate"
    )
    await expect(page.get_by_role("link", name="1 repeat refused")).to_be_visible()
    assert await frame.locator("p").get_attribute("data-seen") == "yes"  # the mail was not loaded anew
    await page.get_by_role("link", name="Back to the list").click()
    await expect(page.locator(".mails li")).to_contain_text("1 repeat refused")


async def test_the_banner_appears_when_the_mock_forgets_and_goes_when_the_inbox_is_emptied(
    mock: Mock, page: Page
) -> None:
    await send(mock, "k", user="u_1")
    await open_live(page)
    banner = page.get_by_role("alert")
    await expect(banner).to_have_count(0)
    assert await mock.delete("/api/keys") == 200
    await send(mock, "k", user="u_1")
    await expect(banner).to_contain_text("Two accepted mails for the same user and kind")
    await expect(banner).to_contain_text("u_1, onboarding")
    await page.goto("/faults")
    await expect(banner).to_be_visible()
    await banner.get_by_role("link", name="Show them").click()
    await expect(page.locator("[data-row]")).to_have_count(2)
    await expect(page.locator("#link-state")).to_have_text("Live")
    assert await mock.delete("/api/messages") == 200
    await expect(banner).to_have_count(0)


# ---- a mail that means harm

Listener = tuple[str, list[str]]


@pytest_asyncio.fixture(loop_scope="session")
async def listener() -> AsyncIterator[Listener]:
    """An address on this machine, and every request that comes in there."""
    heard: list[str] = []

    async def hear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append((await reader.readline()).decode("latin-1"))
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    async with await asyncio.start_server(hear, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        yield f"http://{host}:{port}", heard


HOSTILE = """<!doctype html><html><head>
<base href="{evil}/base/"><base target="_top">
<meta http-equiv="refresh" content="0;url={evil}/refresh">
<meta http-equiv="refresh" content="1;url=/delete">
<link rel="stylesheet" href="{evil}/a.css"><link rel="preload" as="image" href="{evil}/preload">
<link rel="icon" href="{evil}/icon"><link rel="dns-prefetch" href="{evil}"><link rel="preconnect" href="{evil}">
<style>@import url("{evil}/b.css"); @font-face {{ font-family: f; src: url("{evil}/f.woff2") }}
 body {{ font-family: f; background: url("{evil}/bg") }} p::before {{ content: url("{evil}/before") }}</style>
<script>document.title = "owned"; top.location = "{evil}/script"; fetch("{evil}/fetch")</script>
<script src="{evil}/script.js"></script>
</head><body onload="top.document.title = 'owned'; new Image().src = '{evil}/onload'">
<p id="seen">Click everything.</p>
<img src="{evil}/img" srcset="{evil}/srcset 2x" onerror="parent.document.title='owned'"><img src=x onerror="alert(1)">
<picture><source srcset="{evil}/source"><img src="{evil}/picture"></picture>
<video src="{evil}/video" poster="{evil}/poster" autoplay></video><audio src="{evil}/audio" autoplay></audio>
<object data="{evil}/object"></object><embed src="{evil}/embed"><iframe src="{evil}/frame"></iframe>
<iframe srcdoc="<script>top.document.title='owned'</script><img src='{evil}/srcdoc'>"></iframe>
<svg><script>top.document.title="owned"</script><image href="{evil}/svg"/><use href="{evil}/use#x"/>
 <a href="{evil}/svg-link"><text class="click" y="20">svg link</text></a></svg>
<svg onload="alert(1)"></svg><details open ontoggle="alert(1)"><summary>x</summary></details>
<input autofocus onfocus="alert(1)"><div style="background-image:url({evil}/style)">x</div>
<a class="click" href="{evil}/plain">plain</a><a class="click" href="{evil}/blank" target="_blank">blank</a>
<a class="click" href="{evil}/top" target="_top">top</a>
<a class="click" href="{evil}/parent" target="_parent">parent</a>
<a class="click" href="{evil}/self" target="_self">self</a><a class="click" href="{evil}/named" TARGET = other>named</a>
<a class="click" href="/delete">ours</a><a class="click" href="/api/messages" target="_self">api</a>
<a class="click" href="javascript:top.document.title='owned'">script</a>
<a class="click" href="data:text/html,<script>alert(1)</script>" target=_self>data</a>
<a class="click" ping="{evil}/ping" href="{evil}/pinged">ping</a>
<a class="click" download href="{evil}/download">load</a>
<form action="{evil}/form" method="post"><input name="a" value="b"><button class="click">send</button></form>
<form action="/delete" method="post" target="_top"><button class="click">delete</button></form>
<button class="click" form="x" formaction="{evil}/formaction" onclick="alert(1)">button</button><form id="x"></form>
<map name="m"><area shape="rect" coords="0,0,50,50" href="{evil}/area"></map>
<img class="click" usemap="#m" width="50" height="50" alt="map" src="data:image/gif;base64,R0lGODlhAQABAAAAACw=">
</body></html>"""


async def test_a_hostile_mail_stays_shut_in(mock: Mock, page: Page, noted: Noted, listener: Listener) -> None:
    evil, heard = listener
    answer = await send(mock, "k", html=HOSTILE.replace("{{", "{").replace("}}", "}").replace("{evil}", evil))
    url = f"{mock.url}/messages/{answer['id']}"
    dialogs: list[str] = []
    page.on("dialog", lambda dialog: dialogs.append(dialog.message))
    await page.goto(url)
    frame = page.frame_locator("iframe")
    await expect(frame.locator("#seen")).to_have_text("Click everything.")
    await page.wait_for_timeout(1_500)  # for what the mail would have the browser do by itself, the refreshes too
    for place in await frame.locator(".click").all():
        await place.click(timeout=5_000, force=True)
        await page.wait_for_timeout(50)  # for a navigation to show
        await expect(frame.locator("#seen")).to_be_attached()  # the mail is still what the frame shows
    await frame.locator("a", has_text="plain").focus()
    await page.keyboard.press("Enter")
    await page.wait_for_timeout(300)
    await expect(frame.locator("#seen")).to_have_text("Click everything.")
    await frame.locator("#seen").evaluate("(_, url) => { location.href = url }", f"{evil}/whatever-slips-through")
    await page.wait_for_timeout(300)
    assert heard == []
    assert dialogs == []
    assert page.url == url
    assert "Welcome, Ada" in await page.title()
    assert len(page.context.pages) == 1
    assert len(await mock.inbox()) == 1
    # The frame's own complaints are what was asked for. A page's request counts only where it went out: none did.
    noted.errors.clear()
    noted.strangers.clear()


async def test_a_hostile_mail_by_itself_does_nothing_either(
    mock: Mock, page: Page, noted: Noted, listener: Listener
) -> None:
    evil, heard = listener
    answer = await send(mock, "k", html=HOSTILE.replace("{{", "{").replace("}}", "}").replace("{evil}", evil))
    for path in ("html", "text", "raw"):
        await page.goto(f"/api/messages/{answer['id']}/{path}")
        await page.wait_for_timeout(1_200)
        assert page.url.endswith(path)
        assert await page.title() != "owned"
    assert heard == []
    noted.errors.clear()
    noted.strangers.clear()


async def test_a_foreign_page_cannot_change_anything(mock: Mock, page: Page, noted: Noted) -> None:
    await send(mock, "k")
    attack = f"""HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n\r\n<!doctype html><title>x</title>
        <form id="f" action="{mock.url}/delete" method="post" target="there"></form><iframe name="there"></iframe>
        <script>
          const all = [["{mock.url}/delete", "POST"], ["{mock.url}/forget", "POST"], ["{mock.url}/faults/off", "POST"],
                       ["{mock.url}/api/messages", "DELETE"], ["{mock.url}/api/faults", "PUT"]];
          document.getElementById("f").submit();
          const ask = ([url, method]) => fetch(url, {{ method, mode: method == "POST" ? "no-cors" : "cors" }});
          Promise.allSettled(all.map(ask)).then(() => setTimeout(() => document.title = "done", 300));
        </script>"""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(attack.encode())
        with contextlib.suppress(ConnectionError):
            await writer.drain()
            writer.close()
            await writer.wait_closed()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        await page.goto(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/")
        await expect(page).to_have_title("done")
    assert len(await mock.inbox()) == 1
    await send(mock, "k")
    assert await mock.verdicts("k") == ["accepted", "duplicate"]
    noted.errors.clear()
    noted.strangers.clear()
