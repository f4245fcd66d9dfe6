"""The templates: does each make a mail, for a user of whom everything is known and for one of whom nothing is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from jinja2 import TemplateError

from notifier.doctor.finding import Finding, failed, ok, warning
from notifier.domain.message import Template, TemplateBroken, render

KNOWN = {"id": "u_1", "name": "Ada", "locale": "en", "timezone": "Europe/London"}
UNKNOWN = {"id": "u_2", "name": None, "locale": None, "timezone": None}


class Anything(dict[str, Any]):
    """What only real events know: whatever a template asks of it is there, and what that was is remembered."""

    def __init__(self, name: str, asked: dict[str, None]) -> None:
        super().__init__()
        self._name = name
        self._asked = asked

    def __missing__(self, key: str) -> Any:
        name = f"{self._name}.{key}"
        self._asked[name] = None
        return Anything(name, self._asked)

    def __str__(self) -> str:
        return "sample"


def check(templates: Mapping[str, Template]) -> Iterator[Finding]:
    """Render each kind's template with sample data."""
    for kind, template in templates.items():
        yield _try(kind, template)


def _try(kind: str, template: Template) -> Finding:
    asked: dict[str, None] = {}
    for whom, user in (("anybody", KNOWN), ("users without a name", UNKNOWN)):
        person = {**user, "attributes": Anything("user.attributes", asked)}
        try:
            render(template, {"user": person, "data": Anything("data", asked)}, to="ada@example.com", kind=kind)
        except TemplateBroken as error:
            return _broken(kind, whom, error)
    needs = [name for name in asked if not any(other.startswith(f"{name}.") for other in asked)]
    wants = f"; events must bring {', '.join(needs)}" if needs else ""
    return ok(f"mail {kind}", f"renders from {template.sender}{wants}")


def _broken(kind: str, whom: str, error: TemplateBroken) -> Finding:
    cause = error.__cause__
    text = f"{type(cause).__name__}: {cause}" if cause else str(error)
    if cause is None or isinstance(cause, TemplateError):
        return failed(f"mail {kind}", text, f"mend its template: a mail of this kind to {whom} would fail")
    return warning(
        f"mail {kind}",
        f"{text}: it does something with its data that made-up data does not allow",
        "try it with a real event before anybody depends on it",
    )
