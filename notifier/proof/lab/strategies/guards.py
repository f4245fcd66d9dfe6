"""What ours stands on, one by one, so that each can be taken out and the fault it keeps away be seen."""

from __future__ import annotations

import enum


class Guard(enum.StrEnum):
    """A guard of ours. The lease is none: it is a hint, and taking it out must change nothing.

    Login: a login moves the row at all. Cancel: it does so only while nobody holds the row, and without doubt.
    """

    UNIQUE = "unique"
    FENCE = "fence"
    LOGIN = "login"
    CANCEL = "cancel"
    DOUBT = "doubt"
    KEY = "key"
    LEASE = "lease"
