"""GET /v1/invariants: what must never be, with live counts; and, openly, what is not counted here."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from aiohttp import web

from notifier import observe
from notifier.http.bodies import answer
from notifier.http.context import CONTEXT
from notifier.runtime import Runtime
from notifier.store import invariants
from providers.base import Family

RULES: Mapping[str, str] = {
    "I0": "every notification is in exactly one place: scheduled, open or closed",
    "I1": "every acknowledged signup has exactly one accepted onboarding mail, or a reason why not",
    "I2": "no two accepted mails share user, kind and resend number",
    "I3": "nothing canceled is accepted, and no call for it starts afterwards",
    "I4": "whatever waited for its date and reached it was taken once, or ended with a reason",
    "I5": "every mail taken goes back to an event",
    "I6": "what was accepted is sent or uncertain, and what is sent was accepted",
    "I7": "no claim stays expired for longer than one more claim time and a poll while a worker could take it",
}


async def count_violations(runtime: Runtime, family: Family) -> dict[str, int]:
    """Rule → live violations, for the rules that are counted; sets their gauges."""
    patience = timedelta(seconds=runtime.settings.claim_ttl_s + runtime.settings.poll_s)
    async with runtime.database.connection() as conn:
        counted = {
            "I0": await invariants.doubled_or_lost(conn),
            "I3": await invariants.canceled_and_called(conn),
            "I7": await invariants.overdue_claims(conn, patience),
        }
        # A provider that drops the second copy gives it an id all the same: our record cannot tell one mail from two.
        if family is not Family.DROP:
            counted["I2"] = await invariants.accepted_twice(conn)
    for rule, violations in counted.items():
        observe.INVARIANT_VIOLATIONS.labels(rule).set(violations)
    return counted


async def get_invariants(request: web.Request) -> web.Response:
    """Count what can be counted cheaply on a running installation: the newest rows, from indexes."""
    context = request.app[CONTEXT]
    context.keys.require(request, "read")
    counted = await count_violations(context.runtime, context.traits.family)
    rules = {
        rule: {"rule": text, "checked": rule in counted, "violations": counted.get(rule)}
        for rule, text in RULES.items()
    }
    return answer({"invariants": rules, "violations": sum(counted.values())})
