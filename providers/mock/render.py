"""Pages and the files they use: templates, what a browser may do with them, how long it may keep them."""

from __future__ import annotations

import hashlib
import mimetypes
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlencode

from aiohttp import web
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from providers.mock import panel, story
from providers.mock.api import SAFE_HEADERS
from providers.mock.query import quoted

PAGES = Path(__file__).parent / "pages"
FILES = ("style.css", "inbox.js", "icon.svg", "vendor/idiomorph.min.js")
PAGE_POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; "
    "frame-src {frame}; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
# same-origin, not no-referrer: with that a browser sends `Origin: null` with our own forms.
PAGE_HEADERS = {**SAFE_HEADERS, "Referrer-Policy": "same-origin", "Cross-Origin-Opener-Policy": "same-origin"}
A_YEAR = "public, max-age=31536000, immutable"


class Files:
    """The style, the scripts and the icon; named with a hash of what they hold, so that they can be kept for ever."""

    def __init__(self) -> None:
        self._contents = {name: (PAGES / name).read_bytes() for name in FILES}
        self._tags = {name: hashlib.sha256(content).hexdigest()[:16] for name, content in self._contents.items()}

    def url(self, name: str) -> str:
        """Where a page finds it."""
        return f"/pages/{name}?v={self._tags[name]}"

    async def serve(self, request: web.Request) -> web.Response:
        """GET /pages/{name}: for ever under its hash, to be asked for again under none."""
        name = request.match_info["name"]
        if name not in self._contents:
            raise web.HTTPNotFound(text="There is no such file.")
        tag = self._tags[name]
        headers = {**SAFE_HEADERS, "ETag": f'"{tag}"'}
        headers["Cache-Control"] = A_YEAR if request.query.get("v") == tag else "no-cache"
        if f'"{tag}"' in request.headers.get("If-None-Match", ""):
            return web.Response(status=304, headers=headers)
        content_type = mimetypes.guess_type(name)[0]
        return web.Response(body=self._contents[name], content_type=content_type, charset="utf-8", headers=headers)


class Pages:
    """The templates, ready to be filled."""

    def __init__(self, files: Files) -> None:
        self._templates = Environment(
            loader=FileSystemLoader(PAGES),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        self._templates.globals.update(
            file=files.url, link=link, story=story.story, outcome=story.outcome, mood=story.mood
        )
        self._templates.filters.update(
            clock=clock,
            day=day,
            exactly=exactly,
            many=many,
            number=number,
            quoted=quoted,
            typed=panel.in_words,
            name=display_name,
            sentence=sentence,
        )

    def render(self, template: str, values: Mapping[str, object], *, status: int, frame: str) -> web.Response:
        """A page as an answer; `frame` is the one address it may show in a frame."""
        text = self._templates.get_template(template).render(values)
        headers = {"Content-Security-Policy": PAGE_POLICY.format(frame=frame), **PAGE_HEADERS}
        return web.Response(status=status, text=text, content_type="text/html", charset="utf-8", headers=headers)


def link(path: str, **query: object) -> str:
    """An address with those parts of the query that say something."""
    told = {name: value for name, value in query.items() if value not in (None, "")}
    return f"{path}?{urlencode(told)}" if told else path


def clock(time: str) -> str:
    """The time of day."""
    return time[11:19]


def day(time: str) -> str:
    """The day, unless it is today."""
    today = datetime.now(UTC).date().isoformat()
    return "" if time.startswith(today) else time[:10]


def exactly(time: str) -> str:
    """Day and time to the millisecond."""
    return time[:23].replace("T", " ")


def many(n: int, word: str) -> str:
    """A number with its word: 1 mail, 2 mails, 50 000 mails."""
    return f"{number(n)} {word}{'' if n == 1 else 's'}"


def number(n: int) -> str:
    """50 000 for 50000."""
    return f"{n:,}".replace(",", "\u202f")


def sentence(text: str) -> str:
    """The text with a capital at its beginning."""
    return text[:1].upper() + text[1:]


def display_name(mailbox: str) -> str:
    """The name in `Name <address>`, or the address."""
    return mailbox.rpartition("<")[0].strip(' "') or mailbox
