"""One table: what went wrong → status, as RFC 9457 problems that say what to do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from notifier import observe
from notifier.domain.errors import (
    Busy,
    CallerError,
    Invalid,
    KeyReused,
    Moved,
    NotFound,
    NotifierError,
    WrongState,
)
from notifier.json_text import to_json
from notifier.store.database import RETRYABLE, UNAVAILABLE

MEDIA_TYPE = "application/problem+json"
PATH = "/problems/"

# slug → (status, title, what it means and what to do); the page below /problems/ shows it
PROBLEMS: Mapping[str, tuple[int, str, str]] = {
    "not-json": (400, "Not JSON", "The body could not be read as JSON. Nothing was stored."),
    "bad-request": (400, "Bad request", "The request lacks something it needs. Nothing was stored."),
    "unauthorized": (401, "Not authorized", "Send a valid key, or a valid signature for a webhook."),
    "forbidden": (403, "Not allowed", "The key is valid and lacks the scope that this needs."),
    "not-found": (404, "Not found", "There is no such thing."),
    "method-not-allowed": (405, "Method not allowed", "The address exists and does not take this method."),
    "wrong-state": (409, "Wrong state", "The act does not fit where the notification stands."),
    "moved": (412, "It moved", "The notification changed since you read it: read it again and decide again."),
    "too-large": (413, "Too large", "The body or the batch is over its limit. Nothing was stored."),
    "invalid": (422, "Invalid", "Well-formed, but not acceptable; `errors` points at each field. Nothing was stored."),
    "idempotency-key-reused": (
        422,
        "Id used for other content",
        "The id belongs to an event with other content. A repeat must be the same event; a new event needs a new id.",
    ),
    "precondition-required": (428, "If-Match required", "Send the ETag of what you read, so that you act on that."),
    "busy": (503, "Repeat later", "Not stored, or not known to be stored. Repeat the same request, with the same id."),
    "internal": (500, "Our mistake", "Something unexpected happened here. Repeating the same request is safe."),
}


@dataclass(slots=True)
class Problem(Exception):
    """An error answer. `errors`: (JSON pointer, what is wrong) each; an empty pointer means the whole body."""

    slug: str
    detail: str
    errors: Sequence[tuple[str, str]] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def status(self) -> int:
        """HTTP status."""
        return PROBLEMS[self.slug][0]

    def body(self) -> dict[str, Any]:
        """The document."""
        status, title, _ = PROBLEMS[self.slug]
        document: dict[str, Any] = {
            "type": PATH + self.slug,
            "title": title,
            "status": status,
            "detail": self.detail,
            **self.extra,
        }
        if self.errors:
            document["errors"] = [{"pointer": pointer, "detail": detail} for pointer, detail in self.errors]
        return document

    def told(self) -> tuple[int, Mapping[str, str], bytes]:
        """Give status, headers and body of the answer."""
        return self.status, {"Content-Type": MEDIA_TYPE, **self.headers}, to_json(self.body())

    def response(self) -> web.Response:
        """The answer."""
        status, headers, body = self.told()
        return web.Response(status=status, body=body, headers=headers)


def problem_of(error: BaseException) -> Problem:
    """Which problem an error is to the caller. What is not in the table is a bug of ours: 500, without details."""
    match error:
        case Problem():
            return error
        case KeyReused():
            return Problem("idempotency-key-reused", str(error))
        case Invalid():
            return _pointed("invalid", error)
        case NotFound():
            return Problem("not-found", str(error))
        case WrongState(state=state, reason=reason):
            return Problem("wrong-state", str(error), extra={"state": state, "reason": reason})
        case Moved(generation=generation):
            return Problem("moved", str(error), headers={"ETag": f'"{generation}"'})
        case Busy(retry_after_s=retry_after_s):
            return Problem("busy", str(error), headers={"Retry-After": str(retry_after_s)})
        case NotifierError():
            return Problem("internal", "an operator must look at this; the log says more")
        case _ if isinstance(error, (*RETRYABLE, *UNAVAILABLE)):
            return Problem("busy", "the database is not available; repeat the request", headers={"Retry-After": "1"})
        case _:
            return Problem("internal", "something unexpected happened; repeating the same request is safe")


def _pointed(slug: str, error: CallerError) -> Problem:
    errors = [(error.pointer, str(error))] if error.pointer is not None else []
    return Problem(slug, str(error), errors)


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@web.middleware
async def problems(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turn every error of a handler into its problem; log only what is ours."""
    try:
        return await handler(request)
    except web.HTTPNotFound:
        return Problem("not-found", f"there is nothing at {request.path}").response()
    except web.HTTPMethodNotAllowed as error:
        allowed = ", ".join(sorted(error.allowed_methods))
        return Problem("method-not-allowed", f"use {allowed}", headers={"Allow": allowed}).response()
    except web.HTTPException as error:
        if error.status < 400:
            raise
        body = {"type": "about:blank", "title": error.reason, "status": error.status, "detail": error.reason}
        return web.Response(status=error.status, body=to_json(body), content_type=MEDIA_TYPE)
    except Exception as error:  # noqa: BLE001 - the one place where requests' errors end
        status, headers, told = problem_told(error, _route(request))
        return web.Response(status=status, body=told, headers=headers)


def problem_told(error: Exception, route: str) -> tuple[int, Mapping[str, str], bytes]:
    """Give the answer to a request that ended in an error; what is our mistake goes into the log."""
    problem = problem_of(error)
    if problem.slug == "internal":
        observe.log().error("request_failed", route=route, exc_info=error)
    return problem.told()


def _route(request: web.Request) -> str:
    resource = request.match_info.route.resource
    return f"{request.method} {resource.canonical if resource else '?'}"
