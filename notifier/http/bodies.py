"""Reading bodies within their limit, and what handlers share."""

from __future__ import annotations

from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from multidict import CIMultiDict

from notifier.http.problems import Problem
from notifier.json_text import to_json

EVENT_MAX_BYTES = 256 * 1024
BATCH_MAX_BYTES = 8 * 1024 * 1024


async def read_body(request: web.Request, limit: int) -> bytes:
    """Read the whole body; a Problem (413) as soon as it is known to be over `limit` bytes."""
    if (request.content_length or 0) > limit:
        raise _too_large(limit)
    content = request.content
    try:
        # A small body is there, with its end, as soon as its head is.
        raw = content.read_nowait() if content.is_eof() else await _read_parts(request, limit)
    except (HttpProcessingError, web.RequestPayloadError):
        raise Problem("bad-request", "the body is not encoded as its headers say") from None
    if len(raw) > limit:
        raise _too_large(limit)
    return raw


async def _read_parts(request: web.Request, limit: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for part in request.content.iter_any():
        size += len(part)
        if size > limit:
            raise _too_large(limit)
        parts.append(part)
    return b"".join(parts)


def _too_large(limit: int) -> Problem:
    return Problem("too-large", f"the body is over {limit // 1024} KiB", headers={"Connection": "close"})


def answer(document: Any, *, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    """JSON out; no cache keeps it: it is about people, and it changes."""
    return answer_written(to_json(document), status=status, headers=headers)


def answer_written(body: bytes, *, status: int, headers: dict[str, str] | None = None) -> web.Response:
    """Give JSON that is written already."""
    return web.Response(status=status, body=body, headers={**JSON_HEADERS, **headers} if headers else JSON_HEADERS)


JSON_HEADERS = CIMultiDict({"Content-Type": "application/json", "Cache-Control": "no-store"})
