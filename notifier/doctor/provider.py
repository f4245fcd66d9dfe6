"""The way out: does the provider answer. No mail is sent to find out."""

from __future__ import annotations

import asyncio
from urllib.request import ProxyHandler, build_opener

from notifier.client.address import noted_url
from notifier.doctor.finding import Finding, failed, ok, warning
from notifier.settings import Settings

TIMEOUT_S = 5.0


async def check(settings: Settings, *, expected: bool) -> Finding:
    """Ask the provider the settings name. `expected`: processes live that need it."""
    match settings.provider:
        case "mock":
            return await asyncio.to_thread(_check_mock, settings, expected)


def _check_mock(settings: Settings, expected: bool) -> Finding:
    url = settings.mock_url or noted_url(settings.data_dir, "mock") or settings.mock_address
    try:
        with build_opener(ProxyHandler({})).open(f"{url}/healthz", timeout=TIMEOUT_S) as answer:
            answer.read()
    except (OSError, ValueError) as error:
        why = getattr(error, "reason", None) or error
        todo = "start `notifier mock-provider`, or say where it is: NOTIFIER_MOCK_URL"
        text = f"no mock provider answers at {url} ({why})"
        if expected or settings.mock_url:
            return failed("provider", f"{text}: mails wait", todo)
        return warning("provider", text, todo)
    return ok("provider", f"the mock provider answers at {url}; it sends nothing, its inbox is there")
