"""The operations that read."""

from __future__ import annotations

from notifier.http.documents import InvariantsOut, NotificationOut, NotificationsOut, TimelineOut, UserOut
from notifier.http.notifications import NotificationsQuery
from notifier.http.openapi.operation import ETAG, NOW, Answer, Operation

TAG = "Reading"
NOTIFICATION_ID = {"id": "the notification's id"}
USER_ID = {"user_id": "the application's id of the person, percent-encoded (`/` as `%2F`)"}

OPERATIONS = (
    Operation(
        "get",
        "/v1/notifications",
        TAG,
        "List notifications",
        {200: Answer("One page.", NotificationsOut, [NOW])},
        """In the order of ids, which is roughly the order of decisions. All given parameters must fit; an empty one
counts as absent, an unknown one is refused.

Follow `next` until it is null: a page looks at a bounded number of rows, so a rare kind may give short or empty
pages before the end. Notifications move between pages' reads; one that changes its state meanwhile may be seen in
both lists or in neither, never twice in one.""",
        scopes=["read"],
        query=NotificationsQuery,
        problems=("invalid", "busy"),
    ),
    Operation(
        "get",
        "/v1/notifications/{id}",
        TAG,
        "Read a notification",
        {200: Answer("The notification.", NotificationOut, [ETAG, NOW])},
        "Its ETag is the generation and names what an operator act acts on. It is no cache key: a notification can "
        "end without a new generation.",
        scopes=["read"],
        path_parameters=NOTIFICATION_ID,
        problems=("not-found", "busy"),
    ),
    Operation(
        "get",
        "/v1/users/{user_id}",
        TAG,
        "Read a user",
        {200: Answer("Profile, latest events, notifications.", UserOut)},
        scopes=["read"],
        path_parameters=USER_ID,
        problems=("not-found", "invalid", "busy"),
    ),
    Operation(
        "get",
        "/v1/users/{user_id}/timeline",
        TAG,
        "See what happened to a user, in order",
        {200: Answer("The timeline.", TimelineOut)},
        """Events, decisions, cancels, claims, calls, ends and operator acts, ordered by the database's real clock
as it was read under the user's lock. Where business time had been moved, events carry it as `business_at`; their
`at` is then their arrival.

A claim is on record while it is held, when it ended the notification, and with each call it made; one that was lost
before its call leaves a `doubt` or nothing. An end that an operator undid is in the `detail` of that act. At most
the last 1000 events and acts are shown.""",
        scopes=["read"],
        path_parameters=USER_ID,
        problems=("not-found", "invalid", "busy"),
    ),
    Operation(
        "get",
        "/v1/invariants",
        TAG,
        "Count what must never be",
        {200: Answer("Each rule, whether it is counted here, and its violations.", InvariantsOut)},
        """Counts over the newest 10 000 rows of each table, in one snapshot a rule: nothing below that is seen, and
nothing is seen that our own database does not know. With ten million notifications all rules together take about
0.3 s, 1.7 s from a cold disk; `/metrics` counts them itself, at most once a minute.

What should have been moved on (`I4`, `I7`) is looked at twice, and counts when it still stands there: an answer with
such a suspicion takes 8 s longer. `A1` is counted by this process since it started. A rule that is not `checked` is
not counted: `I2`, where the provider gives a copy that it drops a new id.""",
        scopes=["read"],
        problems=("busy",),
    ),
)
