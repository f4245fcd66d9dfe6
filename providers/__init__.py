"""The ways out; importing the package costs nothing until one is made."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from providers.base import Family, Provider

if TYPE_CHECKING:
    from providers.mail_server import MailServer

NAMES = ("mock", "smtp")

# Imported where they are made: the domain imports providers.base and must not pull in an HTTP client with it.


def mock_provider(
    *, base_url: str, api_key: str, family: Family, window: timedelta, timeout_s: float, concurrency: int
) -> Provider:
    """Make a client of the mock provider; raises ValueError for a URL nobody can call."""
    from providers.mock_client import MockProvider

    return MockProvider(
        base_url=base_url,
        api_key=api_key,
        family=family,
        window=window,
        timeout_s=timeout_s,
        concurrency=concurrency,
    )


def smtp_provider(server: MailServer, *, timeout_s: float) -> Provider:
    """Make a way out over SMTP."""
    from providers.smtp import SmtpProvider

    return SmtpProvider(server, timeout_s=timeout_s)
