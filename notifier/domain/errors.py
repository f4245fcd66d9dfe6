"""What can go wrong, classed by who must act: the caller, nobody, or the operator."""

from __future__ import annotations


class NotifierError(Exception):
    """The root. An instance of this class itself is for the operator: its text says what to do."""


class SettingsError(NotifierError):
    """The configuration refuses to start; the text names the settings and says what to change."""


class NotReady(NotifierError):
    """A resource that must be there at start is not: database, schema, port, disk."""


class CallerError(NotifierError):
    """The caller must change something. `pointer` is the JSON pointer of the field, if there is one."""

    def __init__(self, detail: str, *, pointer: str | None = None) -> None:
        super().__init__(detail)
        self.pointer = pointer


class Invalid(CallerError):
    """Well-formed, but it says something we cannot take (HTTP 422). Nothing was stored."""


class KeyReused(CallerError):
    """An event id was used again for a different event (HTTP 422). Nothing was stored."""

    def __init__(self, event_id: str) -> None:
        super().__init__(
            f"the id {event_id!r} was used before for an event with other content; "
            "a repeat must be the same event, a new event needs a new id"
        )


class NotFound(CallerError):
    """There is no such thing (HTTP 404)."""


class WrongState(CallerError):
    """The act does not fit where the notification stands (HTTP 409). `reason`: what else stands against it."""

    def __init__(self, detail: str, *, state: str, reason: str | None = None) -> None:
        super().__init__(detail)
        self.state = state
        self.reason = reason


class Moved(CallerError):
    """The notification moved since the caller read it (HTTP 412). `generation`: what it is now."""

    def __init__(self, detail: str, *, generation: int) -> None:
        super().__init__(detail)
        self.generation = generation


class Busy(NotifierError):
    """Not stored, and the caller should repeat (HTTP 503 with Retry-After): lock, time-out, database away."""

    def __init__(self, detail: str, *, retry_after_s: int = 1) -> None:
        super().__init__(detail)
        self.retry_after_s = retry_after_s
