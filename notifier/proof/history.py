"""What was seen from outside, one JSON object a line: requests and answers, the provider's record, signals, faults.

Nothing in it is the service's own word but the answers themselves and, at the end, its opinions, which the checker
compares and never builds on. `mono` is seconds of the recorder's monotonic clock; `at` is the database's clock (UTC):
what has no time of its own there is set by the recorder's last comparison of the two clocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError


class _Line(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    mono: float
    at: datetime


class Run(_Line):
    """The first line: what was run, and what the rules need to know of it."""

    what: Literal["run"] = "run"
    seed: int
    faults: tuple[str, ...]
    claim_ttl_s: float
    poll_s: float
    provider_timeout_s: float
    has_keys: bool
    window_s: float
    followup_delay_s: float
    batch_max: int = 1  # mails in one call; more than one: a key is a batch's, and each mail in it has a line


Act = Literal["signup", "login", "other", "cancel", "retry", "resolve", "erase", "switch", "read"]


class Request(_Line):
    """Something asked of the service. `n` ties the answer to it; `resends` names the request it repeats word for word.

    `door`: events, batch, webhook, operate. For events `id` is the event's (or webhook's) id and `occurred_at` what
    the sender said; for operator acts `notification` is what it names, and `detail` the rest, e.g. the outcome of a
    resolve, a switch's name and method.
    """

    what: Literal["request"] = "request"
    n: int
    act: Act
    door: Literal["events", "batch", "webhook", "operate"]
    user: str | None = None
    id: str | None = None
    occurred_at: datetime | None = None
    email: str | None = None
    notification: str | None = None
    resends: int | None = None
    detail: dict[str, Any] = Field(default_factory=dict)


class Answer(_Line):
    """What came back, when it was read whole. `status` is None where the connection broke or nothing came in time."""

    what: Literal["answer"] = "answer"
    n: int
    status: int | None
    replayed: bool = False
    body: dict[str, Any] = Field(default_factory=dict)


class Attempt(_Line):
    """A call as the provider recorded it. `at` is its arrival there; `seq` the provider's own order.

    `verdict`: accepted, duplicate, replayed, dropped, rejected, failed, reset, hung, in_flight, body_mismatch, ….
    `answered`: whether the provider sent its answer; whether it arrived is another matter.
    """

    what: Literal["attempt"] = "attempt"
    seq: int
    key: str | None
    worker: str | None
    generation: int | None
    user: str | None
    kind: str | None
    to: tuple[str, ...]
    verdict: str
    status: int | None
    message_ids: tuple[str, ...] = ()
    answered: bool = True


class Mail(_Line):
    """A mail in the provider's inbox; `at` is its acceptance."""

    what: Literal["mail"] = "mail"
    seq: int
    id: str
    key: str | None
    user: str | None
    kind: str | None
    to: tuple[str, ...]


class Signal(_Line):
    """A process started, was sent a signal, or was found ended.

    `worker` is its process id as `claimed_by` and the provider's record have it, where known. `by`: the schedule, or
    the failpoint at which the process did it to itself.
    """

    what: Literal["signal"] = "signal"
    process: str
    role: Literal["api", "worker", "scheduler", "supervisor", "mock", "postgres", "redis"]
    pid: int
    signal: Literal["START", "TERM", "KILL", "STOP", "CONT", "INT", "QUIT", "END"]
    worker: str | None = None
    by: str = ""


class Fault(_Line):
    """A fault begins or ends. `hides_answers`: while it lasts a call may be taken and its answer lost on the way."""

    what: Literal["fault"] = "fault"
    n: int
    family: str
    name: str
    phase: Literal["begin", "end"]
    hides_answers: bool = False
    detail: dict[str, Any] = Field(default_factory=dict)


class KeysForgotten(_Line):
    """The provider forgot every key it knew: the one thing no sender can make good."""

    what: Literal["keys_forgotten"] = "keys_forgotten"


class Quiet(_Line):
    """The load and the faults were over, and everything had come to rest; or, `reached` false, it did not in time."""

    what: Literal["quiet"] = "quiet"
    reached: bool
    after_s: float


class Opinion(_Line):
    """What the service says of one notification once quiet: the document of GET /v1/notifications/{id}."""

    what: Literal["opinion"] = "opinion"
    id: str
    user: str
    kind: str
    state: str
    reason: str | None = None
    document: dict[str, Any] = Field(default_factory=dict)


class Invariants(_Line):
    """What the service counts of its own violations once quiet: the document of GET /v1/invariants."""

    what: Literal["invariants"] = "invariants"
    document: dict[str, Any]


Line = Run | Request | Answer | Attempt | Mail | Signal | Fault | KeysForgotten | Quiet | Opinion | Invariants
_LINE: TypeAdapter[Line] = TypeAdapter(Annotated[Line, Field(discriminator="what")])


class UnreadableHistory(ValueError):
    """A line is not what a history holds; the message names the line."""


def dump(line: Line) -> str:
    """One line, without its end."""
    return line.model_dump_json(exclude_defaults=False)


def load(lines: Iterable[str]) -> Iterator[Line]:
    """Read lines back. Raises UnreadableHistory that names the first bad one; empty lines are passed over."""
    for number, text in enumerate(lines, start=1):
        if not text.strip():
            continue
        try:
            yield _LINE.validate_json(text)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            raise UnreadableHistory(f"line {number}: {where or 'the line'}: {first['msg']}") from None
