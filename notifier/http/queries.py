"""What stands in the address and in headers: query parameters, ids in the path, If-Match."""

from __future__ import annotations

import re
from typing import Annotated, TypeVar
from uuid import UUID

from aiohttp import web
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from notifier.domain.errors import NotFound
from notifier.http.problems import Problem
from notifier.http.schemas import UserId, check_storable, validate

Model = TypeVar("Model", bound=BaseModel)

LIMIT_MAX = 500
LIMIT = 100
_GENERATION = re.compile(r"\d{1,10}")


def _whole(value: object) -> object:
    if isinstance(value, str):
        if not re.fullmatch(r"[0-9]{1,18}", value):
            raise ValueError("must be a whole number")
        return int(value)
    return value


Whole = Annotated[int, BeforeValidator(_whole)]
Limit = Annotated[
    Whole,
    Field(ge=1, le=LIMIT_MAX, description="how many at most"),
    WithJsonSchema({"type": "integer", "minimum": 1, "maximum": LIMIT_MAX, "default": LIMIT}),
]


class Query(BaseModel):
    """Query parameters; one that nobody knows is refused, so that a typing error does not list everything."""

    model_config = ConfigDict(extra="forbid")


class _UserPath(BaseModel):
    user_id: UserId


def parse_query(model: type[Model], request: web.Request) -> Model:
    """Check the query parameters; an empty one counts as absent. Raises a Problem that names what is wrong."""
    for name in request.query:
        if len(request.query.getall(name)) > 1:
            raise Problem("invalid", f"the query parameter {name} stands twice", [(f"/{name}", "stands twice")])
    given = {name: value for name, value in request.query.items() if value}
    check_storable(given)
    return validate(model, given)


def notification_id(request: web.Request) -> UUID:
    """Give the id in the path; what is no id names nothing, so it is not found."""
    text = request.match_info["id"]
    try:
        return UUID(text)
    except ValueError:
        raise NotFound(f"there is no notification {text[:64]!r}") from None


def user_id(request: web.Request) -> str:
    """Give the user's id in the path: any character but control characters, `/` where it is percent-encoded."""
    given = {"user_id": request.match_info["user_id"]}
    check_storable(given)
    return validate(_UserPath, given).user_id


def if_match(request: web.Request) -> int:
    """Give the generation the caller acts on; 428 without the header, 400 when it is no ETag of ours."""
    value = request.headers.get("If-Match", "").strip()
    if not value:
        raise Problem("precondition-required", "send If-Match with the ETag of the notification as you read it")
    bare = value[1:-1] if len(value) > 1 and value[0] == value[-1] == '"' else value
    if not _GENERATION.fullmatch(bare) or int(bare) >= 2**31:
        raise Problem("bad-request", "If-Match must be one ETag of a notification: its generation, quoted or bare")
    return int(bare)
