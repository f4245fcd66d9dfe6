"""A history, sorted once: who asked for what, and what became of each notification."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from notifier.proof.checker.asks import KINDS, Ask, Exchange, Notification, Person, entries
from notifier.proof.checker.verdict import LISTS, Finding
from notifier.proof.checker.working import Stretch, stretches
from notifier.proof.history import (
    Answer,
    Attempt,
    Fault,
    Invariants,
    KeysForgotten,
    Line,
    Mail,
    Opinion,
    Quiet,
    Request,
    Run,
    Signal,
)


class NotAHistory(ValueError):
    """The lines are no history of a run; the message says what is missing."""


@dataclass
class Record:
    """A history, indexed."""

    run: Run
    exchanges: list[Exchange]
    asks: list[Ask]
    people: dict[str, Person]
    notifications: dict[tuple[str, str], Notification]
    ids: dict[str, set[tuple[str, str]]]
    attempts: list[Attempt]
    mails: list[Mail]
    by_id: dict[str, Mail]
    signals: list[Signal]
    faults: list[tuple[Fault, Fault | None]]
    ends: dict[int, Fault]
    forgotten: list[KeysForgotten]
    invariants: list[Invariants]
    quiet: Quiet | None
    strays: list[Answer]
    has_opinions: bool
    pids: dict[str, int]  # of the workers that are known by name
    pods: dict[int, str]  # what a process is called in the plan of faults
    stretches: list[Stretch]  # when workers were surely at work
    fates: dict[int, list[Signal]]  # what befell each worker's process, its `notifier run` killed included

    def pid_of(self, worker: str | None) -> int | None:
        """The process that calls itself so; its name holds its number, where no signal names it."""
        if worker is None:
            return None
        part = worker.rsplit("-", 2)[-2] if worker.count("-") >= 2 else ""
        return self.pids.get(worker) or (int(part) if part.isdecimal() and int(part) in self.pods else None)

    def pod_of(self, worker: str | None) -> str | None:
        """The pod it is; None where that is not known."""
        pid = self.pid_of(worker)
        return None if pid is None else self.pods.get(pid)

    def fate_of(self, worker: str | None) -> list[Signal]:
        """What befell it, in order; where the process is not known, what befell any."""
        pid = self.pid_of(worker)
        return [line for fate in self.fates.values() for line in fate] if pid is None else self.fates.get(pid, [])

    def finding(self, rule: str, about: Notification | str | None, sentence: str, *lines: Line | None) -> Finding:
        """Make a finding about a notification, a user, or the whole."""
        shown: list[Line] = []
        for line in lines:
            if line is not None and line not in shown:
                shown.append(line)
        shown.sort(key=lambda line: line.at)
        user = about.user if isinstance(about, Notification) else about
        kind = about.kind if isinstance(about, Notification) else None
        return Finding(rule, user, kind, sentence, tuple(shown), self.run.at)


def index(lines: Iterable[Line]) -> Record:
    """Sort a history. Raises NotAHistory where it does not begin with its run."""
    by_type: dict[type, list[Any]] = defaultdict(list)
    for line in lines:
        by_type[type(line)].append(line)
    if len(by_type[Run]) != 1:
        raise NotAHistory(f"a history has one line `run`, this one has {len(by_type[Run])}")
    exchanges, strays = _exchanges(by_type[Request], by_type[Answer])
    attempts = sorted(by_type[Attempt], key=lambda line: (line.at, line.seq))
    signals = sorted(by_type[Signal], key=lambda line: line.at)
    asks = _asks(exchanges)
    ends = {fault.n: fault for fault in by_type[Fault] if fault.phase == "end"}
    record = Record(
        run=by_type[Run][0],
        exchanges=exchanges,
        asks=asks,
        people=_people(asks),
        notifications={},
        ids=_ids(exchanges, by_type[Opinion]),
        attempts=attempts,
        mails=sorted(by_type[Mail], key=lambda line: (line.at, line.seq)),
        by_id={mail.id: mail for mail in by_type[Mail]},
        signals=signals,
        faults=[(fault, ends.get(fault.n)) for fault in by_type[Fault] if fault.phase == "begin"],
        ends=ends,
        forgotten=by_type[KeysForgotten],
        invariants=by_type[Invariants],
        quiet=by_type[Quiet][-1] if by_type[Quiet] else None,
        strays=strays,
        has_opinions=bool(by_type[Opinion]),
        pids={line.worker: line.pid for line in signals if line.worker is not None},
        pods={line.pid: line.process for line in signals if line.role == "worker"},
        stretches=stretches(attempts),
        fates=_fates(signals),
    )
    _fill(record, by_type[Opinion])
    return record


def _exchanges(requests: list[Request], answers: list[Answer]) -> tuple[list[Exchange], list[Answer]]:
    by_n: dict[int, Answer] = {}
    strays = []
    known = {request.n for request in requests}
    for answer in answers:
        if answer.n in by_n or answer.n not in known:
            strays.append(answer)
        else:
            by_n[answer.n] = answer
    ordered = sorted(requests, key=lambda request: (request.mono, request.n))
    return [Exchange(request, by_n.get(request.n)) for request in ordered], strays


def _asks(exchanges: list[Exchange]) -> list[Ask]:
    """Put the tries of one thing together: by the event's id at its source, or by what a request says it repeats."""
    groups: dict[tuple[str, str], list[Exchange]] = defaultdict(list)
    roots: dict[int, tuple[str, str]] = {}
    for one in exchanges:
        request = one.request
        if request.id is not None and request.door != "operate":
            name = ("webhook" if request.door == "webhook" else "api", request.id)
        else:
            name = roots.get(-1 if request.resends is None else request.resends, ("request", str(request.n)))
        roots[request.n] = name
        groups[name].append(one)
    return [Ask(tuple(group)) for group in groups.values()]


