"""The way out: does the provider answer. No mail is sent to find out."""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit
from urllib.request import ProxyHandler, build_opener

from notifier.client.address import noted_url
from notifier.doctor.finding import Finding, failed, ok, warning
from notifier.domain.errors import SettingsError
from notifier.runtime import mail_server
from notifier.settings import Settings
from providers.base import ConfigError
from providers.mail_server import MailServer
from providers.smtp import SmtpProvider

TIMEOUT_S = 5.0


async def check(settings: Settings, *, expected: bool) -> Finding:
    """Ask the provider the settings name. `expected`: processes live that need it."""
    match settings.provider:
        case "mock":
            return await asyncio.to_thread(_check_mock, settings, expected)
        case "smtp":
            return await _check_smtp(settings)


def mock_at(settings: Settings) -> str:
    """Where the mock provider is: as the settings say, else that of the `run` in DATA_DIR."""
    return settings.mock_url or noted_url(settings.data_dir, "mock") or settings.mock_address


def _check_mock(settings: Settings, expected: bool) -> Finding:
    url = mock_at(settings)
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


async def _check_smtp(settings: Settings) -> Finding:
    if settings.smtp_host is None and (noted := noted_url(settings.data_dir, "mock", "smtp")):
        listener = urlsplit(noted)
        settings = settings.model_copy(update={"smtp_host": listener.hostname, "smtp_port": listener.port})
    try:
        server = mail_server(settings)
    except SettingsError as error:
        return failed("provider", str(error), "name one, or set NOTIFIER_PROVIDER to another")
    where = f"the mail server at {server.host}:{server.port}"
    outcome = await SmtpProvider(server, timeout_s=min(settings.provider_timeout_s, TIMEOUT_S)).try_out()
    if outcome is None:
        return ok("provider", f"{where} answers{_how(server)}; no mail was sent to try it")
    reason = getattr(outcome, "reason", "?")
    if isinstance(outcome, ConfigError):
        todo = "look at the NOTIFIER_SMTP_ settings: host, port, security, user name and password"
        return failed("provider", f"{where} refuses us ({reason}): mails wait", todo)
    todo = "start it, or look at NOTIFIER_SMTP_HOST, _PORT, _SECURITY and _CA_FILE"
    return failed("provider", f"{where} cannot be spoken to ({reason}): mails wait", todo)


def _how(server: MailServer) -> str:
    """What it let us do, in words."""
    protection = "in clear" if server.protection == "none" else f"over {server.protection}"
    return f" {protection}" + (" and takes our login" if server.username else "")
