"""Who may do what: keys with scopes, and signed webhooks."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from aiohttp import web
from standardwebhooks import Webhook

from notifier.clock import boot_clock
from notifier.domain.errors import SettingsError
from notifier.http.problems import Problem
from notifier.settings import Scope, Settings
from notifier.store import installation
from notifier.store.database import Database

TOLERANCE_S = 300  # Standard Webhooks: a signature older or newer than five minutes is refused
SIGNATURES_MAX = 20  # in one header
OFFSET_AGE_S = 30.0  # how long the distance between our clock and the database's may be cached


@dataclass(frozen=True, slots=True)
class Actor:
    """Who acts. `name` is a fingerprint of the key, fit for logs and the audit."""

    name: str
    scopes: frozenset[Scope]


class Keys:
    """The API keys, compared in constant time by their digests."""

    def __init__(self, settings: Settings) -> None:
        digests = [(_digest(key.get_secret_value()), scopes) for key, scopes in settings.api_keys.items()]
        self._actors = [(digest, Actor(f"key:{digest.hex()[:12]}", scopes)) for digest, scopes in digests]

    def require(self, request: web.Request, *any_of: Scope) -> Actor:
        """Give the actor, or raise 401 without a valid key, 403 without one of the scopes."""
        return self.check(request.headers.get("Authorization", ""), *any_of)

    def check(self, authorization: str, *any_of: Scope) -> Actor:
        """Do the same with the header's value."""
        kind, _, key = authorization.partition(" ")
        key = key.strip()
        offered = _digest(key)
        actor = None
        for known, candidate in self._actors:
            if hmac.compare_digest(known, offered):
                actor = candidate
        if kind.lower() != "bearer" or not key or actor is None:
            raise Problem(
                "unauthorized",
                "send a valid key: Authorization: Bearer <key>",
                headers={"WWW-Authenticate": 'Bearer realm="notifier"'},
            )
        if actor.scopes.isdisjoint(any_of):
            raise Problem("forbidden", f"this needs a key with the scope {' or '.join(map(repr, any_of))}")
        return actor


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()


@dataclass(slots=True)
class DatabaseClock:
    """The database's real clock, reckoned from a cached distance to this host's boot clock."""

    database: Database
    _read_at: float = field(default=-1e9)
    _ahead_s: float = 0.0

    async def now_s(self) -> float:
        """Seconds since the epoch, as the database counts them."""
        if boot_clock() - self._read_at > OFFSET_AGE_S:
            async with self.database.connection() as conn:
                now = await installation.real_now(conn)
            self._read_at = boot_clock()
            self._ahead_s = now.timestamp() - self._read_at
        return boot_clock() + self._ahead_s


class WebhookDoor:
    """Verifies Standard Webhooks signatures with any of several secrets, on the database's clock."""

    def __init__(self, settings: Settings, clock: DatabaseClock) -> None:
        self._clock = clock
        self._hooks = [_hook(secret.get_secret_value()) for secret in settings.login_webhook_secrets]

    async def verify(self, request: web.Request, body: bytes) -> str:
        """Give the webhook's id, or raise 401."""
        webhook_id = request.headers.get("webhook-id", "")
        stamp = request.headers.get("webhook-timestamp", "")
        # Some senders put a comma behind each of several signatures as well.
        signatures = [part.rstrip(",") for part in request.headers.get("webhook-signature", "").split()]
        if not (webhook_id and stamp and signatures):
            raise _refuse("send webhook-id, webhook-timestamp and webhook-signature")
        if not (webhook_id.isascii() and webhook_id.isprintable() and " " not in webhook_id and len(webhook_id) <= 255):
            raise _refuse("webhook-id must be 1 to 255 visible ASCII characters")
        if not (stamp.isascii() and stamp.isdigit() and len(stamp) <= 12):
            raise _refuse("webhook-timestamp must be whole seconds since 1970")
        if not self._is_signed(webhook_id, int(stamp), body, signatures[:SIGNATURES_MAX]):
            raise _refuse("no signature fits this body, id and timestamp under any secret we know")
        if abs(await self._clock.now_s() - int(stamp)) > TOLERANCE_S:
            raise _refuse("webhook-timestamp is more than five minutes off; sign the repeat anew")
        return webhook_id

    def _is_signed(self, webhook_id: str, stamp: int, body: bytes, signatures: Sequence[str]) -> bool:
        try:
            text = body.decode("utf-8")
            moment = datetime.fromtimestamp(stamp, UTC)
        except (ValueError, OverflowError, OSError):
            return False
        expected = [hook.sign(webhook_id, moment, text).partition(",")[2] for hook in self._hooks]
        offered = [value for version, _, value in (item.partition(",") for item in signatures) if version == "v1"]
        fits = False
        for one in expected:
            for other in offered:
                fits |= hmac.compare_digest(one.encode(), other.encode("utf-8", "surrogateescape"))
        return fits


def _refuse(detail: str) -> Problem:
    return Problem("unauthorized", detail)


def _hook(secret: str) -> Webhook:
    # The library takes "v1,whsec_…" and makes a wrong key of it; senders do show secrets in that form.
    secret = secret.removeprefix("v1,").removeprefix("whsec_")
    try:
        key = base64.b64decode(secret + "=" * (-len(secret) % 4), validate=True)
    except ValueError:  # binascii.Error is one; text that is not ASCII raises another
        raise SettingsError("NOTIFIER_LOGIN_WEBHOOK_SECRETS: a secret is whsec_ and base64") from None
    if len(key) < 16:
        raise SettingsError("NOTIFIER_LOGIN_WEBHOOK_SECRETS: a secret has at least 16 bytes; 24 to 64 are usual")
    return Webhook(key)
