"""The pages for people: the description of the API, and what each problem means."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aiohttp import web
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from notifier.http.problems import PROBLEMS, Problem

FOLDER = Path(__file__).parent / "pages"
METHODS = ("get", "post", "put", "delete")
_LIMITS = {
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minimum": "at least {}",
    "maximum": "at most {}",
    "maxItems": "at most {} items",
}


class Pages:
    """The pages of one app, rendered once: they change with the build only."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        style = (FOLDER / "style.css").read_text("utf-8")
        digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
        self.headers = {
            "Content-Security-Policy": f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; "
            "form-action 'none'; frame-ancestors 'none'",
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
        }
        environment = Environment(
            loader=FileSystemLoader(FOLDER), autoescape=True, undefined=StrictUndefined, trim_blocks=True
        )
        environment.filters |= {"prose": prose, "words": words, "type": type_of}
        environment.globals["style"] = Markup(style)  # noqa: S704 - a file of ours
        self.openapi = json.dumps(document)
        self.docs = environment.get_template("docs.html").render(api=document, methods=METHODS)
        self.problems = {
            slug: environment.get_template("problem.html").render(slug=slug, status=status, title=title, text=text)
            for slug, (status, title, text) in PROBLEMS.items()
        }

    def page(self, text: str) -> web.Response:
        """Answer with a page that loads nothing and runs nothing."""
        return web.Response(text=text, content_type="text/html", charset="utf-8", headers=self.headers)


PAGES: web.AppKey[Pages] = web.AppKey("pages", Pages)


async def get_openapi(request: web.Request) -> web.Response:
    """The description for programs."""
    return web.Response(text=request.app[PAGES].openapi, content_type="application/json")


async def get_docs(request: web.Request) -> web.Response:
    """The description for people."""
    pages = request.app[PAGES]
    return pages.page(pages.docs)


async def get_problem(request: web.Request) -> web.Response:
    """What one problem means and what to do about it."""
    pages = request.app[PAGES]
    text = pages.problems.get(request.match_info["slug"])
    if text is None:
        raise Problem("not-found", "there is no problem of this name")
    return pages.page(text)


async def to_docs(_request: web.Request) -> web.Response:
    """Whoever opens the bare address wants to read."""
    raise web.HTTPFound("/docs")


def prose(text: str) -> Markup:
    """Paragraphs of a description."""
    return Markup("\n").join(Markup("<p>{}</p>").format(words(part)) for part in text.split("\n\n"))


def words(text: str) -> Markup:
    """One line of a description: `code` and **strong** are all the marks there are."""
    marked = re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text)))
    return Markup(re.sub(r"\*\*([^*]+)\*\*", r"<strong>\1</strong>", marked))  # noqa: S704 - escaped above


def type_of(schema: Mapping[str, Any]) -> Markup:
    """A schema in few words; a named one as a link to where it is shown."""
    match schema:
        case {"$ref": reference}:
            name = str(reference).rpartition("/")[2]
            return Markup('<a href="#schema-{0}">{0}</a>').format(name)
        case {"anyOf": options}:
            return Markup(" or ").join(type_of(option) for option in options)
        case {"const": value}:
            return Markup("<code>{}</code>").format(json.dumps(value))
        case {"enum": values}:
            return Markup(", ").join(Markup("<code>{}</code>").format(value) for value in values)
        case {"type": "array"}:
            return Markup("list of {}").format(type_of(schema.get("items", {})))
        case {"type": "object", "additionalProperties": dict() as values}:
            return Markup("object of {}").format(type_of(values))
        case {"type": kind}:
            limits = [text.format(schema[name]) for name, text in _LIMITS.items() if name in schema]
            return Markup(", ").join([escape(schema.get("format", kind)), *map(escape, limits)])
        case _:
            return Markup("any value")
