"""What is said of one operation; the tables beside this file are made of it, build.py makes OpenAPI of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pydantic import BaseModel

from notifier.settings import Scope

JSON = "application/json"
NDJSON = "application/x-ndjson"
HTML = "text/html"


@dataclass(frozen=True, slots=True)
class Header:
    """A header that comes in or goes out."""

    name: str
    description: str
    required: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """What a status means, and the document that comes with it."""

    description: str
    model: type[BaseModel] | None = None
    headers: Sequence[Header] = ()
    media_type: str = JSON


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path. `problems`: slugs of what may go wrong beside what can always go wrong."""

    method: Literal["get", "post", "put", "delete"]
    path: str
    tag: str
    summary: str
    answers: Mapping[int, Answer]
    description: str = ""
    scopes: Sequence[Scope] = ()
    signed: bool = False
    path_parameters: Mapping[str, str] = field(default_factory=dict)
    query: type[BaseModel] | None = None
    headers: Sequence[Header] = ()
    body: type[BaseModel] | None = None
    body_types: Sequence[str] = (JSON,)
    body_required: bool = True
    problems: Sequence[str] = ()


RETRY_AFTER = Header("Retry-After", "seconds after which to repeat the request")
ETAG = Header("ETag", "the generation, quoted: what If-Match of an operator act must name")
NOW = Header("Notifier-Now", "business time when this was read; what `due_at` is to be compared with")
REPLAYED = Header("Idempotent-Replayed", "`true` when this answer was stored by an earlier request")
