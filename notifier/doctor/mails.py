"""The templates: does each make a mail, for a user of whom everything is known and for one of whom nothing is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from jinja2 import TemplateError

from notifier.doctor.finding import Finding, failed, ok, warning
from notifier.domain.message import Template, TemplateBroken, render


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
        asked: dict[str, None] = {}
        try:
            for user in (_known(asked), _unknown(asked)):
                data = {"user": user, "data": Anything("data", asked)}
                mail = render(template, data, to="ada@example.com", kind=kind)
        except TemplateBroken as error:
            yield _broken(kind, template, error)
        else:
            needs = [name for name in asked if not any(other.startswith(f"{name}.") for other in asked)]
            wants = f"; events must bring {', '.join(needs)}" if needs else ""
            yield ok(f"mail {kind}", f"renders from {mail.sender}{wants}")


def _broken(kind: str, template: Template, error: TemplateBroken) -> Finding:
    if error.__cause__ is None or isinstance(error.__cause__, TemplateError):
        todo = f"mend the folder {template.name} of the templates: every mail of this kind would fail"
        return failed(f"mail {kind}", str(error), todo)
    return warning(
        f"mail {kind}",
        f"{error}: it does something with its data that made-up data does not allow",
        "try it with a real event before anybody depends on it",
    )


def _known(asked: dict[str, None]) -> dict[str, Any]:
    user = {"id": "u_1", "name": "Ada", "locale": "en", "timezone": "Europe/London"}
    return {**user, "attributes": Anything("user.attributes", asked)}


def _unknown(asked: dict[str, None]) -> dict[str, Any]:
    user = {"id": "u_2", "name": None, "locale": None, "timezone": None}
    return {**user, "attributes": Anything("user.attributes", asked)}
