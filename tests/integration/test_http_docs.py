"""The description of the API: complete, valid, and true to what is answered."""

from __future__ import annotations

import re
from typing import Any

from openapi_spec_validator import OpenAPIV31SpecValidator

from notifier.http.app import served
from notifier.http.openapi import OPERATIONS, describe
from notifier.http.problems import PROBLEMS
from tests.support.api import Api, running_api

DOCUMENT = describe({(operation.method, operation.path) for operation in OPERATIONS})


async def test_every_route_is_described_and_nothing_else(database_url: str) -> None:
    for clock in ("real", "virtual"):
        async with running_api(database_url, clock=clock) as api:
            document = (await api.get("/openapi.json", key=None)).body
            described = {(method, path) for path, item in document["paths"].items() for method in item}
            assert described == served(api.app)
    assert {(operation.method, operation.path) for operation in OPERATIONS} == described


def test_the_description_is_valid_openapi() -> None:
    assert DOCUMENT["openapi"] == "3.1.0"
    OpenAPIV31SpecValidator(DOCUMENT).validate()
    ids = [operation["operationId"] for item in DOCUMENT["paths"].values() for operation in item.values()]
    assert len(ids) == len(set(ids))


def test_the_description_names_headers_scopes_and_problems() -> None:
    paths = DOCUMENT["paths"]
    cancel = paths["/v1/notifications/{id}/cancel"]["post"]
    assert headers_of(cancel) == {"If-Match": True}
    assert cancel["security"] == [{"key": ["operate"]}]
    assert {"200", "401", "403", "404", "409", "412", "428", "503"} <= set(cancel["responses"])
    assert set(cancel["responses"]["200"]["headers"]) == {"ETag", "Notifier-Now"}
    assert headers_of(paths["/v1/events"]["post"]) == {"Idempotency-Key": False}
    login = paths["/v1/webhooks/login"]["post"]
    assert headers_of(login) == {"webhook-id": True, "webhook-timestamp": True, "webhook-signature": True}
    assert login["security"] == [{"signature": []}]
    listing = paths["/v1/notifications"]["get"]["parameters"]
    assert [parameter["name"] for parameter in listing] == ["user_id", "state", "kind", "after", "limit"]


def headers_of(operation: dict[str, Any]) -> dict[str, bool]:
    return {item["name"]: item["required"] for item in operation["parameters"] if item["in"] == "header"}


async def test_the_page_shows_the_document_and_loads_nothing(api: Api) -> None:
    told = await api.get("/docs", key=None)
    page = told.body.decode()
    document = (await api.get("/openapi.json", key=None)).body
    assert told.status == 200
    for path in document["paths"]:
        assert f"<code>{path}</code>" in page
    for name in document["components"]["schemas"]:
        assert f'id="schema-{name}"' in page
    anchors = set(re.findall(r'href="#([^"]+)"', page))
    assert anchors <= set(re.findall(r'id="([^"]+)"', page))
    assert set(re.findall(r'(?:src|href)="([^"#][^"]*)"', page)) == {"/openapi.json"}
    assert "<script" not in page
    assert told.headers["Content-Security-Policy"].startswith("default-src 'none'; style-src 'sha256-")


async def test_the_bare_address_leads_to_the_page(api: Api) -> None:
    told = await api.get("/", key=None, allow_redirects=False)
    assert (told.status, told.headers["Location"]) == (302, "/docs")


async def test_every_problem_has_its_page(api: Api) -> None:
    for slug, (_, title, _) in PROBLEMS.items():
        told = await api.get(f"/problems/{slug}", key=None)
        assert told.status == 200
        assert title in told.body.decode()
    assert (await api.get("/problems/none", key=None)).status == 404
