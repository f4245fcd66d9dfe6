"""The distribution's Chromium: where it is, how it is started, and a page that notes what went wrong in it."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from playwright.async_api import ConsoleMessage, Page, Request

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
MISSING = "no Chromium: `apt-get install chromium`, or name yours with CHROMIUM=/path/to/chromium"
FLAGS = [
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def find_chromium() -> str | None:
    """The one CHROMIUM names, else the first that is installed."""
    if named := os.environ.get("CHROMIUM"):
        return named if Path(named).is_file() else None
    return next((found for name in NAMES if (found := shutil.which(name))), None)


def flags() -> list[str]:
    """How Chromium is started; its sandbox does not work for root."""
    return FLAGS + (["--no-sandbox"] if os.geteuid() == 0 else [])


# Reported by the browser to the page itself, whatever the console says.
WATCH_POLICY = """
    addEventListener("securitypolicyviolation", (event) => {
        console.error(`policy violated: ${event.effectiveDirective} ${event.blockedURI}`);
    });
"""


@dataclass
class Noted:
    """What a page complained of, and what it asked for that was not ours; both have to be empty."""

    home: str
    errors: list[str] = field(default_factory=list)
    strangers: list[str] = field(default_factory=list)

    def watch(self, page: Page) -> None:
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.errors.append(f"error: {error}"))
        page.on("request", self._request)

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.errors.append(f"{message.type}: {message.text}")

    def _request(self, request: Request) -> None:
        if not request.url.startswith((self.home, "data:", "about:", "chrome-error:")):
            self.strangers.append(request.url)
