"""Why a mail of the round trip was not sent: which link is broken, as far as can be seen from here."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from notifier.client.api import Api, Refused, path
from notifier.doctor.finding import Finding, failed, warning
from notifier.domain.errors import NotReady, SettingsError
from notifier.settings import Settings
from notifier.store import counts, workers
from notifier.store.database import RETRYABLE, UNAVAILABLE, open_database

ABOUT = "trip mail"
ENDS = {
    "not_allowed": "that is what NOTIFIER_ONLY_TO is for: give an address it allows, with --probe-to",
    "suppressed": "nothing goes to this address any more: give another one, with --probe-to",
    "template_error": "its template does something with its data that made-up data does not allow: see `mail` above",
}


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the doctor found before: roles heard of lately, and where the mock provider is, if that is the way out."""

    live: set[str]
    mock_url: str | None


async def why_not_sent(settings: Settings, api: Api, found: Mapping[str, Any], around: Surroundings) -> Finding:
    """Say what keeps the notification `found`, or what ended it other than sent."""
    kind, state, reason = found["kind"], found["state"], found["reason"]
    if state not in ("pending", "sending"):
        text = f"{kind} ended {state}: {reason}"
        if reason in ENDS:
            return warning(ABOUT, text, ENDS[reason])
        if state == "uncertain":
            return failed(ABOUT, f"{text}; it may have been taken", "look whether the mail came, and at the provider")
        return failed(ABOUT, text, "look at what the provider says of it, and at the worker's log")
    calls = found["attempts"]
    if calls:
        last = calls[-1]
        why = f"{last['outcome']}, {last['reason']}" if last["reason"] else last["outcome"]
        text = f"{kind} is {state}: {found['provider']} was called {len(calls)} times and did not take it ({why})"
        return failed(ABOUT, text, _provider_todo(settings, around))
    if (switch := await asyncio.to_thread(holding, api, kind, settings.provider)) is not None:
        text = f"{kind} is {state}: held back by the switch {switch['name']} (by {switch['owner']})"
        return failed(ABOUT, text, f"if that is over: `notifier switch end {switch['name']}`")
    return await _workers(settings, found, around)


def holding(api: Api, kind: str, provider: str) -> dict[str, Any] | None:
    """The switch that holds this kind back, if the key may read them."""
    names = ("pause", f"pause:{kind.partition('@')[0]}", f"pause:provider:{provider}")
    try:
        told = api.get(path("switches")).body["switches"]
    except (Refused, NotReady, SettingsError):
        return None
    return next((switch for switch in told if switch["name"] in names), None)


async def _workers(settings: Settings, found: Mapping[str, Any], around: Surroundings) -> Finding:
    kind = found["kind"]
    seen = await _look(settings)
    if found["state"] == "sending":
        text = f"{kind} was claimed by {found['claimed_by']} and no call has ended"
        if seen is not None and found["claimed_by"] not in {one.id for one in seen.alive}:
            todo = "look at that process: it hangs, is frozen, or died; another worker takes over when the claim ends"
            return failed(ABOUT, f"{text}: that worker has not been heard of for 15 s", todo)
        return failed(ABOUT, f"{text}: its call of the provider takes long", _provider_todo(settings, around))
    text = f"the api took it, and nothing claims {kind}"
    if seen is None:
        return failed(ABOUT, text, "look whether a worker lives; without the database that cannot be seen from here")
    if not any(one.role == "worker" for one in seen.alive):
        todo = "start `notifier worker`; if one runs, it hangs, is frozen, or works on another database"
        return failed(ABOUT, f"{text}: no worker has been heard of for 15 s", todo)
    text = f"{text} although a worker lives; {seen.pending} are owed in all"
    todo = (
        "look at the workers' /metrics: with notifier_breaker_open 1 the provider gives no answer; with "
        "notifier_in_hand at its most they have too much to do; else they may have another journeys file"
    )
    return failed(ABOUT, text, todo)


def _provider_todo(settings: Settings, around: Surroundings) -> str:
    if around.mock_url is not None:
        return (
            f"does the mock provider answer at {around.mock_url}, and has it faults on? Start `notifier mock-provider`"
        )
    return f"look at the provider ({settings.provider}): see above"


@dataclass(frozen=True, slots=True)
class _Seen:
    alive: list[workers.Process]
    pending: int


async def _look(settings: Settings) -> _Seen | None:
    """Who lives now, and how much is owed; None where the database cannot be asked."""
    if not settings.database_url:
        return None
    try:
        database = await open_database(settings)
    except NotReady:
        return None
    try:
        async with database.connection() as conn:
            return _Seen(await workers.live(conn), (await counts.open_states(conn))["pending"])
    except (*RETRYABLE, *UNAVAILABLE):
        return None
    finally:
        await database.close()
