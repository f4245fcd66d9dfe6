"""The library that comes with the pages is the one its note names."""

from __future__ import annotations

import hashlib
from pathlib import Path

from providers.mock import render

VENDOR = Path(render.PAGES) / "vendor"


def test_the_library_is_what_its_note_says() -> None:
    note = (VENDOR / "VERSION").read_text()
    assert hashlib.sha256((VENDOR / "idiomorph.min.js").read_bytes()).hexdigest() in note
    assert (VENDOR / "idiomorph.LICENSE").stat().st_size > 0
