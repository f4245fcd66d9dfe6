"""Where a process of a `run` can be called, as its note says."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from notifier.client.address import noted_url, reachable


@pytest.mark.parametrize(
    ("url", "called"),
    [
        ("http://0.0.0.0:8080", "http://127.0.0.1:8080"),
        ("http://[::]:8080/", "http://[::1]:8080"),
        ("http://10.0.0.7:8080", "http://10.0.0.7:8080"),
        (None, None),
    ],
)
def test_nobody_can_call_every_address_at_once(url: object, called: str | None) -> None:
    assert reachable(url) == called


@pytest.mark.parametrize("note", ["", "[]", "{}", '{"pid": "1", "url": "http://h"}', '{"pid": -1, "url": "http://h"}'])
def test_a_note_that_makes_no_sense_is_none(tmp_path: Path, note: str) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "api.json").write_text(note)
    assert noted_url(tmp_path, "api") is None
    (tmp_path / "run" / "api.json").write_text(f'{{"pid": {os.getpid()}, "url": "http://h:1/"}}')
    assert noted_url(tmp_path, "api") == "http://h:1"
