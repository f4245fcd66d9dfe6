"""The figures of a run, for a report: plain counts of what was seen from outside."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from notifier.proof.checker.asks import FOLLOWUP, ONBOARDING, entries
from notifier.proof.checker.record import Record
from notifier.proof.checker.verdict import Takeover


def count(record: Record, takeovers: Sequence[Takeover]) -> Mapping[str, int]:
    """Give all figures; those that are nought, too."""
    verdicts = Counter(attempt.verdict for attempt in record.attempts)
    kinds = Counter(mail.kind for mail in record.mails)
    events = [ask for ask in record.asks if ask.first.door != "operate"]
    opinions = [opinion for about in record.notifications.values() for opinion in about.opinions]
    return {
        "users": len(record.people),
        "requests": len(record.exchanges),
        "requests_without_answer": sum(1 for one in record.exchanges if not one.answer or one.answer.status is None),
        "repeats": len(record.exchanges) - len(record.asks),
        "events_acknowledged": sum(1 for ask in events if ask.answered),
        "signups_acknowledged": _acknowledged(record, "signup"),
        "logins_acknowledged": _acknowledged(record, "login"),
        "mails_accepted": len(record.mails),
        "onboardings_accepted": kinds[ONBOARDING],
        "followups_accepted": kinds[FOLLOWUP],
        "canceled": _listed(record, "canceled"),
        "too_late": _listed(record, "too_late"),
        "canceled_by_operator": _acknowledged(record, "cancel"),
        "users_erased": _acknowledged(record, "erase"),
        "calls": len(record.attempts),
        "calls_not_answered": sum(1 for attempt in record.attempts if not attempt.answered),
        "duplicates_refused": verdicts["duplicate"] + verdicts["replayed"] + verdicts["dropped"],
        "uncertain": sum(1 for opinion in opinions if opinion.state == "uncertain"),
        "late_settles": sum(1 for opinion in opinions if opinion.document.get("evidence") == "late_settle"),
        "takeovers_judged": sum(1 for one in takeovers if one.held_up is None),
        "takeovers_held_up": sum(1 for one in takeovers if one.held_up is not None),
        "faults": len(record.faults),
        "workers_killed": sum(1 for line in record.signals if line.role == "worker" and line.signal == "KILL"),
    }


def _acknowledged(record: Record, act: str) -> int:
    return sum(1 for ask in record.asks if ask.first.act == act and ask.answered)


def _listed(record: Record, name: str) -> int:
    """How many notifications the first answers list so, each answer by itself."""
    answers = [
        ask.acknowledgement for ask in record.asks if ask.acknowledgement and ask.first.act in ("login", "erase")
    ]
    return sum(len(entries(answer.body, name)) for answer in answers)
