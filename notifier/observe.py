"""What can be seen from outside: metric names, log format, and the fields that tie a line to a notification.

No user id, address or key is ever a label or a log field.
"""

from __future__ import annotations

import contextlib
import io
import logging
import sys
import traceback
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import accumulate
from typing import Any, TextIO, cast

import structlog
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector

from notifier.domain.errors import NotifierError

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
disable_created_metrics()  # type: ignore[no-untyped-call]  # untyped there; a second series beside each counter that nobody reads
REGISTRY = CollectorRegistry()
ProcessCollector(registry=REGISTRY)

REASONS_MAX = 50
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1_800, 7_200, 43_200, 259_200)


def _counter(name: str, text: str, *labels: str) -> Counter:
    return Counter(name, text, labels, registry=REGISTRY)


class Spread(Collector):
    """A histogram that takes the values of a whole batch at once; value by value they cost more than their mails."""

    def __init__(self, name: str, text: str) -> None:
        self._name, self._text = name, text
        self._counts = [0] * (len(SECONDS) + 1)
        self._sum = 0.0

    def observe(self, seconds: float) -> None:
        """Add one value."""
        self.observe_all((seconds,))

    def observe_all(self, seconds: Iterable[float]) -> None:
        """Add values; one below zero, as two clocks may make it, counts as zero."""
        for value in seconds:
            self._counts[bisect_left(SECONDS, value)] += 1
            self._sum += max(0.0, value)

    def collect(self) -> Iterator[HistogramMetricFamily]:
        """Give what the registry shows."""
        bounds = [*(str(float(bound)) for bound in SECONDS), "+Inf"]
        buckets = list(zip(bounds, accumulate(self._counts), strict=True))
        yield HistogramMetricFamily(self._name, self._text, buckets=buckets, sum_value=self._sum)


def _spread(name: str, text: str) -> Spread:
    made = Spread(name, text)
    REGISTRY.register(made)
    return made


def _histogram(name: str, text: str, *labels: str) -> Histogram:
    return Histogram(name, text, labels, buckets=SECONDS, registry=REGISTRY)


EVENTS = _counter("notifier_events_total", "Events by type and what became of them", "type", "outcome")
NOTIFICATIONS = Gauge("notifier_notifications", "Open notifications, exact", ["state"], registry=None)
SETTLED = _counter("notifier_settled_total", "Notifications closed by this process", "state", "reason")
OLDEST_PENDING = Gauge("notifier_oldest_pending_seconds", "How long the oldest is due", registry=None)
ATTEMPTS = _counter("notifier_attempts_total", "Finished calls of the provider", "provider", "outcome")
PROVIDER_SECONDS = _spread("notifier_provider_seconds", "One call of the provider")
EVENT_TO_SENT = _spread("notifier_event_to_sent_seconds", "From the decision to sent, real time")
DUE_LATENESS = _spread("notifier_due_lateness_seconds", "From due_at to the claim, business time")
STALE_SETTLES = _counter("notifier_stale_settles_total", "Settles refused because the claim had been lost")
LOST_RACES = _counter("notifier_lost_races_total", "Moves that found somebody had moved first", "move")
CANCEL_REPEATS = _counter("notifier_cancel_repeats_total", "Cancels repeated because a row came back in between")
ANSWERS_LEFT_STANDING = _counter(
    "notifier_answers_left_standing_total", "Notifications an answer left standing although its event could stop them"
)
CLAIMS_RECOVERED = _counter("notifier_claims_recovered_total", "Claims taken over after they ran out")
RETENTION_REMOVED = _counter("notifier_retention_removed_total", "Rows deleted, or emptied of their detail", "what")
RETENTION_SECONDS = _histogram("notifier_retention_seconds", "One statement of the retention")
RETENTION_LATE = Gauge(
    "notifier_retention_late_seconds", "How long a part of a table has been waiting for it", ["table"], registry=None
)
INVARIANT_VIOLATIONS = Gauge("notifier_invariant_violations", "Live violations", ["rule"], registry=None)
BREAKER_OPEN = Gauge("notifier_breaker_open", "Whether this process holds its calls back", registry=None)
IN_HAND = Gauge("notifier_in_hand", "Claims this process holds", registry=None)
OF_THE_API = (NOTIFICATIONS, OLDEST_PENDING, INVARIANT_VIOLATIONS)
OF_A_WORKER = (BREAKER_OPEN, IN_HAND)
OF_A_SCHEDULER = (RETENTION_LATE,)
COORDINATION_ACQUIRE = _counter("redis_coordination_acquire_total", "Answers of Redis", "type", "outcome")
COORDINATION_LATENCY = _histogram("redis_coordination_latency_seconds", "Round trips to Redis", "operation")
COORDINATION_FALLBACK = _counter("redis_coordination_fallback_total", "Times we went on without Redis", "reason")


