"""The operations that take events."""

from __future__ import annotations

from notifier.http.documents import BatchIn, BatchOut, EventOut, LoginOut
from notifier.http.openapi.operation import JSON, NDJSON, REPLAYED, Answer, Header, Operation
from notifier.http.schemas import EventIn, LoginIn

TAG = "Events"
_BODY_PROBLEMS = ("not-json", "too-large", "invalid", "idempotency-key-reused", "busy")

OPERATIONS = (
    Operation(
        "post",
        "/v1/events",
        TAG,
        "Say that something happened",
        {
            202: Answer("Decided and committed just now.", EventOut),
            200: Answer("A repeat: the stored answer, with `duplicate` true.", EventOut, [REPLAYED]),
        },
        """Decides, once and for ever, what the event means for its user, and answers after the commit.

**Order.** Events are ordered by `occurred_at`, not by arrival; without it the database's clock counts. A time more
than five minutes ahead is refused. A canceling event, such as a login, stops a notification when it occurred at or
after the event that decided it; a tie goes to the login. A signup that arrives after such a login creates its
notification already `canceled`. The first accepted event that asks for a kind decides it, and later ones change the
profile only. Each profile field is taken from the newest event that has it.

**Repeats.** The id makes a repeat harmless: the same content under the same id gets the stored answer and changes
nothing. The order of keys and white space do not count as content. Other content under a used id is refused. Ids
are kept without end at present, and for 30 days at the least. After 503 or a lost answer, repeat the request with
the same id.

**Lists.** `notifications`: what the event asks for; `existing` where an earlier event had decided it. `canceled`:
stopped by this event. `too_late`: the event concerns it, but it was claimed, is in doubt, or was sent.

A type nobody knows is recorded, updates the profile, and asks for nothing. The event is answered within 4 seconds;
the body holds at most 256 KiB.""",
        scopes=["events"],
        headers=[
            Header("Idempotency-Key", "the event's id, bare or quoted, where the body has none; both must be equal")
        ],
        body=EventIn,
        problems=("bad-request", *_BODY_PROBLEMS),
    ),
    Operation(
        "post",
        "/v1/events/batch",
        TAG,
        "Say that several things happened",
        {207: Answer("One result per item, in the order of the items.", BatchOut)},
        """Takes up to 1000 events, as one JSON document or one event a line, in at most 8 MiB. It is not atomic: an
item that is wrong or slow harms no other, and its result is the problem it would have got alone. Items of one user
are applied in their order. What 20 seconds do not reach gets 503; repeat those items. An empty batch gets an empty
list.""",
        scopes=["events"],
        body=BatchIn,
        body_types=[JSON, NDJSON],
        problems=("not-json", "too-large", "invalid", "busy"),
    ),
    Operation(
        "post",
        "/v1/webhooks/login",
        TAG,
        "Take a signed login",
        {200: Answer("What the login stopped, came too late for, and left alone.", LoginOut, [REPLAYED])},
        """A login in the form of Standard Webhooks, signed with any of the configured secrets. The three lists
together hold every notification the user has.

`canceled` is a promise: no provider accepts any of those, and no call for one starts after this answer. `too_late`:
the login concerns it, but it was claimed, is in doubt, or was sent; it stays owed unless a later event cancels it.
`untouched`: all others.

A repeat with the same `webhook-id` gets the same answer; a fresh timestamp and signature are no change. A user
nobody knows gets three empty lists, and the login is remembered for a signup that arrives later. A timestamp more
than five minutes off, by the database's clock, is refused.""",
        signed=True,
        headers=[
            Header("webhook-id", "1 to 255 visible ASCII characters; makes a repeat harmless", required=True),
            Header("webhook-timestamp", "whole seconds since 1970, when it was signed", required=True),
            Header("webhook-signature", "one or more of `v1,<base64>`, separated by spaces", required=True),
        ],
        body=LoginIn,
        problems=_BODY_PROBLEMS,
    ),
)
