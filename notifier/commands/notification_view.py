"""How a notification looks to a person: as a row, whole, and what can be done with it next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from notifier.console import Cell, Columns, ago, clean, console, moment, state_text, until

if TYPE_CHECKING:
    from notifier.client.api import Answer

LIST = ("state", "kind", "when", "user", "reason", "id")
NEXT = "notifier notifications"
FACTS = (
    ("generation", "generation"),
    ("decided by", "created_by"),
    ("ended by", "decided_by"),
    ("claimed by", "claimed_by"),
    ("evidence", "evidence"),
    ("provider", "provider"),
    ("provider key", "provider_key"),
    ("provider's id", "provider_message_id"),
)
BUSINESS_TIMES = (("event occurred", "decided_at"), ("due", "due_at"), ("next attempt", "next_attempt_at"))
REAL_TIMES = (
    ("claimed", "claimed_at"),
    ("claim ends", "claim_expires_at"),
    ("in doubt since", "doubt_since"),
    ("safe to repeat until", "safe_retry_until"),
    ("sent", "sent_at"),
    ("ended", "settled_at"),
    ("detail removed", "trimmed_at"),
)


def list_row(row: Mapping[str, Any], answer: Answer) -> Sequence[Cell]:
    """One line of a listing; `answer` tells the time it is from."""
    return (_state(row), row["kind"], _when(row, answer), row["user_id"], row["reason"] or "", row["id"])


def _state(row: Mapping[str, Any]) -> Text:
    text = state_text(row["state"])
    if row["state"] in ("pending", "sending") and row["doubt_since"]:
        text.append(" (in doubt)")
    return text


def _when(row: Mapping[str, Any], answer: Answer) -> str:
    match row["state"]:
        case "scheduled":
            return f"due {until(row['due_at'], answer.business_now)}"
        case "pending":
            return f"due {until(row['next_attempt_at'], answer.business_now)}"
        case "sending":
            return f"claimed {ago(row['claimed_at'], answer.now)}"
        case _:
            return ago(row["settled_at"], answer.now)


def print_details(
    answer: Answer, timeline: Sequence[Mapping[str, Any]] | None, switches: Sequence[Mapping[str, Any]]
) -> None:
    """Print everything about one, and what an operator can do next."""
    row, to = answer.body, console()
    title = Text.assemble(
        (clean(row["kind"]), "bold"), " for user ", (clean(row["user_id"]), "bold"), ": ", _state(row)
    )
    if row["reason"]:
        title.append(f" ({clean(row['reason'])})")
    to.print(title)
    facts = [("id", row["id"])]
    facts += [(name, str(row[field])) for name, field in FACTS if row[field] is not None]
    if row["resend_number"]:
        facts.append(("key number", f"{row['resend_number']}, after as many answers `not sent`"))
    for times, now in ((BUSINESS_TIMES, answer.business_now), (REAL_TIMES, answer.now)):
        facts += [(name, f"{moment(row[f])}  ({until(row[f], now)})") for name, f in times if row[f] is not None]
    for name, value in facts:
        to.print(Text.assemble((f"  {name:<21} ", "dim"), clean(value)))
    _print_attempts(row, to)
    if (silent := row["attempt_count"] - len(row["attempts"])) > 0 and row["trimmed_at"] is None:
        to.print(
            f"{silent} more left no record: the worker died before it could say what came of it, and the provider may "
            "have taken the mail then."
        )
    if timeline is not None:
        _print_timeline(timeline, to)
    to.print()
    for line in advice(row, switches):
        to.print(line, style="bold" if row["state"] in ("uncertain", "failed") else "")


def _print_attempts(row: Mapping[str, Any], to: Console) -> None:
    if not row["attempts"]:
        forgotten = "\nNo attempt on record. The database was restored from a backup, which knows of none after it."
        never = "\nNo attempt so far: the provider has not been called."
        if row["trimmed_at"] is not None:
            never = "\nNo attempt on record any more: it ended long ago."
        to.print(forgotten if row["reason"] == "restored" else never)
        return
    to.print(f"\nAttempts ({row['attempt_count']} counted since it was last planned):")
    table = Columns(to, "started", "took", "outcome", "reason", "generation", "worker", "provider's id")
    table.add(
        [
            (
                moment(call["started_at"]),
                _took(call),
                call["outcome"],
                call["reason"] or "",
                str(call["generation"]),
                call["worker"],
                call["provider_message_id"] or "",
            )
            for call in row["attempts"]
        ]
    )


def _took(call: Mapping[str, Any]) -> str:
    from datetime import datetime

    took = datetime.fromisoformat(call["finished_at"]) - datetime.fromisoformat(call["started_at"])
    return f"{took.total_seconds():.2f} s"


def _print_timeline(timeline: Sequence[Mapping[str, Any]], to: Console) -> None:
    to.print("\nWhat happened:")
    table = Columns(to, "at", "what", "details")
    table.add([(moment(entry["at"]), entry["what"], _told(entry)) for entry in timeline])


def _told(entry: Mapping[str, Any]) -> str:
    left_out = {"at", "what", "notification", "kind", "detail"}
    told = {name: value for name, value in entry.items() if name not in left_out and value is not None}
    return ", ".join(f"{name} {moment(value) if name.endswith('_at') else value}" for name, value in told.items())


def advice(row: Mapping[str, Any], switches: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """What an operator can do next, each command on a line of its own to be copied; or that there is nothing to do."""
    cancel, retry, resolve = (f"  {NEXT} {act} {row['id']}" for act in ("cancel", "retry", "resolve"))
    if row["state"] in ("scheduled", "pending"):
        yield from _held(row, switches)
    match row["state"]:
        case "scheduled":
            yield from ("It waits for its date. To stop it:", cancel)
        case "pending" if row["doubt_since"]:
            yield "An earlier attempt may have been taken, so it cannot be canceled. A worker repeats it under its key."
        case "pending":
            yield from ("A worker takes it when it is due. To stop it:", cancel)
        case "sending":
            yield "A worker has it now. If that one dies, another takes it over when the claim ends."
        case "sent":
            yield "Nothing to do."
        case "uncertain":
            yield f"Look for {traceable(row)} at the provider. If it took the mail:"
            yield f'{resolve} --sent --reason "how you know"'
            yield "If it surely never took it, and the mail is to be sent again:"
            yield f'{resolve} --not-sent --reason "how you know"'
        case "canceled" if not (row["decided_by"] or "").startswith("operator:"):
            yield "An event or an erasure canceled it, and that is final."
        case "canceled" | "skipped" | "failed" if row["trimmed_at"] is not None:
            yield "It ended long ago, and what its mail was made of was removed. Nothing can be done with it any more."
        case "canceled":
            yield from ("An operator canceled it. To take that back:", retry)
        case "skipped":
            yield from ("A rule stopped it. Once that no longer holds:", retry)
        case "failed":
            yield from ("It was surely never taken. Once the reason is mended:", retry)


def traceable(row: Mapping[str, Any]) -> str:
    """What a provider knows this mail by; a mail server knows no keys, but the mail was named after it."""
    if (row["provider"] or "").startswith("smtp"):
        return f"the mail whose Message-ID begins with <{row['provider_key']}@"
    return f"key {row['provider_key']}"


def _held(row: Mapping[str, Any], switches: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    mine = {"pause", f"pause:{row['kind'].partition('@')[0]}"}
    for switch in switches:
        if switch["name"] in mine or switch["name"].startswith("pause:provider:"):
            why = f"{clean(switch['owner'])}: {clean(switch['reason'])}"
            yield f"Held back by {switch['name']} until {moment(switch['expires_at'])} ({why}). To end that:"
            yield f"  notifier switch end {switch['name']}"


def print_done(act: str, answer: Answer) -> None:
    """Say where it stands after an act."""
    row = answer.body
    words = {"cancel": "Canceled", "retry": "Planned anew", "resolve": "Resolved"}[act]
    to = console()
    where = Text.assemble(f"{words}: {clean(row['kind'])} for user {clean(row['user_id'])} is ", _state(row))
    if row["reason"]:
        where.append(f" ({clean(row['reason'])})")
    if row["state"] in ("scheduled", "pending"):
        where.append(f", {_when(row, answer)}")
    to.print(where.append("."))
    to.print(f"  {row['id']}, generation {row['generation']}", style="dim")
