"""A small model of a correct service that writes down what an outsider would see of it: good histories on demand."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from notifier.proof.history import (
    Act,
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

START = datetime(2026, 11, 29, 10, tzinfo=UTC)
DAYS_3 = timedelta(days=3)
CLAIM_TTL_S = 3.0
_NAMES = uuid.UUID(int=7)


@dataclass
class Row:
    """One notification as the model keeps it."""

    id: str
    user: str
    kind: str
    state: str
    decided: datetime
    due: datetime
    reason: str | None = None
    by_operator: bool = False
    doubt: datetime | None = None
    sent: datetime | None = None
    generation: int = 0
    resends: int = 0
    evidence: str | None = None

    @property
    def key(self) -> str:
        return str(uuid.uuid5(_NAMES, f"{self.user}|{self.kind}|{self.resends}"))


@dataclass
class Story:
    """Tell what happens, in order; `lines` is the history. `now` is in seconds since the start."""

    has_keys: bool = True
    now: float = 0.0
    lines: list[Line] = field(default_factory=list)
    rows: dict[tuple[str, str], Row] = field(default_factory=dict)
    logins: dict[str, datetime] = field(default_factory=dict)
    answers: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    addresses: dict[str, str] = field(default_factory=dict)
    erased: set[str] = field(default_factory=set)
    keys: dict[str, str] = field(default_factory=dict)
    asked: int = 0
    seq: int = 0

    def __post_init__(self) -> None:
        self.lines.append(
            Run(
                **self.moment(),
                seed=7,
                faults=("kill",),
                claim_ttl_s=CLAIM_TTL_S,
                poll_s=1.0,
                provider_timeout_s=1.0,
                has_keys=self.has_keys,
                window_s=86_400.0,
                followup_delay_s=DAYS_3.total_seconds(),
            )
        )
        for pid in (11, 12, 13):
            self.signal("START", pid)
        self.now += 10.0

    def moment(self) -> dict[str, Any]:
        return {"mono": 100.0 + self.now, "at": START + timedelta(seconds=self.now)}

    @property
    def time(self) -> datetime:
        return START + timedelta(seconds=self.now)

    # ------------------------------------------------------------------------------------------ what is asked

    def request(self, act: Act, door: str, **fields: Any) -> Request:
        self.asked += 1
        request = Request(**self.moment(), n=self.asked, act=act, door=door, **fields)  # type: ignore[arg-type]  # the model checks it when it is made
        self.lines.append(request)
        self.now += 0.02
        return request

    def answer(self, request: Request, status: int | None, body: dict[str, Any] | None = None, **fields: Any) -> None:
        self.lines.append(Answer(**self.moment(), n=request.n, status=status, body=body or {}, **fields))
        self.now += 0.01

    def signup(
        self,
        user: str,
        *,
        id: str | None = None,
        ago: timedelta = timedelta(0),
        email: str | None = "",
        door: str = "events",
        lost: str = "",
    ) -> Request:
        """`lost`: `before` or `after` it took effect, the connection broke. `email` empty: the user's usual one."""
        address = f"{user}@example.com" if email == "" else email
        request = self.request(
            "signup", door, user=user, id=id or f"signup-{user}", occurred_at=self.time - ago, email=address
        )
        return self._take(request, lost)

    def login(
        self,
        user: str,
        *,
        id: str | None = None,
        ago: timedelta = timedelta(0),
        door: str = "webhook",
        lost: str = "",
    ) -> Request:
        request = self.request("login", door, user=user, id=id or f"login-{user}", occurred_at=self.time - ago)
        return self._take(request, lost)

    def again(self, request: Request, *, lost: str = "") -> Request:
        """The same, word for word."""
        self.asked += 1
        repeat = request.model_copy(update={**self.moment(), "n": self.asked, "resends": request.n})
        self.lines.append(repeat)
        self.now += 0.02
        return self._take(repeat, lost)

    def _take(self, request: Request, lost: str) -> Request:
        if lost == "before":
            self.answer(request, None)
            return request
        assert request.id is not None
        name = ("webhook" if request.door == "webhook" else "api", request.id)
        known = name in self.answers
        if not known:
            self.answers[name] = self._decide(request)
        body = dict(self.answers[name])
        if request.door != "webhook":
            body["event"] = {"id": request.id, "type": request.act, "duplicate": known}
        status = 200 if known or request.door == "webhook" else 202
        if lost == "after":
            self.answer(request, None)
        else:
            self.answer(request, status, body, replayed=known)
        return request

    def _decide(self, request: Request) -> dict[str, Any]:
        user = request.user
        assert user is not None
        assert request.occurred_at is not None
        if request.email is not None and user not in self.erased:
            self.addresses[user] = request.email
        if request.act == "login":
            return self._stop(user, request.occurred_at, request.door == "webhook")
        told = []
        for kind, delay in (("onboarding", timedelta(0)), ("followup", DAYS_3)):
            row = self.rows.get((user, kind))
            entry: dict[str, Any] = {"kind": kind}
            if row is None and user not in self.erased:
                row = self._create(user, kind, request.occurred_at, request.occurred_at + delay)
            elif row is not None:
                entry["existing"] = True
            if row is not None:
                told.append({"id": row.id, **entry, "state": row.state, "due_at": row.due.isoformat()})
        return {"notifications": told, "canceled": [], "too_late": []}

    def _create(self, user: str, kind: str, decided: datetime, due: datetime) -> Row:
        row = Row(str(uuid.uuid5(_NAMES, f"id|{user}|{kind}")), user, kind, "scheduled", decided, due)
        login = self.logins.get(user)
        if kind == "followup" and login is not None and login >= decided:
            row.state, row.reason = "canceled", "login"
        elif self.time - decided > timedelta(days=7):
            row.state, row.reason = "skipped", "too_old"
        elif due <= self.time and user not in self.addresses:
            row.state, row.reason = "skipped", "no_recipient"
        elif due <= self.time:
            row.state = "pending"
        self.rows[user, kind] = row
        return row

    def _stop(self, user: str, occurred: datetime, with_untouched: bool) -> dict[str, Any]:
        if user not in self.erased:
            self.logins[user] = max(occurred, self.logins.get(user, occurred))
        lists: dict[str, list[dict[str, Any]]] = {"canceled": [], "too_late": [], "untouched": []}
        for row in self.of(user):
            concerned = row.kind == "followup" and occurred >= row.decided
            self._list(row, lists, concerned, "login")
        if with_untouched:
            return {"user_id": user, **lists}
        return {"notifications": [], "canceled": lists["canceled"], "too_late": lists["too_late"]}

    def _list(self, row: Row, lists: dict[str, list[dict[str, Any]]], concerned: bool, reason: str) -> None:
        entry: dict[str, Any] = {"id": row.id, "kind": row.kind}
        if concerned and row.state in ("scheduled", "pending") and row.doubt is None:
            row.state, row.reason = "canceled", reason
            lists["canceled"].append({**entry, "due_at": row.due.isoformat()})
        elif concerned and (row.state in ("sending", "sent", "uncertain") or row.doubt is not None):
            since = row.sent or row.doubt or self.time
            lists["too_late"].append({**entry, "state": row.state, "since": since.isoformat()})
        else:
            lists["untouched"].append({**entry, "state": row.state})

    def of(self, user: str) -> list[Row]:
        return [row for row in self.rows.values() if row.user == user]

    def erase(self, user: str, *, lost: str = "") -> Request:
        request = self.request("erase", "operate", user=user)
        if lost != "before":
            lists: dict[str, list[dict[str, Any]]] = {"canceled": [], "too_late": [], "untouched": []}
            for row in self.of(user):
                closed = row.state in ("canceled", "skipped", "failed")
                self._list(row, lists, not closed, "erased")
                if row.state == "pending":
                    row.state, row.reason = "uncertain", "erased"
            self.erased.add(user)
            self.addresses.pop(user, None)
        if lost:
            self.answer(request, None)
        else:
            self.answer(request, 200, {"user_id": user, **lists})
        return request

    def operate(self, act: Act, user: str, kind: str, *, lost: str = "", **detail: Any) -> Request:
        """Cancel, retry, resolve; the model knows whether it may."""
        row = self.rows[user, kind]
        request = self.request(act, "operate", user=user, notification=row.id, detail=detail)
        if lost == "before":
            self.answer(request, None)
            return request
        allowed = {
            "cancel": row.state in ("scheduled", "pending") and row.doubt is None,
            "retry": row.by_operator and not self._login_stands(row),
            "resolve": row.state == "uncertain",
        }[act]
        if not allowed:
            self.answer(request, 409, {"state": row.state})
            return request
        row.generation += 1
        if act == "cancel":
            row.state, row.reason, row.by_operator = "canceled", "operator", True
        elif detail.get("outcome") == "sent":
            row.state, row.reason, row.evidence, row.doubt = "sent", None, "operator", None
        elif act == "resolve" and (row.user in self.erased or self._login_stands(row)):
            row.state, row.reason, row.doubt = "canceled", "login", None
        else:
            row.resends += int(act == "resolve")
            row.state = "pending" if row.due <= self.time else "scheduled"
            row.reason, row.by_operator, row.doubt = None, False, None
        self.answer(
            request,
            None if lost else 200,
            {"id": row.id, "user_id": row.user, "kind": row.kind, "state": row.state, "reason": row.reason},
        )
        return request

    def _login_stands(self, row: Row) -> bool:
        login = self.logins.get(row.user)
        return row.kind == "followup" and login is not None and login >= row.decided

    # ------------------------------------------------------------------------------------------ what is sent

    def is_owed(self, row: Row) -> bool:
        return row.state == "pending" or (row.state == "scheduled" and row.due <= self.time)

    def call(
        self,
        user: str,
        kind: str,
        *,
        worker: str = "w11",
        verdict: str = "accepted",
        told: bool = True,
        settled: bool = True,
    ) -> Attempt:
        """One call of the provider; `told`: it answers; `settled`: the outcome is written."""
        row = self.rows[user, kind]
        assert self.is_owed(row), row
        row.generation += 1
        status: int | None = {"accepted": 200, "failed": 503, "busy": 429, "rejected": 422}.get(verdict)
        ids: tuple[str, ...] = ()
        taken = verdict == "accepted"
        if taken and self.has_keys and row.key in self.keys:
            verdict, status, ids, taken = "duplicate", 409, (self.keys[row.key],), False
        elif taken:
            ids = (f"mail-{self.seq}-{row.key}",)
        self.seq += 1
        attempt = Attempt(
            **self.moment(),
            seq=self.seq,
            key=row.key,
            worker=worker,
            generation=row.generation,
            user=user,
            kind=kind,
            to=(self.addresses.get(user, f"{user}@example.com"),),
            verdict="failed" if verdict == "busy" else verdict,
            status=status if told else None,
            message_ids=ids,
            answered=told,
        )
        self.lines.append(attempt)
        if taken:
            self.keys[row.key] = ids[0]
            self._mail(attempt)
        self.now += 0.03
        if not settled:
            row.state, row.doubt = "sending", row.doubt or self.time
        elif verdict == "rejected" and row.doubt is None:
            row.state, row.reason = "failed", "rejected"
        elif verdict in ("accepted", "duplicate") and told:
            row.state, row.sent, row.reason, row.doubt = "sent", self.time, None, None
        elif verdict == "busy":
            row.state = "pending"
        else:
            row.state, row.doubt = "pending", row.doubt or self.time
            if not self.has_keys:
                row.state, row.reason = "uncertain", "timeout"
        return attempt

    def _mail(self, attempt: Attempt) -> None:
        self.lines.append(
            Mail(
                **self.moment(),
                seq=attempt.seq,
                id=attempt.message_ids[0],
                key=attempt.key,
                user=attempt.user,
                kind=attempt.kind,
                to=attempt.to,
            )
        )

    def taken_over(self, user: str, kind: str) -> None:
        """Its claim ran out; somebody may claim it again, or, without keys, nobody may."""
        self.now += CLAIM_TTL_S
        row = self.rows[user, kind]
        row.state = "pending"
        if not self.has_keys:
            row.state, row.reason = "uncertain", "claim_lost"

    def signal(self, signal: str, pid: int, by: str = "") -> None:
        self.lines.append(
            Signal(
                **self.moment(),
                process=f"worker-{pid}",
                role="worker",
                pid=pid,
                signal=signal,  # type: ignore[arg-type]  # the model checks it when it is made
                worker=f"w{pid}",
                by=by,
            )
        )

    def fault(
        self, n: int, family: str, phase: str, *, name: str = "", pod: str | None = None, hides_answers: bool = False
    ) -> None:
        self.lines.append(
            Fault(
                **self.moment(),
                n=n,
                family=family,
                name=name or f"{family} trouble",
                detail={} if pod is None else {"pod": pod},
                phase=phase,  # type: ignore[arg-type]  # the model checks it when it is made
                hides_answers=hides_answers,
            )
        )

    def forget_keys(self) -> None:
        self.keys.clear()
        self.lines.append(KeysForgotten(**self.moment()))
        self.now += 0.01

    # ------------------------------------------------------------------------------------------ the end

    def finish(self, *, reached: bool = True) -> Sequence[Line]:
        """Send what is owed, come to rest, and ask the service what it thinks."""
        self.now += 10.0
        if reached:
            for row in list(self.rows.values()):
                if self.is_owed(row) and row.user not in self.addresses:
                    row.state, row.reason = "skipped", "no_recipient"
                elif self.is_owed(row):
                    self.call(row.user, row.kind, worker="w12")
        self.now += 1.0
        self.lines.append(Quiet(**self.moment(), reached=reached, after_s=10.0))
        for row in self.rows.values():
            document = {"state": row.state, "reason": row.reason, "evidence": row.evidence}
            self.lines.append(
                Opinion(
                    **self.moment(),
                    id=row.id,
                    user=row.user,
                    kind=row.kind,
                    state=row.state,
                    reason=row.reason,
                    document=document,
                )
            )
        rules = {f"I{n}": {"rule": "", "checked": True, "violations": 0} for n in range(8)}
        self.lines.append(Invariants(**self.moment(), document={"invariants": rules, "violations": 0}))
        return self.lines


DUE_IN_5_S = DAYS_3 - timedelta(seconds=5)


def a_history() -> Sequence[Line]:
    """A good run with a bit of everything."""
    story = Story()
    ada = story.signup("ada", ago=DUE_IN_5_S)
    story.call("ada", "onboarding")
    story.signup("bob", ago=DUE_IN_5_S, lost="after")
    lost = story.signup("cid", ago=DUE_IN_5_S, lost="before", door="batch")
    story.again(lost)
    story.again(ada)
    story.call("cid", "onboarding", settled=False)
    story.signal("KILL", 11, by="failpoint worker.mid_send")
    story.taken_over("cid", "onboarding")
    story.call("cid", "onboarding", worker="w12")
    login = story.login("ada")
    story.again(login)
    story.now += 5.0
    story.call("cid", "followup", worker="w13")
    story.login("cid", door="events")
    story.login("bob", lost="after")
    return story.finish()
