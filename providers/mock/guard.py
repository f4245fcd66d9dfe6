"""Who may ask: not a web page its reader happens to visit, and nobody under a name that is not the mock's own."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Awaitable, Callable, Collection, Mapping

from aiohttp import web
from aiohttp.typedefs import Middleware

SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
# Nobody can own a public name that ends so.
PRIVATE_SUFFIXES = (".localhost", ".local", ".internal", ".lan", ".home.arpa", ".test", ".svc")

HOST = re.compile(r"(?P<name>[a-z0-9._-]+|\[[0-9a-f:.]+\])(:[0-9]*)?")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def guard(names: Collection[str]) -> Middleware:
    """Turn away what the two checks below object to; `names` are the mock's own, beside those anybody may use."""

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        host = request.headers.get("Host")
        if not is_own_host(host, names):
            raise web.HTTPMisdirectedRequest(
                text="The mock provider does not know itself by this name. Call it by its IP address or a name without "
                "dots, or start it with NOTIFIER_MOCK_URL set to the address it is called by."
            )
        if is_cross_site(request.method, request.headers):
            raise web.HTTPForbidden(text="A web page of another origin cannot change anything here.")
        return await handler(request)

    return check


def is_own_host(host: str | None, names: Collection[str]) -> bool:
    """Whether a Host header names this server.

    Against DNS rebinding: a page at evil.example whose name suddenly leads to 127.0.0.1 is of one origin with us in
    the browser's eyes, and could read every mail. It cannot make its reader's browser say an IP address, a name
    without dots or one of a private zone; any other name has to be told to the mock.
    """
    if host is None:  # no browser leaves it out
        return True
    form = HOST.fullmatch(host.lower())
    if form is None:
        return False
    name = form["name"].rstrip(".")
    return "." not in name or name in names or name.endswith(PRIVATE_SUFFIXES) or _is_address(name)


def is_cross_site(method: str, headers: Mapping[str, str]) -> bool:
    """Whether a browser says that a page of another origin asks for a change.

    Sec-Fetch-Site decides where a browser sends it (not to plain HTTP beyond this host), else Origin; a page can
    forge neither. Programs send none of them and are let through. Another port of the same host counts as another.
    """
    if method in SAFE_METHODS:
        return False
    if (site := headers.get("Sec-Fetch-Site")) is not None:
        return site not in ("same-origin", "none")
    origin = headers.get("Origin")
    if origin is None:
        return False
    scheme, _, host = origin.partition("://")
    port = {"http": ":80", "https": ":443"}.get(scheme, "")
    return host.removesuffix(port) != headers.get("Host", "").lower().removesuffix(port)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True
