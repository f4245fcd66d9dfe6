"""What handlers find in the application."""

from __future__ import annotations

from dataclasses import dataclass

from aiohttp import web

from notifier.http.auth import Keys, WebhookDoor
from notifier.ingest import Ingest
from notifier.runtime import Runtime


@dataclass(frozen=True, slots=True)
class Context:
    """Everything a handler may use."""

    runtime: Runtime
    ingest: Ingest
    keys: Keys
    login_webhook: WebhookDoor


CONTEXT: web.AppKey[Context] = web.AppKey("context", Context)
