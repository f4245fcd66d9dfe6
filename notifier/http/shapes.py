"""How rows look on the wire; documents.py has the same as models, and a test holds the two together."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from notifier.domain.notification import safe_repeat_until
from notifier.domain.provider_key import provider_key
from notifier.http.context import Context
from notifier.store import attempts, installation
from notifier.store.attempts import Attempt
from notifier.store.audit import Entry
from notifier.store.database import Connection
from notifier.store.notifications import Notification
from notifier.store.switches import Switch


def iso(moment: datetime | None) -> str | None:
    """RFC 3339, or null."""
    return None if moment is None else moment.isoformat()


async def now_header(conn: Connection) -> dict[str, str]:
    """Business time, for whoever wants to say "due in two days": dates may have been moved away from real time."""
    return {"Notifier-Now": (await installation.business_now(conn)).isoformat()}


async def notification_documents(
    context: Context, conn: Connection, found: Sequence[Notification]
) -> list[dict[str, Any]]:
    """Shape each with its calls. They are read after the rows, so a row that says `sent` has the call that did it."""
    calls = await attempts.of_notifications(conn, [row.id for row in found])
    return [notification_document(context, row, calls[row.id]) for row in found]


def notification_document(context: Context, row: Notification, calls: Sequence[Attempt]) -> dict[str, Any]:
    """One notification as the outside sees it."""
    traits = context.traits
    safe_until = safe_repeat_until(
        row.doubt_since,
        has_keys=traits.has_keys,
        same_account=row.provider == traits.account,
        window=traits.window,
        margin=timedelta(seconds=context.runtime.settings.claim_ttl_s),
    )
    return {
        "id": str(row.id),
        "user_id": row.user_id,
        "kind": row.kind,
        "state": row.state.value,
        "reason": row.reason,
        "decided_by": row.decided_by,
        "created_by": row.created_by,
        "generation": row.generation,
        "decided_at": iso(row.decided_at),
        "due_at": iso(row.due_at),
        "next_attempt_at": iso(row.next_attempt_at),
        "claimed_by": row.claimed_by,
        "claimed_at": iso(row.claimed_at),
        "claim_expires_at": iso(row.claim_expires_at),
        "doubt_since": iso(row.doubt_since),
        "safe_retry_until": iso(safe_until),
        "provider": row.provider,
        "provider_key": str(row.batch_id)
        if row.batch_id
        else provider_key(context.runtime.namespace, row.user_id, row.kind, row.resend_number),
        "resend_number": row.resend_number,
        "provider_message_id": row.provider_message_id,
        "evidence": row.evidence,
        "sent_at": iso(row.sent_at),
        "settled_at": iso(row.settled_at),
        "trimmed_at": iso(row.trimmed_at),
        "attempt_count": row.attempts,
        "attempts": [attempt_document(call) for call in calls],
    }


def attempt_document(call: Attempt) -> dict[str, Any]:
    """One call of the provider."""
    return {
        "generation": call.generation,
        "worker": call.worker,
        "provider": call.provider,
        "resend_number": call.resend_number,
        "outcome": call.outcome,
        "reason": call.reason,
        "provider_message_id": call.provider_message_id,
        "claimed_at": iso(call.claimed_at),
        "started_at": iso(call.started_at),
        "finished_at": iso(call.finished_at),
    }


def audit_document(entry: Entry) -> dict[str, Any]:
    """One operator act."""
    return {
        "id": entry.id,
        "at": iso(entry.at),
        "actor": entry.actor,
        "act": entry.act,
        "target": entry.target,
        "user_id": entry.user_id,
        "detail": entry.detail,
    }


def switch_document(switch: Switch) -> dict[str, Any]:
    """One switch that is on."""
    return {
        "name": switch.name,
        "owner": switch.owner,
        "reason": switch.reason,
        "set_at": iso(switch.set_at),
        "expires_at": iso(switch.expires_at),
    }
