"""The operations around the service: health, metrics, this description, and the movable clock."""

from __future__ import annotations

from notifier.http.dev import ClockIn
from notifier.http.documents import AliveOut, ClockOut, OpenApiOut, ReadyOut
from notifier.http.openapi.operation import HTML, Answer, Header, Operation

TAG = "Around"

OPERATIONS = (
    Operation("get", "/healthz", TAG, "Whether the process lives", {200: Answer("It does.", AliveOut)}),
    Operation(
        "get",
        "/readyz",
        TAG,
        "Whether requests would be served",
        {
            200: Answer(
                "The database answers and has the schema, or a later one. Redis away is only remarked on.", ReadyOut
            ),
            503: Answer("The database is away, or its schema is too old.", ReadyOut),
        },
    ),
    Operation(
        "get",
        "/metrics",
        TAG,
        "What this process counts",
        {200: Answer("Prometheus text format.", media_type="text/plain")},
    ),
    Operation(
        "get",
        "/openapi.json",
        TAG,
        "This description",
        {200: Answer("OpenAPI 3.1.", OpenApiOut)},
    ),
    Operation("get", "/docs", TAG, "This description to read", {200: Answer("A page.", media_type=HTML)}),
    Operation(
        "get",
        "/problems/{slug}",
        TAG,
        "What a problem means and what to do",
        {200: Answer("A page.", media_type=HTML)},
        path_parameters={"slug": "the last part of a problem's `type`"},
        problems=("not-found",),
    ),
    Operation(
        "get", "/", TAG, "To the description", {302: Answer("To /docs.", headers=[Header("Location", "`/docs`")])}
    ),
    Operation(
        "post",
        "/dev/clock",
        TAG,
        "Move business time",
        {200: Answer("Moved for every process.", ClockOut)},
        "Only under `NOTIFIER_CLOCK=virtual`. Due times, back-off and switches move; claims, provider windows and "
        "signatures stay on real time.",
        scopes=["operate"],
        body=ClockIn,
        problems=("not-json", "too-large", "invalid", "busy"),
    ),
)
