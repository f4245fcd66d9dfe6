"""The API: does it answer, is it this build, and what may our key do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

from notifier import version
from notifier.client.api import Api, Refused, path
from notifier.doctor.finding import Finding, failed, ok, skipped, warning
from notifier.domain.errors import NotReady, SettingsError
from notifier.settings import Scope, Settings

NOBODY = "00000000-0000-0000-0000-000000000000"

# What shows a scope without doing anything: scopes are looked at first, and each of these fails at what comes next.
QUESTIONS: dict[Scope, tuple[str, str]] = {
    "events": ("POST", path("events")),
    "read": ("GET", path("notifications", NOBODY)),
    "operate": ("POST", path("notifications", NOBODY, "cancel")),
}


def check(settings: Settings, *, expected: bool) -> Iterator[Finding]:
    """Ask it. `expected`: an api has been heard of lately."""
    try:
        api = Api(settings)
    except SettingsError as error:
        yield warning("api", str(error), "`notifier notifications` and `notifier switch` need it")
        return
    try:
        answer = api.ask("GET", "/readyz", scope=None)
    except Refused as error:
        body = error.answer.body if isinstance(error.answer.body, dict) else {}
        yield failed("api", f"{api.where} is not ready: database {body.get('database', error)}", "look at its log")
        return
    except NotReady as error:
        todo = "events, and operators' commands, need one"
        yield failed("api", str(error), todo) if expected or settings.api_url else warning("api", str(error), todo)
        yield skipped("api key", "there is no api to try it on")
        return
    yield ok("api", f"answers at {api.where}; Redis as it sees it: {answer.body.get('redis')}")
    theirs = api.ask("GET", "/openapi.json", scope=None).body["info"]["version"]
    if theirs != version():
        yield warning(
            "build", f"the api is release {theirs}, this is {version()}", "deploy the same release everywhere"
        )
    yield _check_key(api)


def _check_key(api: Api) -> Finding:
    has: list[Scope] = []
    for scope in get_args(Scope):
        try:
            _has_scope(api, scope, has)
        except (Refused, NotReady, SettingsError) as error:
            if not (isinstance(error, Refused) and error.status == 403) and not isinstance(error, SettingsError):
                return failed("api key", str(error), "operators' commands need it; the service does not")
    if not has:
        return warning(
            "api key",
            "there is none here, or it may do nothing",
            "set NOTIFIER_API_KEY for `notifier notifications`, `switch` and `events`; the service needs it not",
        )
    lacks = [scope for scope in get_args(Scope) if scope not in has]
    more = f", not {' or '.join(lacks)}" if lacks else ""
    return ok("api key", f"may {', '.join(has)}{more}")


def _has_scope(api: Api, scope: Scope, has: list[Scope]) -> None:
    try:
        api.ask(*QUESTIONS[scope], scope=scope)
    except Refused as error:
        if error.status not in (400, 404, 428):
            raise
    has.append(scope)
