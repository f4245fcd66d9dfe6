"""What handlers find in the application."""

from __future__ import annotations

from dataclasses import dataclass

from aiohttp import web

from notifier.http.auth import Keys, WebhookDoor
from notifier.ingest import Ingest
from notifier.operate import Operator
from notifier.runtime import Runtime
from providers.base import Traits


@dataclass(frozen=True, slots=True)
class Context:
    """Everything a handler may use. `traits`: what may be assumed of the provider the workers use now."""

    runtime: Runtime
    ingest: Ingest
    operator: Operator
    traits: Traits
    keys: Keys
    login_webhook: WebhookDoor


CONTEXT: web.AppKey[Context] = web.AppKey("context", Context)
