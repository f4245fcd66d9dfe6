"""What stands round every page: counts, the banner, the strip of faults; and a page for what goes wrong."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

from aiohttp import web

from providers.mock import search
from providers.mock.api import Handler
from providers.mock.faults import Dials
from providers.mock.ledger import Ledger
from providers.mock.render import Files, Pages
from providers.mock.stream import Hub

DOUBLES_NAMED = 3

Look = Callable[[sqlite3.Connection], dict[str, object]]


class Shell:
    """Fills the templates, each with what it shows itself and what all of them show."""

    def __init__(self, ledger: Ledger, dials: Dials, hub: Hub) -> None:
        self._ledger = ledger
        self._dials = dials
        self._hub = hub
        self.files = Files()
        self._pages = Pages(self.files)

    async def render(
        self, template: str, look: Look | None = None, *, status: int = 200, frame: str = "'none'", **values: object
    ) -> web.Response:
        """Fill a page: what it shows itself, read by `look`, and what stands on every page."""

        def read(connection: sqlite3.Connection) -> dict[str, object]:
            found, same_key = search.doubles(connection, DOUBLES_NAMED)
            seen = {"counts": search.counts(connection), "alarm": found, "same_key": same_key}
            return seen if look is None else seen | look(connection)

        everywhere = {"q": "", "in_flight": self._hub.in_flight, "faults_on": self._dials.changed()}
        seen = await self._ledger.read(read)
        return self._pages.render(template, everywhere | seen | values, status=status, frame=frame)

    def page(self, handler: Handler) -> Handler:
        """The handler, with a page for what goes wrong."""

        async def show(request: web.Request) -> web.StreamResponse:
            try:
                return await handler(request)
            except web.HTTPClientError as error:
                return await self.render("problem.html", status=error.status, text=error.text or error.reason)

        return show
