"""What the doctor found: one sentence, how bad it is, and what to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["ok", "warning", "failed", "skipped"]


@dataclass(frozen=True, slots=True)
class Finding:
    """`about`: what was looked at. `todo`: what to do about it; empty where it is well."""

    verdict: Verdict
    about: str
    text: str
    todo: str = ""


def ok(about: str, text: str) -> Finding:
    """All is well."""
    return Finding("ok", about, text)


def warning(about: str, text: str, todo: str) -> Finding:
    """It works; somebody should know."""
    return Finding("warning", about, text, todo)


def failed(about: str, text: str, todo: str) -> Finding:
    """It does not work like this."""
    return Finding("failed", about, text, todo)


def skipped(about: str, text: str) -> Finding:
    """It could not be looked at because of something above."""
    return Finding("skipped", about, text)
