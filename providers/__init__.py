"""The ways out, chosen by name; importing the package costs nothing until one is built."""

from __future__ import annotations

from datetime import timedelta

from providers.base import Family, Provider

NAMES = ("mock",)


def build(
    name: str,
    *,
    base_url: str,
    api_key: str,
    family: Family,
    window: timedelta,
    timeout_s: float,
    concurrency: int,
) -> Provider:
    """Make the provider called `name`; raises ValueError for a name nobody knows or a URL nobody can call."""
    if name != "mock":
        raise ValueError(f"unknown provider {name!r}; there are: {', '.join(NAMES)}")
    # Imported here: the domain imports providers.base and must not pull in an HTTP client with it.
    from providers.mock_client import MockProvider

    return MockProvider(
        base_url=base_url,
        api_key=api_key,
        family=family,
        window=window,
        timeout_s=timeout_s,
        concurrency=concurrency,
    )
