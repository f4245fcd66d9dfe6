"""A mail that a peer's job renders: the service's own template text, filled in by Jinja2."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import jinja2


class Letter:
    """A template, compiled once. `template`: sender, subject, html and text."""

    def __init__(self, template: Mapping[str, str]) -> None:
        plain = jinja2.Environment(undefined=jinja2.StrictUndefined, autoescape=False)  # noqa: S701 - text, no page
        escaped = jinja2.Environment(undefined=jinja2.StrictUndefined, autoescape=True)
        self._sender = template["sender"]
        self._subject = plain.from_string(template["subject"])
        self._text = plain.from_string(template["text"])
        self._html = escaped.from_string(template["html"])

    def body(self, to: str, data: Mapping[str, Any]) -> bytes:
        """Render it for one; gives the bytes of the call."""
        mail = {
            "from": self._sender,
            "to": [to],
            "subject": self._subject.render(data).strip(),
            "html": self._html.render(data),
            "text": self._text.render(data),
        }
        return json.dumps(mail).encode()
