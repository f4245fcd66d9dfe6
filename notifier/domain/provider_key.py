"""One (user, kind) → one key, for ever; a person's resend adds a number."""

from __future__ import annotations

import uuid

_SEPARATOR = "\x1f"  # cannot stand in a user id or a kind


def provider_key(namespace: uuid.UUID, user_id: str, kind: str, resend_number: int = 0) -> str:
    """The idempotency key: a UUID in lower case, from the business identity only, so that a restore finds it again."""
    assert resend_number >= 0
    parts = [user_id, kind] if resend_number == 0 else [user_id, kind, str(resend_number)]
    return str(uuid.uuid5(namespace, _SEPARATOR.join(parts)))
