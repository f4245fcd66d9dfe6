"""A mail's source, for eyes."""

from __future__ import annotations

import re

from providers.mock.letter import header_text


def header_lines(source: bytes, *, encoded: bool) -> list[tuple[str, str]]:
    """The header lines of a mail, continued ones joined; encoded words are read only where a mail has them."""
    head = source.replace(b"\r\n", b"\n").partition(b"\n\n")[0].decode("utf-8", "replace")
    lines = re.sub(r"\n(?=[ \t])", "", head).split("\n")
    pairs = [(name, value.strip()) for name, _, value in (line.partition(":") for line in lines) if name]
    return [(name, header_text(value)) for name, value in pairs] if encoded else pairs
