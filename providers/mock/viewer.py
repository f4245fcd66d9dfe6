"""The inbox as a person sees it: the mails, what became of each call, the faults; rendered here."""

from __future__ import annotations

import functools
import json
import re
import sqlite3
from collections.abc import Callable, Mapping
from email.errors import HeaderParseError
from email.header import decode_header, make_header
from urllib.parse import urlsplit

from aiohttp import web

from providers.mock import panel, search, wire
from providers.mock.api import Handler, find_message, paging, source_of
from providers.mock.faults import Dials, FaultsInvalid
from providers.mock.ledger import Ledger
from providers.mock.query import Query, QueryInvalid, parse
from providers.mock.render import Files, Pages, link
from providers.mock.stream import Hub

PAGE_LIMIT = 50
DOUBLES_NAMED = 3
DOUBLE_MAILS_MAX = 20
STORY_MAX = 200
SOURCE_SHOWN_MAX = 262_144
Look = Callable[[sqlite3.Connection], dict[str, object]]

VIEWS = ("html", "text", "headers", "source")
WIDTHS = ("", "phone")


class Viewer:
    """The handlers of / and what its pages lead to."""

    def __init__(self, ledger: Ledger, dials: Dials, hub: Hub) -> None:
        self._ledger = ledger
        self._dials = dials
        self._hub = hub
        self._files = Files()
        self._pages = Pages(self._files)

    def routes(self) -> list[web.RouteDef]:
        """Where the pages are found."""
        return [
            web.get("/", self._page(self.inbox)),
            web.get("/messages/{id}", self._page(self.message)),
            web.get("/calls", self._page(self.calls)),
            web.get("/doubles", self._page(self.doubles)),
            web.get("/faults", self._page(self.faults)),
            web.post("/faults", self._page(self.set_faults)),
            web.post("/faults/off", self._page(self.faults_off)),
            web.get("/delete", self._page(self.ask_delete)),
            web.post("/delete", self._page(self.delete)),
            web.get("/forget", self._page(self.ask_forget)),
            web.post("/forget", self._page(self.forget)),
            web.get("/pages/{name:.+}", self._files.serve),
        ]

    async def inbox(self, request: web.Request) -> web.Response:
        """The list of mails, all or those a search finds."""
        _, after = paging(request)
        text = wire.storable(request.query.get("q", "")).strip()
        try:
            query = parse(text)
        except QueryInvalid as error:
            return await self._render("inbox.html", q=text, error=str(error), after=after)

        def look(connection: sqlite3.Connection) -> dict[str, object]:
            page = search.messages(connection, query, PAGE_LIMIT, after)
            return {"page": page, "repeats": search.repeats(connection, page.items)}

        return await self._render("inbox.html", look, q=text, error="", after=after)

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
        return await self._render(
            "message.html",
            look,
            frame=_only(request.host, frame),
            frame_url=frame,
            message=message,
            headers=_headers(source, encoded=message.transport == "smtp"),
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
            return await self._render(
                "calls.html", lambda connection: {"page": search.refused(connection, PAGE_LIMIT, after)}, after=after
            )
        key = wire.storable(key)
        look = functools.partial(search.attempts, key=key, limit=STORY_MAX, after=after)
        return await self._render("key.html", lambda connection: {"calls": look(connection)}, key=key)

    async def doubles(self, request: web.Request) -> web.Response:
        """The mails that share user and kind with another one."""
        _, after = paging(request)

        def look(connection: sqlite3.Connection) -> dict[str, object]:
            page, _ = search.doubles(connection, PAGE_LIMIT, after, DOUBLE_MAILS_MAX)
            return {"page": page}

        return await self._render("doubles.html", look, after=after, mails_max=DOUBLE_MAILS_MAX)

    async def faults(self, _request: web.Request) -> web.Response:
        """The knobs, to be read and turned."""
        return await self._faults_form()

    async def set_faults(self, request: web.Request) -> web.Response:
        """Turn the knobs; what cannot be set is said beside its field, and then nothing changes."""
        form = {name: str(value) for name, value in (await request.post()).items()}
        try:
            self._dials.set(_turned(panel.parse(form), self._dials))
        except FaultsInvalid as error:
            return await self._faults_form(form, error)
        self._hub.changed()
        raise web.HTTPSeeOther("/faults")

    async def faults_off(self, request: web.Request) -> web.Response:
        """Everything back to how the process was started; leads back to where the button was."""
        self._dials.reset()
        self._hub.changed()
        raise web.HTTPSeeOther(_came_from(request))

    async def ask_delete(self, _request: web.Request) -> web.Response:
        """For whoever has no script: the question the dialog asks."""
        return await self._render("confirm.html", what="delete")

    async def delete(self, _request: web.Request) -> web.Response:
        """Empty the inbox; keys and calls stay."""
        await self._ledger.empty_inbox()
        self._hub.changed()
        raise web.HTTPSeeOther("/")

    async def ask_forget(self, _request: web.Request) -> web.Response:
        """For whoever has no script: the question the dialog asks."""
        return await self._render("confirm.html", what="forget")

    async def forget(self, _request: web.Request) -> web.Response:
        """Forget every key; the mails stay."""
        await self._ledger.forget_keys()
        self._hub.changed()
        raise web.HTTPSeeOther("/faults")

    async def _faults_form(
        self, typed: Mapping[str, str] | None = None, invalid: FaultsInvalid | None = None
    ) -> web.Response:
        fields = panel.inputs(self._dials.faults, self._dials.changed(), typed, invalid)
        at_field = {field.name for field in fields if field.error}
        elsewhere = [] if invalid is None else [m for name, m in invalid.by_field().items() if name not in at_field]
        return await self._render("faults.html", fields=fields, elsewhere=elsewhere, invalid=invalid)

    async def _render(
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

    def _page(self, handler: Handler) -> Handler:
        """The handler, with a page for what goes wrong."""

        async def show(request: web.Request) -> web.StreamResponse:
            try:
                return await handler(request)
            except web.HTTPClientError as error:
                return await self._render("problem.html", status=error.status, text=error.text or error.reason)

        return show


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


def _turned(values: Mapping[str, object], dials: Dials) -> dict[str, object]:
    """Only what differs from how the knobs stand: naming a seed, for one, starts the dice anew."""
    now = json.loads(dials.faults.model_dump_json())
    return {name: value for name, value in values.items() if value != now[name]}


def _came_from(request: web.Request) -> str:
    """The page of ours that a form was on."""
    parts = urlsplit(request.headers.get("Referer", ""))
    ours = parts.netloc == request.host and parts.path.startswith("/") and not parts.path.startswith("//")
    return parts._replace(scheme="", netloc="", fragment="").geturl() if ours else "/faults"


def _headers(source: bytes, *, encoded: bool) -> list[tuple[str, str]]:
    """The header lines of a mail, continued ones joined; encoded words are read only where a mail has them."""
    head = source.replace(b"\r\n", b"\n").partition(b"\n\n")[0].decode("utf-8", "replace")
    lines = re.sub(r"\n(?=[ \t])", "", head).split("\n")
    pairs = [(name, value.strip()) for name, _, value in (line.partition(":") for line in lines) if name]
    return [(name, _decoded(value)) for name, value in pairs] if encoded else pairs


def _decoded(value: str) -> str:
    try:
        return str(make_header(decode_header(value)))
    except (LookupError, ValueError, HeaderParseError):  # nothing obliges a mail to be right
        return value
