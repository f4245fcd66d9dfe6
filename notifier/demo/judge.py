"""The count at the end: what the service told us against what the provider wrote down. Pure: records in, rows out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

ONBOARDING, FOLLOWUP = "onboarding", "followup"
INBOX, CALLS, ANSWERS, API = "provider's inbox", "provider's calls", "API's answers", "API at the end"

Mail = tuple[str, str]  # address, kind


@dataclass(slots=True)
class Told:
    """What was sent to the service, and what it answered. People are known by their address."""

    people: set[str] = field(default_factory=set)
    events: int = 0
    accepted: int = 0
    signups: int = 0
    repeats: int = 0
    repeats_known: int = 0
    second_signups: int = 0
    second_signups_idle: int = 0
    logins: int = 0
    canceled: set[str] = field(default_factory=set)
    too_late: set[str] = field(default_factory=set)
    under_way: int = 0
    killed_pid: int = 0
    frozen_pid: int = 0

    @property
    def owed(self) -> set[Mail]:
        """The mails that have to be in the inbox, each once."""
        followed = self.people - self.canceled
        return {(person, ONBOARDING) for person in self.people} | {(person, FOLLOWUP) for person in followed}


@dataclass(frozen=True, slots=True)
class Record:
    """The provider's own record: every mail it accepted and every call it got, as its API lists them."""

    messages: Sequence[Mapping[str, Any]]
    attempts: Sequence[Mapping[str, Any]]

    def mails(self) -> Counter[Mail]:
        """How often each mail was accepted."""
        return Counter((message["to"][0], message["kind"]) for message in self.messages)

    @property
    def followed(self) -> set[str]:
        """Whose follow-up was accepted."""
        return {address for address, kind in self.mails() if kind == FOLLOWUP}

    def calls_of(self, pid: int, *verdicts: str) -> list[Mapping[str, Any]]:
        """The calls of one worker process, newest first: all, or those that ended so. Its name holds its pid."""
        calls = [call for call in self.attempts if _is_of(pid, call["worker"])]
        return [call for call in calls if not verdicts or call["verdict"] in verdicts]


@dataclass(frozen=True, slots=True)
class Row:
    """One number: what it is, what it must be, whether it is, where it was read, and whom it is wrong for."""

    name: str
    what: str
    found: int
    must_be: str
    ok: bool
    source: str
    wrong: tuple[str, ...] = ()


def judge(told: Told, record: Record) -> list[Row]:
    """Every number of the table, with its verdict."""
    mails, owed = record.mails(), told.owed
    kinds = Counter(kind for _, kind in mails.elements())
    refused = sum(call["verdict"] == "duplicate" for call in record.attempts)
    arrived = [call["key"] for call in record.calls_of(told.killed_pid, "accepted")]
    keys = Counter(message["key"] for message in record.messages)
    late_calls = len(record.calls_of(told.frozen_pid, "duplicate"))
    late = len(told.canceled) + len(told.too_late)
    return [
        _equal("events", "Events sent and accepted", told.accepted, told.events, ANSWERS),
        _equal("people", "  people who signed up", len(told.people), told.signups, ANSWERS),
        _equal("repeats", "  signups repeated, recognised", told.repeats_known, told.repeats, ANSWERS),
        _equal("again", "  second signups, nothing new", told.second_signups_idle, told.second_signups, ANSWERS),
        _equal("logins", "  logins, told one or the other:", late, told.logins, ANSWERS),
        _each("canceled", "    follow-up canceled", told.canceled, "none sent", told.canceled & record.followed),
        _each("too_late", "    too late for it", told.too_late, "all sent", told.too_late - record.followed),
        _equal("mails", "Mails accepted by the provider", len(record.messages), len(owed), INBOX),
        _equal("onboarding", "  welcome mails (onboarding)", kinds[ONBOARDING], len(told.people), INBOX),
        _equal("followups", "  follow-ups", kinds[FOLLOWUP], len(told.people - told.canceled), INBOX),
        _least("refused", "Copies refused as duplicates", refused, 2),
        _least("late_calls", "  late calls of the frozen worker", late_calls, 1),
        _once("killed", "Last mails of the killed worker", arrived, keys),
        _none("unasked", "Mails nobody was owed", set(mails) - owed, INBOX),
        _none("twice", "People with two mails of a kind", (mail for mail, times in mails.items() if times > 1), INBOX),
        _none("lost", "Mails lost", owed - set(mails), INBOX),
        _equal("under_way", "Mails still under way", told.under_way, 0, API),
    ]


def _equal(name: str, what: str, found: int, wanted: int, source: str) -> Row:
    return Row(name, what, found, str(wanted), found == wanted, source)


def _least(name: str, what: str, found: int, least: int) -> Row:
    return Row(name, what, found, f"≥ {least}", found >= least, CALLS)


def _once(name: str, what: str, arrived: Sequence[str], keys: Mapping[str, int]) -> Row:
    wrong = tuple(sorted(key for key in arrived if keys[key] != 1))
    return Row(name, what, len(arrived), "≥ 1, each once", bool(arrived) and not wrong, INBOX, wrong)


def _each(name: str, what: str, told: Collection[str], must_be: str, wrong: Collection[str]) -> Row:
    return Row(name, what, len(told), must_be, not wrong, "answers, inbox", tuple(sorted(wrong)))


def _none(name: str, what: str, mails: Iterable[Mail], source: str) -> Row:
    wrong = tuple(sorted({f"{address} ({kind})" for address, kind in mails}))
    return Row(name, what, len(wrong), "0", not wrong, source, wrong)


def _is_of(pid: int, worker: str | None) -> bool:
    """Workers are called host-pid-number, and a host's name may have dashes of its own."""
    return (worker or "").rsplit("-", 2)[1:2] == [str(pid)]
