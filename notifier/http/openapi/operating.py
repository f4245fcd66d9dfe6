"""The operations of an operator."""

from __future__ import annotations

from notifier.http.documents import AuditOut, LoginOut, NotificationOut, SwitchesOut, SwitchOut
from notifier.http.notifications import ActIn, ResolveIn
from notifier.http.openapi.operation import ETAG, NOW, Answer, Header, Operation
from notifier.http.openapi.reading import NOTIFICATION_ID, USER_ID
from notifier.http.switches import AuditQuery, SwitchIn

TAG = "Operating"
_IF_MATCH = Header("If-Match", "the ETag of the notification as you read it, quoted or bare", required=True)
_ACT_PROBLEMS = (
    "bad-request",
    "not-json",
    "not-found",
    "wrong-state",
    "moved",
    "too-large",
    "invalid",
    "precondition-required",
    "busy",
)
_SWITCH = {"name": "`pause`, `pause:<kind>`, `pause:provider:<name>` or `maintenance`"}
_COMMON = (
    "Every act raises the generation, is written to the audit together with what it changed, and is refused with 412 "
    "when the notification moved since it was read. Of two operators who read the same, one is obeyed."
)

OPERATIONS = (
    Operation(
        "delete",
        "/v1/users/{user_id}",
        TAG,
        "Erase a user",
        {200: Answer("What was stopped, what is too late to stop, and what had ended before.", LoginOut)},
        """Everything personal goes, and everything open is canceled with the reason `erased`. What a worker has
claimed keeps its address until that claim ends, as `sent`, `canceled` or, when it may have been taken, `uncertain`.

The decisions stay, without their data, and so does a tombstone: an event of this user is still answered 202, stores
nothing of the profile and asks for no mail. Erasing again is harmless.""",
        scopes=["operate"],
        path_parameters=USER_ID,
        problems=("not-found", "invalid", "busy"),
    ),
    Operation(
        "post",
        "/v1/notifications/{id}/cancel",
        TAG,
        "Stop a notification",
        {200: Answer("It is canceled.", NotificationOut, [ETAG, NOW])},
        f"From `scheduled`, or `pending` without doubt. What is claimed or may have been accepted cannot be stopped: "
        f"409 names the state. {_COMMON}",
        scopes=["operate"],
        path_parameters=NOTIFICATION_ID,
        headers=[_IF_MATCH],
        body=ActIn,
        body_required=False,
        problems=_ACT_PROBLEMS,
    ),
    Operation(
        "post",
        "/v1/notifications/{id}/retry",
        TAG,
        "Plan a notification anew",
        {200: Answer("It is pending, or scheduled when it is not due yet.", NotificationOut, [ETAG, NOW])},
        f"""From `skipped`, `failed`, or `canceled` by an operator. It keeps its provider key, gets a fresh
allowance of attempts, and takes recipient, locale and template anew. Before its date it is scheduled again.

409 when it could not be sent after all, with the `reason`: an event that cancels it stands (`login`), the user's
present address is suppressed (`suppressed`), or there is none although it is due (`no_recipient`). What an event
canceled stays canceled. {_COMMON}""",
        scopes=["operate"],
        path_parameters=NOTIFICATION_ID,
        headers=[_IF_MATCH],
        body=ActIn,
        body_required=False,
        problems=_ACT_PROBLEMS,
    ),
    Operation(
        "post",
        "/v1/notifications/{id}/resolve",
        TAG,
        "Say what became of an uncertain notification",
        {200: Answer("Where it stands now.", NotificationOut, [ETAG, NOW])},
        f"""From `uncertain` only. `sent` closes it on the operator's word. `not_sent` plans it anew **under a new
provider key**, so a wrong answer means a second mail; where a canceling event, a suppression or a missing address
stands against it, it ends `canceled` or `skipped` instead, also with 200. {_COMMON}""",
        scopes=["operate"],
        path_parameters=NOTIFICATION_ID,
        headers=[_IF_MATCH],
        body=ResolveIn,
        problems=_ACT_PROBLEMS,
    ),
    Operation(
        "get",
        "/v1/switches",
        TAG,
        "List the switches that are on",
        {200: Answer("By name.", SwitchesOut, [NOW])},
        scopes=["read", "operate"],
        problems=("busy",),
    ),
    Operation(
        "get",
        "/v1/switches/{name}",
        TAG,
        "Read a switch",
        {200: Answer("It is on.", SwitchOut, [NOW])},
        "404 when it is off; one that has run out is off.",
        scopes=["read", "operate"],
        path_parameters=_SWITCH,
        problems=("not-found", "invalid", "busy"),
    ),
    Operation(
        "put",
        "/v1/switches/{name}",
        TAG,
        "Turn a switch on",
        {200: Answer("It is on until `expires_at`.", SwitchOut)},
        """`pause` and its narrower forms let no worker claim anything they cover, from one second after this
answer; what is claimed ends normally. `maintenance` lets no event in: they get 503 and are to be repeated. A switch
that is on is replaced.

A kind or provider that there is not is refused: a typing error would hold nothing back.""",
        scopes=["operate"],
        path_parameters=_SWITCH,
        body=SwitchIn,
        problems=("not-json", "too-large", "invalid", "busy"),
    ),
    Operation(
        "delete",
        "/v1/switches/{name}",
        TAG,
        "Turn a switch off",
        {204: Answer("It is off, and the workers know.")},
        scopes=["operate"],
        path_parameters=_SWITCH,
        problems=("not-found", "invalid", "busy"),
    ),
    Operation(
        "get",
        "/v1/audit",
        TAG,
        "See what operators did",
        {200: Answer("One page, the newest first.", AuditOut)},
        scopes=["read", "operate"],
        query=AuditQuery,
        problems=("invalid", "busy"),
    ),
)
