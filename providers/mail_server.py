"""A mail server as the configuration describes it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Literal

from providers.base import Family, Traits

Protection = Literal["starttls", "tls", "none"]


@dataclass(frozen=True, slots=True)
class MailServer:
    """Where mails go over SMTP, and how.

    `key_header`: a header that carries the key; `key_window`: how long this relay surely takes no second mail under
    one key. Zero, the rule: it knows no keys, and a mail in doubt is never sent again.
    """

    host: str
    port: int
    protection: Protection = "starttls"
    ca_file: Path | None = None
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    hello_name: str | None = None
    key_header: str | None = None
    key_window: timedelta = timedelta(0)

    @property
    def traits(self) -> Traits:
        """What may be assumed of it."""
        has_keys = self.key_header is not None and self.key_window > timedelta(0)
        # Under another header the relay has not seen the key.
        header = (self.key_header or "").lower() if has_keys else ""
        known = f"{self.host.lower()}:{self.port}:{self.username or ''}:{header}"
        digest = hashlib.sha256(known.encode()).hexdigest()[:12]
        # What was sent to a relay without keys must never be repeated under one: it has not seen it.
        name = "smtp" if has_keys else "smtp-keyless"
        return Traits("smtp", f"{name}:{digest}", Family.DROP if has_keys else Family.NONE, self.key_window)
