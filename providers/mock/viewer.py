"""The inbox as a person sees it: three small pages, rendered here."""

from __future__ import annotations

from pathlib import Path

from aiohttp import web
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from providers.mock import search, wire
from providers.mock.api import SAFE_HEADERS, Handler, find_message, paging
from providers.mock.ledger import Ledger

PAGES = Path(__file__).parent / "pages"
PAGE_LIMIT = 50
PAGE_POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "frame-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
VIEWS = ("html", "text", "headers")


class Viewer:
    """The handlers of / and what its pages lead to."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._templates = Environment(
            loader=FileSystemLoader(PAGES), autoescape=True, undefined=StrictUndefined, trim_blocks=True
        )
        self._templates.filters["clock"] = _clock

    def routes(self) -> list[web.RouteDef]:
        """Where the pages are found."""
        return [
            web.get("/", self.inbox),
            web.get("/messages/{id}", self.message),
            web.get("/calls", self.calls),
            web.get("/pages/style.css", _file("style.css", "text/css")),
            web.get("/pages/live.js", _file("live.js", "text/javascript")),
        ]

    async def inbox(self, request: web.Request) -> web.Response:
        """The list of mails, and the refused repeats below."""
        _, after = paging(request)
        query = wire.storable(request.query.get("q", "")).strip()
        page = await self._ledger.read(lambda connection: search.messages(connection, query, PAGE_LIMIT, after))
        refused = await self._ledger.read(lambda connection: search.attempts(connection, None, 10, None, refused=True))
        return self._render("inbox.html", page=page, refused=refused, query=query, first=after is None)

    async def message(self, request: web.Request) -> web.Response:
        """One mail: as HTML, as text, or its headers; and every call made with its key."""
        view = request.query.get("view", "html")
        if view not in VIEWS:
            raise web.HTTPNotFound(text=f"A mail can be viewed as {', '.join(VIEWS)}.")
        message = await find_message(self._ledger, request.match_info["id"])
        calls = await self._ledger.read(
            lambda connection: search.attempts(connection, message.key or "", PAGE_LIMIT, None)
        )
        return self._render("message.html", message=message, calls=calls.items, view=view, views=VIEWS)

    async def calls(self, request: web.Request) -> web.Response:
        """Every call that brought no mail into the inbox."""
        _, after = paging(request)
        page = await self._ledger.read(
            lambda connection: search.attempts(connection, None, PAGE_LIMIT, after, refused=True)
        )
        return self._render("calls.html", page=page)

    def _render(self, name: str, **values: object) -> web.Response:
        text = self._templates.get_template(name).render(**values)
        headers = {"Content-Security-Policy": PAGE_POLICY, **SAFE_HEADERS}
        return web.Response(text=text, content_type="text/html", charset="utf-8", headers=headers)


def _file(name: str, content_type: str) -> Handler:
    content = (PAGES / name).read_text()

    async def serve(_request: web.Request) -> web.Response:
        return web.Response(text=content, content_type=content_type, charset="utf-8", headers=SAFE_HEADERS)

    return serve


def _clock(time: str) -> str:
    return time.partition(".")[0].replace("T", " ")
