"""Rendering: a pinned template and frozen data → the same bytes every time."""

from __future__ import annotations

import base64
import functools
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jinja2
from jinja2 import StrictUndefined, TemplateError, Undefined
from jinja2.sandbox import SandboxedEnvironment

from providers.base import Message

_SUBJECT_MAX = 900  # characters; a header line longer than 998 bytes is not a legal mail (RFC 5322 §2.1.1)
_NOT_IN_TAGS = re.compile(r"[^A-Za-z0-9_-]")  # Resend refuses a mail whose tag holds anything else
_COMPILED_MAX = 256  # templates kept compiled per process

_SHOWN = (str, int, float, list, dict, tuple, type(None), Undefined)  # JSON; and Undefined, which says its own error


def _plain(value: object) -> object:
    """Let through what looks the same every time; others show an address in memory."""
    if not isinstance(value, _SHOWN):
        raise TemplateError(f"a {type(value).__name__} cannot be shown in a mail")
    return value


def _environment(*, autoescape: bool) -> SandboxedEnvironment:
    made = SandboxedEnvironment(
        undefined=StrictUndefined, autoescape=autoescape, keep_trailing_newline=True, finalize=_plain
    )
    del made.filters["random"], made.globals["lipsum"]  # a repeat has to send the same bytes
    return made


_TEXT = _environment(autoescape=False)
_HTML = _environment(autoescape=True)


class TemplateBroken(Exception):
    """The template cannot be rendered with this data; nobody's retry will mend it."""


@dataclass(frozen=True, slots=True)
class Template:
    """The sources of one mail, and who it comes from: all that its bytes depend on besides recipient and data."""

    name: str
    sender: str
    subject: str
    html: str
    text: str

    @property
    def hash(self) -> str:
        """What names this content: 64 bits of a SHA-256 over sender and sources, each with its length in front."""
        digest = hashlib.sha256()
        for source in (self.sender, self.subject, self.html, self.text):
            encoded = source.encode()
            digest.update(len(encoded).to_bytes(8, "big"))
            digest.update(encoded)
        # Written twice for every mail, so it is short; 64 bits tell apart all templates anybody will have.
        return base64.urlsafe_b64encode(digest.digest()[:8]).rstrip(b"=").decode()


def render(template: Template, data: Mapping[str, Any], *, to: str, kind: str, dated: float | None = None) -> Message:
    """Fill in a template. Raises TemplateBroken for an unknown variable, bad syntax, or an impossible subject."""
    try:
        subject = _fill(_TEXT, template.subject, data).strip()
        html = _fill(_HTML, template.html, data)
        text = _fill(_TEXT, template.text, data)
    except TemplateError as error:
        raise TemplateBroken(_tellable(template, error)) from error
    except Exception as error:
        raise TemplateBroken(f"{type(error).__name__} while rendering") from error
    subject = " ".join(subject.split())  # a name may hold any white space; a header may not hold a line break
    if not subject or len(subject) > _SUBJECT_MAX:
        raise TemplateBroken(f"the subject has {len(subject)} characters; 1 to {_SUBJECT_MAX} are allowed")
    return Message(
        sender=template.sender,
        to=to,
        subject=subject,
        html=html,
        text=text,
        headers={"Auto-Submitted": "auto-generated"},  # RFC 3834: no out-of-office answers
        tags={"kind": _NOT_IN_TAGS.sub("_", kind)},
        dated=dated,
    )


def _tellable(template: Template, error: TemplateError) -> str:
    """What may stand in a log: the library's words, unless they quote something that is not the template's own."""
    sources = f"{template.subject} {template.html} {template.text}"
    quoted = [word for word in re.findall(r"'([^']*)'", str(error)) if not word.endswith(" object")]
    if all(word in sources for word in quoted):
        return f"{template.name}: {type(error).__name__}: {error}"
    return f"{template.name}: {type(error).__name__}"


def _fill(environment: SandboxedEnvironment, source: str, data: Mapping[str, Any]) -> str:
    """What Template.render() does, with the names every template knows laid out once and not for each mail.

    The context is not told which of its names are global: that is for imports, and there is nothing to import from.
    """
    template, known = _compile(environment, source)
    context = environment.context_class(environment, {**known, **data}, template.name, template.blocks)
    return environment.concat(template.root_render_func(context))


@functools.lru_cache(maxsize=_COMPILED_MAX)
def _compile(environment: SandboxedEnvironment, source: str) -> tuple[jinja2.Template, dict[str, Any]]:
    template = environment.from_string(source)
    return template, dict(template.globals)
