"""Lines of a file become events of a batch: ids are made where there are none, and nothing else is touched."""

from __future__ import annotations

import io
import json

import pytest

from notifier.commands.feed import LINE_MAX, Line, _lines


def read(raw: bytes) -> list[Line]:
    return list(_lines(io.BytesIO(raw)))


def test_lines_keep_their_numbers_and_their_bytes() -> None:
    assert read(b'\xef\xbb\xbf{"id": "a"}\r\n\n  {"id":"b"}') == [Line(1, b'{"id": "a"}'), Line(3, b'{"id":"b"}')]


@pytest.mark.parametrize("raw", [b'{"type": "x"}', b'{"id": null, "type": "x"}'])
def test_an_event_without_an_id_gets_one(raw: bytes) -> None:
    first, second = read(raw + b"\n" + raw)
    assert first.id_made and second.id_made
    made = [json.loads(line.raw) for line in (first, second)]
    assert [document["type"] for document in made] == ["x", "x"]
    assert made[0]["id"] != made[1]["id"]


@pytest.mark.parametrize("raw", [b"nonsense", b"{}", b"[1]", b'"text"', b"[" * 100_000, b'{"id": 7}', b"\xff"])
def test_what_is_no_event_is_left_for_the_api_to_refuse(raw: bytes) -> None:
    assert read(raw) == [Line(1, raw)]


@pytest.mark.parametrize("end", [b"", b"\n", b"\n" + b'{"id":"next"}'])
def test_a_line_beyond_the_limit_is_not_kept_and_never_taken_for_a_short_one(end: bytes) -> None:
    sly = b'{"id": "a"}' + b" " * (3 * LINE_MAX) + b"x"
    first, *others = read(sly + end)
    assert LINE_MAX < len(first.raw) < LINE_MAX + 10
    assert [line.raw for line in others] == [b'{"id":"next"}'] * end.count(b"next")
    assert all(line.number == 2 for line in others)
    [edge] = read(b'{"id":"a"' + b" " * (LINE_MAX - 10) + b"}" + b"\n")
    assert len(edge.raw) == LINE_MAX
