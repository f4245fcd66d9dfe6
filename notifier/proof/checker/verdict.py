"""What a judgement is: findings with the lines that show them, figures, and all of it in plain words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from notifier.proof.history import Answer, Attempt, Fault, Invariants, Line, Mail, Opinion, Quiet, Request, Run, Signal

LISTS = ("notifications", "canceled", "too_late", "untouched")


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that breaks a rule, or, among the excused, would if it were not for a named cause.

    `rule`: I1 to I7, answers, record or quiet; among the excused the case's name. `events`: the few lines that show it,
    in the order in which they happened.
    """

    rule: str
    user: str | None
    kind: str | None
    sentence: str
    events: tuple[Line, ...]
    started: datetime


@dataclass(frozen=True, slots=True)
class Takeover:
    """A call that was in hand when its worker died or froze, and came to the provider again.

    `seconds`: from the death to the repeat. `held_up`: what lawfully delayed it, if anything did. `claims`: by how many
    claims the two calls are apart; more than one where somebody else took it over in between, and was lost as well
    before a call of his arrived.
    """

    user: str
    kind: str
    worker: str
    by: str
    seconds: float
    held_up: str | None
    claims: int = 1


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came out. `totals` are plain counts for a report."""

    violations: tuple[Finding, ...]
    excused: tuple[Finding, ...]
    totals: Mapping[str, int]
    takeovers: tuple[Takeover, ...]

    @property
    def is_good(self) -> bool:
        """Whether nothing was broken."""
        return not self.violations


def explain(finding: Finding) -> list[str]:
    """Give a finding as plain lines: whom and what, then each event with seconds since the start of the run."""
    about = " · ".join(part for part in (finding.rule, finding.user, finding.kind) if part)
    told = [f"{about}: {finding.sentence}"]
    for line in finding.events:
        told.append(f"  {(line.at - finding.started).total_seconds():+10.3f} s  {describe(line)}")
    return told


def describe(line: Line) -> str:
    """One line of a history, for people."""
    match line:
        case Run():
            return f"the run begins: seed {line.seed}, faults {', '.join(line.faults) or 'none'}"
        case Request():
            return " ".join(_request(line))
        case Answer(status=None):
            return f"answer {line.n}: none came"
        case Answer():
            return f"answer {line.n}: {line.status}{' (a replay)' if line.replayed else ''}{_lists(line.body)}"
        case Attempt():
            told = "" if line.answered else ", not answered"
            return (
                f"call {line.seq} by {line.worker or 'nobody named'} (generation {line.generation}, key {line.key}) "
                f"for {line.kind}: {line.verdict}{told}"
            )
        case Mail():
            return f"mail {line.seq}: {line.kind} to {', '.join(line.to)} accepted (key {line.key})"
        case Signal():
            return f"{line.process} (pid {line.pid}): {line.signal}{f' by {line.by}' if line.by else ''}"
        case Fault():
            return f"fault {line.n}, {line.family}: {line.name}, {line.phase}"
        case Quiet():
            return f"quiet: {'reached' if line.reached else 'not reached'} after {line.after_s:.1f} s"
        case Opinion():
            reason = f" ({line.reason})" if line.reason else ""
            return f"the service says of {line.kind}: {line.state}{reason}"
        case Invariants():
            return f"the service counts violations of its own: {line.document.get('violations')}"
        case _:
            return "the provider forgets every key"


def _request(line: Request) -> Iterator[str]:
    yield f"request {line.n}: {line.act} over {line.door}"
    if line.id:
        yield f"id {line.id}"
    if line.notification:
        yield f"notification {line.notification}"
    if line.occurred_at:
        yield f"occurred {line.occurred_at.isoformat()}"
    if line.resends is not None:
        yield f"(request {line.resends} again)"
    if line.detail:
        yield ", ".join(f"{name} {value}" for name, value in sorted(line.detail.items()))


def _lists(body: Mapping[str, Any]) -> str:
    told = ""
    for name in LISTS:
        if entries := body.get(name):
            states = (f"{entry.get('kind')} {entry.get('state', '')}".strip() for entry in entries)
            told += f"; {name}: {', '.join(states)}"
    return told + (f"; {body['kind']} {body['state']}" if "kind" in body and "state" in body else "")
