"""I1 and I4: whoever signed up gets the onboarding mail, and the follow-up once due, unless it is seen why not."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from notifier.proof.checker.asks import CLOCKS_S, FOLLOWUP, KINDS, ONBOARDING, Notification
from notifier.proof.checker.explained import due, surely_owed, why_missing
from notifier.proof.checker.record import Record
from notifier.proof.checker.verdict import Finding

RULES = {ONBOARDING: "I1", FOLLOWUP: "I4"}
OPEN = ("scheduled", "pending", "sending")
LAST_MOMENT_S = 2.0  # what falls due so shortly before quiet is neither owed nor early


def check(record: Record) -> tuple[list[Finding], list[Finding]]:
    """Give what is missing or early, and what is missing with an excuse."""
    found: list[Finding] = []
    excused: list[Finding] = []
    for about in record.notifications.values():
        if about.kind not in KINDS:
            continue
        found += _early(record, about)
        if not about.mails and _must_be_there(record, about):
            reason = why_missing(record, about)
            signup = about.deciders[0]
            if reason is None:
                sentence = "acknowledged, due, and never accepted by the provider; nothing seen from outside says why"
                found.append(
                    record.finding(RULES[about.kind], about, sentence, *signup.lines, *about.attempts, *about.opinions)
                )
            elif reason.excused:
                excused.append(record.finding("uncertain", about, reason.why, *signup.lines, *reason.lines))
    return found, excused


def _must_be_there(record: Record, about: Notification) -> bool:
    quiet = record.quiet
    if quiet is None or not surely_owed(record, about):
        return False
    if not quiet.reached and any(opinion.state in OPEN for opinion in about.opinions):
        return False  # told under `quiet`
    last = quiet.at - timedelta(seconds=2 * record.run.poll_s + LAST_MOMENT_S)
    if about.kind == ONBOARDING:
        return True
    return due(record, about)[1] <= last


def _early(record: Record, about: Notification) -> Iterator[Finding]:
    if about.kind != FOLLOWUP or not about.deciders:
        return
    earliest = due(record, about)[0] - timedelta(seconds=CLOCKS_S)
    if (mail := next((mail for mail in about.mails if mail.at < earliest), None)) is not None:
        yield record.finding("I4", about, "accepted before it was due", *about.deciders[0].lines, mail)
