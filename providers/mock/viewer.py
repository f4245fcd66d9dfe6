"""The inbox as a person sees it: the mails, what became of each call; rendered here."""

from __future__ import annotations

import asyncio
import functools
import re
import sqlite3
from urllib.parse import urlsplit

from aiohttp import web

from providers.mock import search, wire
from providers.mock.api import find_message, paging, source_of
from providers.mock.controls import Controls
from providers.mock.faults import Dials
from providers.mock.ledger import Ledger
from providers.mock.query import Query, QueryInvalid, parse
from providers.mock.render import link
from providers.mock.shell import Shell
from providers.mock.source import header_lines
from providers.mock.stream import Hub

PAGE_LIMIT = 50
DOUBLE_MAILS_MAX = 20
STORY_MAX = 200
SOURCE_SHOWN_MAX = 262_144
VIEWS = ("html", "text", "headers", "source")
WIDTHS = ("", "phone")


class Viewer:
    """The handlers of / and what its pages lead to."""

    def __init__(self, ledger: Ledger, dials: Dials, hub: Hub) -> None:
        self._ledger = ledger
        self._shell = Shell(ledger, dials, hub)
        self._controls = Controls(ledger, dials, hub, self._shell)

    def routes(self) -> list[web.RouteDef]:
        """Where the pages are found."""
        page = self._shell.page
        return [
            web.get("/", page(self.inbox)),
            web.get("/messages/{id}", page(self.message)),
            web.get("/calls", page(self.calls)),
            web.get("/doubles", page(self.doubles)),
            web.get("/pages/{name:.+}", self._shell.files.serve),
            *self._controls.routes(),
        ]

    async def inbox(self, request: web.Request) -> web.Response:
        """The list of mails, all or those a search finds."""
        _, after = paging(request)
        text = wire.storable(request.query.get("q", "")).strip()
        try:
            query = parse(text)
        except QueryInvalid as error:
            return await self._shell.render("inbox.html", q=text, error=str(error), after=after)

        def look(connection: sqlite3.Connection) -> dict[str, object]:
            page = search.messages(connection, query, PAGE_LIMIT, after)
            return {"page": page, "repeats": search.repeats(connection, page.items)}

        return await self._shell.render("inbox.html", look, q=text, error="", after=after)

    async def message(self, request: web.Request) -> web.Response:
        """One mail as HTML, as text, its headers or its source; and every call made with its key."""
        view, width = request.query.get("view", ""), request.query.get("width", "")
        if view not in ("", *VIEWS) or width not in WIDTHS:
            raise web.HTTPNotFound(text=f"A mail can be viewed as {', '.join(VIEWS)}.")
        message = await find_message(self._ledger, request.match_info["id"])
        query, q = _query_or_all(request)

        def look(connection: sqlite3.Connection) -> dict[str, object]:
            newer, older = search.neighbours(connection, query, message.seq)
            calls = search.attempts(connection, message.key, STORY_MAX, None) if message.key else None
            repeats = search.repeats(connection, search.lines(connection, [message.seq]))
            return {"newer": newer, "older": older, "calls": calls, "repeats": repeats.get(message.id, 0)}

        shown = view or ("html" if message.html or not message.text else "text")
        source = await source_of(self._ledger, message) if shown in ("headers", "source") else b""
        frame = link(f"/api/messages/{message.id}/html", links="off")
        return await self._shell.render(
            "message.html",
            look,
            frame=_only(request.host, frame),
            frame_url=frame,
            message=message,
            headers=await asyncio.to_thread(header_lines, source, encoded=message.transport == "smtp"),
            source=source[:SOURCE_SHOWN_MAX].decode("utf-8", "replace"),
            cut=len(source) > SOURCE_SHOWN_MAX,
            views=VIEWS,
            view=shown,
            width=width,
            q=q,
            after=request.query.get("after", ""),
        )

    async def calls(self, request: web.Request) -> web.Response:
        """Every call that brought no mail into the inbox, or all calls of one key."""
        _, after = paging(request)
        key = request.query.get("key")
        if key is None:
            return await self._shell.render(
                "calls.html", lambda connection: {"page": search.refused(connection, PAGE_LIMIT, after)}, after=after
            )
        key = wire.storable(key)
        look = functools.partial(search.attempts, key=key, limit=STORY_MAX, after=after)
        return await self._shell.render("key.html", lambda connection: {"calls": look(connection)}, key=key)

    async def doubles(self, request: web.Request) -> web.Response:
        """The mails that share user and kind with another one."""
        _, after = paging(request)

        def look(connection: sqlite3.Connection) -> dict[str, object]:
            page, _ = search.doubles(connection, PAGE_LIMIT, after, DOUBLE_MAILS_MAX)
            return {"page": page}

        return await self._shell.render("doubles.html", look, after=after, mails_max=DOUBLE_MAILS_MAX)


def _only(host: str, url: str) -> str:
    """The policy's source that allows this one address of ours; no policy can name a host by its IPv6 address."""
    return host + urlsplit(url).path if re.fullmatch(r"[A-Za-z0-9.-]+(:[0-9]+)?", host) else "'self'"


def _query_or_all(request: web.Request) -> tuple[Query, str]:
    """The search a mail was opened from; one that cannot be read is none."""
    text = wire.storable(request.query.get("q", "")).strip()
    try:
        return parse(text), text
    except QueryInvalid:
        return Query(), ""
