"""One (user, kind) → one key, for ever; a person's resend adds a number."""

from __future__ import annotations

import hashlib
import uuid

_SEPARATOR = "\x1f"  # cannot stand in a user id or a kind


def provider_key(namespace: uuid.UUID, user_id: str, kind: str, resend_number: int = 0) -> str:
    """The idempotency key: a UUID in lower case, from the business identity only, so that a restore finds it again.

    It is uuid.uuid5() of the namespace and the parts, without making an object of it: every mail needs one.
    Source: RFC 9562, section 5.5.
    """
    assert resend_number >= 0
    name = f"{user_id}{_SEPARATOR}{kind}"
    if resend_number:
        name += f"{_SEPARATOR}{resend_number}"
    digest = hashlib.sha1(namespace.bytes + name.encode(), usedforsecurity=False).hexdigest()
    variant = "89ab"[int(digest[16], 16) & 3]
    return f"{digest[:8]}-{digest[8:12]}-5{digest[13:16]}-{variant}{digest[17:20]}-{digest[20:32]}"