def expose(gauges: Iterable[Gauge]) -> None:
    """Show gauges that only this kind of process knows; a zero from the others would be a lie."""
    for gauge in gauges:
        if gauge not in _exposed:
            _exposed.add(gauge)
            REGISTRY.register(gauge)


_exposed: set[Gauge] = set()


@cache
def attempts(provider: str, outcome: str) -> Counter:
    """Give the counter of one sort of calls; to look it up costs more than to count."""
    return ATTEMPTS.labels(provider, outcome)


def count_settled(state: str, reason: str | None, number: int = 1) -> None:
    """Count notifications closed. Reasons that providers invent are bounded: beyond 50 they are `other`."""
    label = reason or ""
    if label not in _reasons and len(_reasons) >= REASONS_MAX:
        label = "other"
    _reasons.add(label)
    SETTLED.labels(state, label).inc(number)


_reasons: set[str] = set()


@cache
def event_counter(type_: str, outcome: str) -> Counter:
    """Give the counter of one kind of event; the library takes longer to find it than to count."""
    return EVENTS.labels(type_, outcome)


def answers_left_standing() -> int:
    """What ANSWERS_LEFT_STANDING has come to in this process."""
    return int(REGISTRY.get_sample_value("notifier_answers_left_standing_total") or 0)


def exposition() -> bytes:
    """Everything this process counts, in the text format of Prometheus."""
    return generate_latest(REGISTRY)


def _traceback(exc_info: Any) -> str:
    """The frames and the class of an error; its words only where they are ours, since others quote what they met."""
    kind, error, frames = exc_info
    text = "".join(traceback.format_tb(frames)) + kind.__name__
    if isinstance(error, (NotifierError, AssertionError)):
        return f"{text}: {error}"
    code = getattr(error, "sqlstate", None)
    return f"{text} {code}" if code else text


_EXCEPTIONS = structlog.processors.ExceptionRenderer(_traceback)


def configure_logging(*, debug: bool = False) -> None:
    """Lines on standard error, for this process and the libraries in it: JSON, or words where a person reads along."""
    sink = cast(TextIO, _Lasting(sys.stderr))
    is_read = sys.stderr.isatty()
    renderer = structlog.dev.ConsoleRenderer(pad_event_to=20) if is_read else structlog.processors.JSONRenderer()
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[*shared, _EXCEPTIONS, renderer],
        logger_factory=structlog.PrintLoggerFactory(sink),
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG if debug else logging.INFO),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sink)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                _EXCEPTIONS,
                renderer,
            ],
        )
    )
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    quiet_libraries()


class _Lasting(io.TextIOBase):
    """A stream that outlives its reader: a closed terminal or pipe must never stop what is being done."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write, or lose it."""
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush, or not."""
        with contextlib.suppress(OSError, ValueError):
            self._stream.flush()


def quiet_libraries() -> None:
    """Keep out of the log what says nothing of us."""
    logging.getLogger("apscheduler").setLevel(logging.ERROR)  # it warns of every tick that meets a running one
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)  # a traceback for every malformed request


def log() -> Any:
    """Give the logger; fields are `event` (what happened), notification, generation, error: never who it was for."""
    return structlog.get_logger()
