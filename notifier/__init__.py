"""Onboarding and follow-up mails, each sent once."""


def version() -> str:
    """Which release this is; "0" where the package is not installed."""
    from importlib.metadata import PackageNotFoundError, version  # slow to load, and few ask

    try:
        return version("notifier")
    except PackageNotFoundError:
        return "0"
