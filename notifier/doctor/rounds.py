"""The round: which checks there are, in which order, and what each is given."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from notifier import embedded
from notifier.client.address import noted_url
from notifier.doctor import api, database, machine, mails, provider, redis, trip
from notifier.doctor.finding import Finding, failed, ok
from notifier.domain.errors import SettingsError
from notifier.domain.journey import Journeys
from notifier.domain.message import Template
from notifier.journeys import load_journeys, load_templates
from notifier.settings import PREFIX, Settings


async def examine(
    settings: Settings, *, probe: bool = False, probe_to: str | None = None
) -> AsyncGenerator[Finding, None]:
    """Look at everything; each finding comes as soon as it is known.

    Changes nothing, unless a `probe` is wanted: then a made-up user makes the whole trip, and `probe_to` gets its mail.
    """
    named = sorted(PREFIX + name.upper() for name in settings.model_fields_set)
    yield ok("settings", f"set here: {', '.join(named)}" if named else "none is set, all have their defaults")
    run = noted_url(settings.data_dir, "api") is not None
    journeys: Journeys | None = None
    templates: dict[str, Template] = {}
    try:
        journeys = load_journeys(settings)
        templates = load_templates(settings, journeys)
        yield ok("journeys", f"kinds: {', '.join(journeys.kinds)}")
    except SettingsError as error:
        yield failed("journeys", str(error), "mend that file, or name another one: no process starts with it")
    for finding in mails.check(templates):
        yield finding
    redis_is_named = settings.redis_url is not None
    settings, whose = _with_databases(settings)
    live: set[str] = set()
    async for finding in database.check(settings, whose, journeys, templates, live):
        yield finding
    yield await redis.check(settings, "" if redis_is_named else whose)
    yield await provider.check(settings, expected=bool(live) or run)
    for finding in await asyncio.to_thread(lambda: list(api.check(settings, expected="api" in live))):
        yield finding
    for finding in machine.check(settings, is_running=run, is_ours=bool(whose)):
        yield finding
    if probe or probe_to is not None:
        mock_url = provider.mock_at(settings) if settings.provider == "mock" else None
        async with aclosing(trip.travel(settings, journeys, live, mock_url, probe_to)) as findings:
            async for finding in findings:
                yield finding


def _with_databases(settings: Settings) -> tuple[Settings, str]:
    """Fill in the databases of the `run` in DATA_DIR where none are named; and whose PostgreSQL it then is."""
    if settings.database_url:
        return settings, ""
    found = {"database_url": embedded.noted_url(settings.data_dir)}
    if settings.redis_url is None:
        found["redis_url"] = embedded.noted_redis_url(settings.data_dir)
    return settings.model_copy(update=found), f"the `notifier run` in {settings.data_dir}"
