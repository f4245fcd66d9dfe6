"""The round trip: a made-up user signs up, gets the mail, logs in and is erased. It mails, so only who asks gets it."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote
from urllib.request import ProxyHandler, build_opener

from notifier.client.api import Answer, Api, Refused, path
from notifier.doctor import held_up
from notifier.doctor.finding import Finding, failed, ok, skipped
from notifier.doctor.held_up import Surroundings
from notifier.domain.errors import NotReady, SettingsError
from notifier.domain.journey import Journeys
from notifier.settings import Settings

NOBODYS_ADDRESS = "doctor@example.com"
WAIT_S = 20.0  # long enough for a frozen worker to be missed: three heartbeats and a poll
HOPELESS_S = 3.0  # where nobody is known who would send it
LOOK_S = 0.1
Broken = (Refused, NotReady, SettingsError)


@dataclass(slots=True)
class Trip:
    """One made-up user on the way. `mock_url`: the inbox to look into, where the provider is the mock."""

    settings: Settings
    api: Api
    to: str
    event_type: str
    journeys: Journeys
    around: Surroundings
    mock_url: str | None
    user: str

    async def go(self) -> AsyncGenerator[Finding, None]:
        """Go the whole way; each finding comes as soon as it is known. The user is erased whatever happens."""
        try:
            await self._delete()
            yield failed("trip event", "the user of this trip was there before it began", "try again")
            return
        except Refused as error:
            if error.status != 404:  # it may not erase, so nothing is left behind that would have to be
                yield failed("trip event", f"{error} (nothing was sent)", "give a key that may `events read operate`")
                return
        except Broken as error:
            yield failed("trip event", f"{error} (nothing was sent)", "events have nowhere to go: mend that first")
            return
        try:
            async for finding in self._stations():
                yield finding
        finally:
            erasure = await self._erase()
        yield erasure

    async def _stations(self) -> AsyncGenerator[Finding, None]:
        began = time.monotonic()
        try:
            told = (await self._post(self.event_type)).body
        except Broken as error:
            yield failed("trip event", str(error), _todo_of(error))
            return
        made = {row["kind"]: row for row in told["notifications"]}
        what = ", ".join(f"{kind} {row['state']}" for kind, row in made.items()) or "it asks for no mail there"
        yield ok("trip event", f"{self.event_type} was taken in {_took(began)}: {what}")
        owed = [row for row in made.values() if row["state"] == "pending"]
        for row in owed:
            async for finding in self._sent(row, began):
                yield finding
        if not owed:
            yield skipped("trip mail", f"{self.event_type} leads to no mail that is sent at once")
        yield await self._cancel([row for row in made.values() if row["state"] == "scheduled"])

    async def _sent(self, row: dict[str, Any], began: float) -> AsyncGenerator[Finding, None]:
        try:
            switch = await asyncio.to_thread(held_up.holding, self.api, row["kind"], self.settings.provider)
            is_hopeless = switch is not None or "worker" not in self.around.live
            deadline = began + (HOPELESS_S if is_hopeless else WAIT_S) + self.settings.poll_s
            found = await self._read(row["id"])
            while found["state"] in ("pending", "sending") and time.monotonic() < deadline:
                await asyncio.sleep(LOOK_S)
                found = await self._read(row["id"])
            if found["state"] != "sent":
                yield await held_up.why_not_sent(self.settings, self.api, found, self.around)
                return
        except Broken as error:
            yield failed("trip mail", str(error), _todo_of(error))
            return
        calls = len(found["attempts"])
        times = "once" if calls == 1 else f"{calls} times"
        text = f"{row['kind']} was sent {_took(began)} after the event; {found['provider']} was called {times}"
        if self.mock_url is None:
            yield ok("trip mail", f"{text}: look whether it is in the mailbox")
            return
        yield ok("trip mail", text)
        yield await asyncio.to_thread(self._in_inbox, found["provider_message_id"])

    def _in_inbox(self, message: str | None) -> Finding:
        url = f"{self.mock_url}/api/messages/{quote(message or '', safe='')}"
        try:
            with build_opener(ProxyHandler({})).open(url, timeout=5.0) as answer:
                taken = json.load(answer)
        except (OSError, ValueError) as error:
            todo = "is that the mock the workers use? Set NOTIFIER_MOCK_URL here as it is set for them"
            return failed("trip inbox", f"the mail is not in the inbox at {self.mock_url} ({error})", todo)
        return ok("trip inbox", f"the mail is there: {taken.get('subject')!r}")

    async def _cancel(self, waiting: list[dict[str, Any]]) -> Finding:
        kinds = self.journeys.kinds
        stoppable = [row for row in waiting if row["kind"] in kinds and kinds[row["kind"]].cancel_on]
        if not stoppable:
            return skipped("trip cancel", "nothing waits that an event could stop")
        stoppable = [row for row in stoppable if not kinds[row["kind"]].cancel_grace]
        if not stoppable:
            return skipped("trip cancel", "what waits has a cancel_grace: an event that comes so soon does not stop it")
        event_type = kinds[stoppable[0]["kind"]].cancel_on[0]
        began = time.monotonic()
        try:
            told = (await self._post(event_type)).body
        except Broken as error:
            return failed("trip cancel", str(error), _todo_of(error))
        canceled = [row["kind"] for row in told["canceled"]]
        if stoppable[0]["kind"] in canceled:
            return ok("trip cancel", f"{event_type} stopped {', '.join(canceled)} in {_took(began)}")
        text = f"{event_type} did not stop {stoppable[0]['kind']}"
        todo = "does the api have the same journeys file? If it has, this is a bug: keep the database"
        return failed("trip cancel", text, todo)

    async def _erase(self) -> Finding:
        began = time.monotonic()
        try:
            await self._delete()
        except Refused as error:
            if error.status == 404:
                return ok("trip erasure", "there was nobody to erase: the event never came in")
            why: Exception = error
        except Broken as error:
            why = error
        else:
            return ok("trip erasure", f"erased in {_took(began)}; what stays is that {self.user} gets no mail again")
        todo = f"erase the user later: DELETE {path('users', self.user)}"
        return failed("trip erasure", f"{self.user} may be left, with the address {self.to}: {why}", todo)

    async def _post(self, event_type: str) -> Answer:
        user = {"id": self.user, "email": self.to, "name": "Notifier's doctor"}
        event = {"id": f"{self.user}-{event_type}"[:255], "type": event_type, "user": user}
        return await asyncio.to_thread(self.api.ask, "POST", path("events"), scope="events", body=event)

    async def _read(self, notification: str) -> dict[str, Any]:
        answer = await asyncio.to_thread(self.api.get, path("notifications", notification))
        found: dict[str, Any] = answer.body
        return found

    async def _delete(self) -> None:
        await asyncio.to_thread(self.api.ask, "DELETE", path("users", self.user), scope="operate")


async def travel(
    settings: Settings, journeys: Journeys | None, live: set[str], mock_url: str | None, to: str | None
) -> AsyncGenerator[Finding, None]:
    """Try the whole way with a user nobody knows. `to`: where its mail goes; None: to nobody, in the mock only."""
    if mock_url is None and to is None:
        yield skipped("trip", f"NOTIFIER_PROVIDER={settings.provider} mails real people: say whom, --probe-to ADDRESS")
        return
    event_type = _event_type(journeys) if journeys else None
    if journeys is None or event_type is None:
        yield skipped("trip", "the journeys file names no event that leads to a mail at once")
        return
    try:
        api = Api(settings)
    except SettingsError as error:
        yield failed("trip event", str(error), "say where the api is")
        return
    trip = Trip(
        settings=settings,
        api=api,
        to=to or NOBODYS_ADDRESS,
        event_type=event_type,
        journeys=journeys,
        around=Surroundings(live, mock_url),
        mock_url=mock_url,
        user=f"notifier-doctor-{secrets.token_hex(8)}",
    )
    async with aclosing(trip.go()) as findings:
        async for finding in findings:
            yield finding


def _event_type(journeys: Journeys) -> str | None:
    """The event that leads to a mail at once, if possible one that leads to a mail that can be stopped as well."""
    at_once = [kind.on for kind in journeys.kinds.values() if not kind.delay]
    stoppable = {kind.on for kind in journeys.kinds.values() if kind.delay and kind.cancel_on and not kind.cancel_grace}
    return next((on for on in at_once if on in stoppable), at_once[0] if at_once else None)


def _took(began: float) -> str:
    took_s = time.monotonic() - began
    return f"{took_s * 1000:.0f} ms" if took_s < 1 else f"{took_s:.1f} s"


def _todo_of(error: Exception) -> str:
    if isinstance(error, Refused):
        match error.status:
            case 401 | 403:
                return "give a key that may `events read operate`: NOTIFIER_API_KEY"
            case 503:
                return "look at the database and at `notifier switch list` (maintenance): the api takes no events"
        return "look at the api's log"
    return "look whether the api lives, and at its log"
