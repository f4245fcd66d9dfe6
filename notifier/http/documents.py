"""What goes out, as models: the description is made from them, and a test holds them against real answers."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from notifier.domain.notification import State
from notifier.domain.timeline import What
from notifier.http.schemas import EventIn


class _Out(BaseModel):
    model_config = ConfigDict(extra="forbid")


class FieldError(_Out):
    """One thing that is wrong."""

    pointer: str = Field(description="JSON pointer into the body, or `/name` of a query parameter; empty: all of it")
    detail: str


class ProblemOut(BaseModel):
    """RFC 9457. `type` is a page of this service that says what to do; some problems carry more members."""

    type: str = Field(examples=["/problems/invalid"])
    title: str
    status: int
    detail: str
    errors: list[FieldError] = Field(default_factory=list)
    state: State | None = Field(None, description="with wrong-state: where the notification stands")
    reason: str | None = Field(None, description="with wrong-state: what stands against the act")


class TakenEvent(_Out):
    """Which event was answered."""

    id: str
    type: str
    duplicate: bool = Field(description="true: this id was accepted before, and this is what was answered then")


class CreatedNotification(_Out):
    """A notification the event asks for."""

    id: UUID
    kind: str
    state: State
    due_at: datetime
    existing: Literal[True] | None = Field(
        None, description="there when an earlier event had decided it; then `state` is the present one"
    )


class CanceledNotification(_Out):
    """Stopped by this event. No provider ever accepts it, and no call for it starts after this answer."""

    id: UUID
    kind: str
    due_at: datetime


class LateNotification(_Out):
    """The event concerns it but came too late: it was claimed, is in doubt, or was sent. It stays owed."""

    id: UUID
    kind: str
    state: State
    since: datetime | None = Field(description="sent, in doubt or claimed since then; real time")


class UntouchedNotification(_Out):
    """Everything else the user has: ended before, decided by a later event, or not concerned."""

    id: UUID
    kind: str
    state: State


class EventOut(_Out):
    """What one event did."""

    event: TakenEvent
    notifications: list[CreatedNotification]
    canceled: list[CanceledNotification]
    too_late: list[LateNotification]


class BatchIn(BaseModel):
    """Up to 1000 events, each by itself."""

    model_config = ConfigDict(extra="forbid")
    events: list[EventIn] = Field(max_length=1_000)


class BatchOut(_Out):
    """One result per item, in order: `status` and what the single answer, or the problem, would say."""

    results: list[dict[str, Any]]


class LoginOut(_Out):
    """The three lists together hold every notification of the user."""

    user_id: str
    canceled: list[CanceledNotification]
    too_late: list[LateNotification]
    untouched: list[UntouchedNotification]


class AttemptOut(_Out):
    """One finished call of the provider. Times are real."""

    generation: int
    worker: str
    provider: str = Field(description="provider and account")
    resend_number: int = Field(description="0, or the number of the new key an operator asked for")
    outcome: Literal["accepted", "duplicate", "rejected", "retry_later", "ambiguous", "body_mismatch", "config_error"]
    reason: str | None
    provider_message_id: str | None
    claimed_at: datetime
    started_at: datetime
    finished_at: datetime


class NotificationOut(_Out):
    """One notification. decided_at, due_at and next_attempt_at are business time, all others real time."""

    id: UUID
    user_id: str
    kind: str
    state: State
    reason: str | None = Field(description="why it ended other than sent; while open, why the last attempt led nowhere")
    decided_by: str | None = Field(description="event, operator act, rule or worker that ended it; null while open")
    created_by: str = Field(description="the event that decided it: source/id")
    generation: int = Field(description="the ETag; raised by every claim and every operator act, and never restarts")
    decided_at: datetime = Field(description="occurred_at of the deciding event")
    due_at: datetime
    next_attempt_at: datetime | None = Field(description="while pending or sending")
    claimed_by: str | None = Field(description="the process that has it, or had it at the end")
    claimed_at: datetime | None
    claim_expires_at: datetime | None = Field(description="while sending: when another worker may take it over")
    doubt_since: datetime | None = Field(description="earliest time at which a provider may have accepted it unknown")
    safe_retry_until: datetime | None = Field(
        description="while in doubt: a repeat under the same key is harmless until then; null: there is no safe repeat"
    )
    provider: str | None = Field(description="account of the present, doubtful or last attempt")
    provider_key: str = Field(description="idempotency key the provider is or will be given: its own, or its batch's")
    resend_number: int
    provider_message_id: str | None
    evidence: str | None = Field(description="how it is known to be sent: accepted, duplicate, late_settle, operator")
    sent_at: datetime | None = Field(description="when it became known to be sent")
    settled_at: datetime | None = Field(description="when it ended, in whatever way")
    trimmed_at: datetime | None = Field(
        description="when its attempts and the detail of its end were removed, long after it; it cannot be retried"
    )
    attempt_count: int = Field(description="counted attempts since it was planned or retried")
    attempts: list[AttemptOut] = Field(description="every recorded call, the oldest first; 1000 at most")


class NotificationsOut(_Out):
    """One page in id order. A page may be short, even empty, and still have a `next`."""

    notifications: list[NotificationOut]
    next: UUID | None = Field(description="give it as `after`; null at the end")


class SeenOut(_Out):
    """The latest event of one type."""

    at: datetime
    event: str = Field(description="source/id")


class UserOut(_Out):
    """What is known of a user."""

    id: str
    email: str | None
    name: str | None
    timezone: str | None
    locale: str | None
    attributes: dict[str, Any]
    created_at: datetime
    erased_at: datetime | None = Field(description="set on the tombstone of an erased user")
    last_seen: dict[str, SeenOut] = Field(description="by event type, for types that mean something here")
    notifications: list[NotificationOut]


class TimelineEntry(BaseModel):
    """One thing that happened; further members depend on `what`."""

    at: datetime = Field(description="the database's real clock")
    what: What
    notification: str | None = None
    kind: str | None = None
    business_at: datetime | None = Field(None, description="business time, where it had been moved")


class TimelineOut(_Out):
    """The oldest first; of one instant, causes before effects. What was removed after its time is not in it."""

    timeline: list[TimelineEntry]


class SwitchOut(_Out):
    """A switch that is on. Both times are business time."""

    name: str
    owner: str
    reason: str
    set_at: datetime
    expires_at: datetime


class SwitchesOut(_Out):
    """All that are on."""

    switches: list[SwitchOut]


class AuditEntry(_Out):
    """One operator act."""

    id: int
    at: datetime
    actor: str = Field(description="fingerprint of the API key")
    act: str
    target: str = Field(description="a notification's id or a switch's name")
    user_id: str | None
    detail: dict[str, Any]


class AuditOut(_Out):
    """The newest first."""

    audit: list[AuditEntry]
    next: int | None = Field(description="give it as `after`; null at the end")


class InvariantOut(_Out):
    """One rule. `violations` is null where it is not counted here."""

    rule: str
    checked: bool
    violations: int | None


class InvariantsOut(_Out):
    """Counts over the newest rows, by rule; `violations` is their sum. `A1` is counted since this process started."""

    invariants: dict[str, InvariantOut]
    violations: int


class AliveOut(_Out):
    """The process lives."""

    status: Literal["alive"]


class ReadyOut(_Out):
    """Whether requests would be served."""

    status: Literal["ready", "unavailable"]
    database: str
    redis: Literal["ok", "degraded", "off"]


class ClockOut(_Out):
    """Business time after the move."""

    now: datetime


class OpenApiOut(BaseModel):
    """A description of this API."""

    openapi: str
    info: dict[str, Any]
    paths: dict[str, Any]
