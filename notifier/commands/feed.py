"""Many events from a file or a pipe: line by line into batches, and again with the same ids where the API says so."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import BinaryIO, TypeVar

from rich.console import Console

from notifier.client.api import Api, Refused, Unanswered, path
from notifier.ids import new_id

EVENTS_MAX = 1_000  # of one batch, as the API takes it
BYTES_MAX = 7 * 1024 * 1024  # below the API's 8 MiB
LINE_MAX = 256 * 1024  # an event's limit; longer lines are not even sent
TRIES = 4
WAIT_MAX_S = 10.0
REPEAT = (409, 503)  # not stored, or not known to be: the same id again is harmless
BOM = b"\xef\xbb\xbf"
NDJSON = {"Content-Type": "application/x-ndjson"}

T = TypeVar("T")
Result = dict[str, object]
Waiting = Callable[[str, float], None]


@dataclass(frozen=True, slots=True)
class Line:
    """One event as it stands in the file; `number` counts from 1."""

    number: int
    raw: bytes
    id_made: bool = False


@dataclass(slots=True)
class Tally:
    """What became of everything that was sent so far."""

    taken: int = 0
    repeated: int = 0
    refused: int = 0
    ids_made: int = 0
    lists: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("created", "canceled", "too_late"), 0))

    @property
    def events(self) -> int:
        """How many were looked at."""
        return self.taken + self.repeated + self.refused

    def add(self, line: Line, result: Result) -> None:
        """Count one result."""
        self.ids_made += line.id_made
        if result["status"] == 200:
            self.repeated += 1
        elif result["status"] == 202:
            self.taken += 1
            created = [item for item in _list(result, "notifications") if not item.get("existing")]
            self.lists["created"] += len(created)
            for name in ("canceled", "too_late"):
                self.lists[name] += len(_list(result, name))
        else:
            self.refused += 1


def _list(result: Result, name: str) -> list[dict[str, object]]:
    found = result.get(name, [])
    return found if isinstance(found, list) else []


def new_event_id() -> str:
    """Make an id for an event that has none."""
    return f"cli_{new_id().hex}"


def send_all(api: Api, stream: BinaryIO, waiting: Waiting) -> Iterator[tuple[Line, Result]]:
    """Send every line; gives each with the API's result, in the file's order. Raises what the API raises for all."""
    batch: list[Line] = []
    size = 0
    for line in _lines(stream):
        if batch and (len(batch) == EVENTS_MAX or size + len(line.raw) > BYTES_MAX):
            yield from _send(api, batch, waiting)
            batch, size = [], 0
        batch.append(line)
        size += len(line.raw) + 1
    if batch:
        yield from _send(api, batch, waiting)


def _lines(stream: BinaryIO) -> Iterator[Line]:
    number = 0
    while raw := stream.readline(LINE_MAX + 2):
        number += 1
        if len(raw) > LINE_MAX + 1:
            while not raw.endswith(b"\n") and (rest := stream.readline(LINE_MAX)):
                raw = raw[: LINE_MAX + 1] + rest[-1:]  # the rest is skipped: it is refused whatever it is
            yield Line(number, raw)
        elif text := raw.removeprefix(BOM if number == 1 else b"").strip():
            yield _with_id(number, text)


def _with_id(number: int, raw: bytes) -> Line:
    """Give an event without an id one; what is no event stays as it is, for the API to say so."""
    try:
        document = json.loads(raw)
    except (ValueError, RecursionError):
        return Line(number, raw)
    if not isinstance(document, dict) or not document or document.get("id") is not None:
        return Line(number, raw)
    if "id" in document:
        raw = json.dumps({name: value for name, value in document.items() if name != "id"}).encode()
    return Line(number, b'{"id": "%s", %s' % (new_event_id().encode(), raw[1:]), id_made=True)


def _send(api: Api, batch: list[Line], waiting: Waiting) -> Iterator[tuple[Line, Result]]:
    """One batch, and what of it has to be repeated."""
    results: dict[int, Result] = {}
    left = [line for line in batch if len(line.raw) <= LINE_MAX]
    for line in batch:
        if len(line.raw) > LINE_MAX:
            results[line.number] = {"status": 413, "detail": f"an event is at most {LINE_MAX // 1024} KiB"}
    for attempt in range(TRIES):
        if not left:
            break
        told = _ask(api, left, waiting)
        results |= {line.number: result for line, result in zip(left, told, strict=True)}
        left = [line for line in left if results[line.number]["status"] in REPEAT]
        if left and attempt + 1 < TRIES:
            waiting(str(results[left[0].number].get("detail", "")), 1.0)
    for line in batch:
        yield line, results[line.number]


def _ask(api: Api, lines: list[Line], waiting: Waiting) -> list[Result]:
    body = b"\n".join(line.raw for line in lines)

    def send() -> list[Result]:
        answer = api.ask("POST", path("events", "batch"), scope="events", body=body, headers=NDJSON)
        results: list[Result] = answer.body["results"]
        return results

    return repeated(send, waiting)


def repeated(send: Callable[[], T], waiting: Waiting) -> T:
    """Send, and again a few times while the API asks for it or broke off: ids make that harmless."""
    for _ in range(TRIES - 1):
        try:
            return send()
        except Unanswered as error:
            waiting(str(error), 1.0)
        except Refused as error:
            if error.status not in REPEAT:
                raise
            waiting(str(error), _wait_s(error))
    return send()


def _wait_s(error: Refused) -> float:
    try:
        return min(float(error.answer.headers.get("retry-after", "1")), WAIT_MAX_S)
    except ValueError:
        return 1.0


def wait(told: Console, text: str, seconds: float) -> None:
    """Say why nothing happens for a moment, and let it pass."""
    told.print(f"{text}; trying again", style="yellow")
    time.sleep(seconds)