def _people(asks: list[Ask]) -> dict[str, Person]:
    people: dict[str, Person] = {}
    for ask in asks:
        user = ask.said.user
        if user is None:
            continue
        person = people.setdefault(user, Person(user))
        match ask.first.act:
            case "signup":
                person.signups.append(ask)
            case "login":
                person.logins.append(ask)
            case "erase":
                person.erasures.append(ask)
            case _ if ask.first.door != "operate":
                person.others.append(ask)
    return people


def _ids(exchanges: list[Exchange], opinions: list[Opinion]) -> dict[str, set[tuple[str, str]]]:
    """Whose notification an id is, as answers and the service's pages say."""
    found: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for one in exchanges:
        body = one.acknowledged.body if one.acknowledged else {}
        user = body.get("user_id") or one.request.user
        if user is None:
            continue
        for name in LISTS:
            for entry in entries(body, name):
                found[str(entry.get("id"))].add((user, str(entry.get("kind"))))
        if one.request.door == "operate" and "kind" in body and "id" in body:
            found[str(body["id"])].add((user, str(body["kind"])))
    for opinion in opinions:
        found[opinion.id].add((opinion.user, opinion.kind))
    return found


def _fates(signals: list[Signal]) -> dict[int, list[Signal]]:
    """By process; a worker that a `notifier run` had started does not outlive it."""
    fates: dict[int, list[Signal]] = {line.pid: [] for line in signals if line.role == "worker"}
    living: dict[int, str] = {}
    for line in signals:
        if line.role == "worker":
            fates[line.pid].append(line)
            living[line.pid] = line.process
            if line.signal == "END":
                del living[line.pid]
        elif line.role == "supervisor" and line.signal == "KILL":
            for pid, process in living.items():
                if process.startswith(f"{line.process}/"):
                    fates[pid].append(line)
    return fates


def _fill(record: Record, opinions: list[Opinion]) -> None:
    def of(user: str, kind: str) -> Notification:
        found = record.notifications.get((user, kind))
        if found is None:
            person = record.people.setdefault(user, Person(user))
            found = record.notifications[user, kind] = Notification(user, kind, person)
        return found

    for person in list(record.people.values()):
        if person.signups:
            for kind in KINDS:
                of(person.user, kind)
    for mail in record.mails:
        if mail.user is not None and mail.kind is not None:
            of(mail.user, mail.kind).mails.append(mail)
    for attempt in record.attempts:
        if attempt.user is not None and attempt.kind is not None:
            of(attempt.user, attempt.kind).attempts.append(attempt)
    for opinion in opinions:
        of(opinion.user, opinion.kind).opinions.append(opinion)
    for ask in record.asks:
        if ask.first.act in ("cancel", "retry", "resolve"):
            for user, kind in record.ids.get(str(ask.first.notification), set()):
                of(user, kind).acts.append(ask)
