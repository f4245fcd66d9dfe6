"""The OpenAPI 3.1 document, made of the operations and of the models that validate."""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from notifier import version
from notifier.http.documents import ProblemOut
from notifier.http.openapi.operation import JSON, RETRY_AFTER, Header, Operation
from notifier.http.problems import MEDIA_TYPE, PROBLEMS

REF = "#/components/schemas/{model}"
_INFO = """Sends onboarding and follow-up mails, each exactly once as far as the receiver can tell copies apart.

Times are RFC 3339 with their offset. Errors are `application/problem+json` (RFC 9457). Strings hold no NUL and no
half of a surrogate pair. Unknown fields are refused where we ask, and may be added to what we answer."""


def document(operations: Collection[Operation]) -> dict[str, Any]:
    """Describe these operations."""
    schemas = _schemas(operations)
    queries = {operation.query.__name__: schemas.pop(operation.query.__name__) for operation in _asking(operations)}
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method] = _described(operation, queries)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "notifier",
            "version": version(),
            "description": _flowing(_INFO),
            "license": {"name": "MIT"},
        },
        "tags": [{"name": tag} for tag in dict.fromkeys(operation.tag for operation in operations)],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "key": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "An API key; what it may do are its scopes: events, read, operate.",
                },
                "signature": {
                    "type": "apiKey",
                    "in": "header",
                    "name": "webhook-signature",
                    "description": "Standard Webhooks: HMAC-SHA256 over id, timestamp and body.",
                },
            },
        },
    }


def _schemas(operations: Collection[Operation]) -> dict[str, Any]:
    models: dict[type[BaseModel], None] = {ProblemOut: None}
    for operation in operations:
        for model in (operation.query, operation.body, *(answer.model for answer in operation.answers.values())):
            if model is not None:
                models[model] = None
    _, found = models_json_schema([(model, "validation") for model in models], ref_template=REF)
    schemas: dict[str, Any] = found["$defs"]
    return schemas


def _asking(operations: Collection[Operation]) -> Iterator[Any]:
    return (operation for operation in operations if operation.query is not None)


def _described(operation: Operation, queries: dict[str, Any]) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": _operation_id(operation),
        "tags": [operation.tag],
        "summary": operation.summary,
        "responses": _responses(operation),
    }
    if operation.description:
        described["description"] = _flowing(operation.description)
    parameters = [*_in_path(operation), *_in_query(operation, queries), *map(_in_header, operation.headers)]
    if parameters:
        described["parameters"] = parameters
    if operation.body is not None:
        schema = _ref(operation.body)
        content = {
            media_type: {"schema": schema if media_type == JSON else _LINES} for media_type in operation.body_types
        }
        described["requestBody"] = {"required": operation.body_required, "content": content}
    if operation.signed:
        described["security"] = [{"signature": []}]
    elif operation.scopes:
        described["security"] = [{"key": [scope]} for scope in operation.scopes]
    return described


_LINES = {"type": "string", "description": "one event a line"}


def _flowing(text: str) -> str:
    """Each paragraph in one line: where the source breaks its lines means nothing."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


def _operation_id(operation: Operation) -> str:
    words = operation.path.strip("/").replace("{", "").replace("}", "").replace(".", "_").split("/")
    return "_".join([operation.method, *(word for word in words if word not in ("v1", ""))])


def _in_path(operation: Operation) -> Iterator[dict[str, Any]]:
    for name, description in operation.path_parameters.items():
        schema = {"type": "string"}
        yield {"name": name, "in": "path", "required": True, "description": description, "schema": schema}


def _in_query(operation: Operation, queries: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if operation.query is None:
        return
    for name, described in queries[operation.query.__name__]["properties"].items():
        schema = copy.deepcopy(described)
        schema.pop("title", None)
        if schema.get("default", False) is None:
            del schema["default"]
        if "anyOf" in schema:  # a parameter is absent, never null
            [given] = [item for item in schema.pop("anyOf") if item.get("type") != "null"]
            schema = {**schema, **given}
        parameter = {"name": name, "in": "query", "required": False, "schema": schema}
        if "description" in schema:
            parameter["description"] = schema.pop("description")
        yield parameter


def _in_header(header: Header) -> dict[str, Any]:
    return {"name": header.name, "in": "header", "required": header.required, **_about(header)}


def _about(header: Header) -> dict[str, Any]:
    return {"description": header.description, "schema": {"type": "string"}}


def _responses(operation: Operation) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    for status, answer in operation.answers.items():
        found: dict[str, Any] = {"description": answer.description}
        if answer.headers:
            found["headers"] = {header.name: _about(header) for header in answer.headers}
        if answer.model is not None:
            found["content"] = {answer.media_type: {"schema": _ref(answer.model)}}
        elif answer.media_type != JSON:
            found["content"] = {answer.media_type: {"schema": {"type": "string"}}}
        responses[str(status)] = found
    for status, slugs in _problems(operation).items():
        described: dict[str, Any] = {
            "description": " ".join(f"`{slug}`: {PROBLEMS[slug][2]}" for slug in slugs),
            "content": {MEDIA_TYPE: {"schema": _ref(ProblemOut)}},
        }
        if status == 503:
            described["headers"] = {RETRY_AFTER.name: _about(RETRY_AFTER)}
        responses.setdefault(str(status), described)
    return responses


def _problems(operation: Operation) -> dict[int, Sequence[str]]:
    slugs = list(operation.problems)
    if operation.scopes or operation.signed:
        slugs.append("unauthorized")
    if operation.scopes:
        slugs.append("forbidden")
    by_status: dict[int, list[str]] = {}
    for slug in slugs:
        by_status.setdefault(PROBLEMS[slug][0], []).append(slug)
    return {status: by_status[status] for status in sorted(by_status)}


def _ref(model: type[BaseModel]) -> dict[str, str]:
    return {"$ref": REF.format(model=model.__name__)}
