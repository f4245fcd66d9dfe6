"""Our tables in memory: stand-ins for the SQL of notifier.store, each move one step under the same condition.

`accept`: outbox.of_users, moves.cancel_scheduled and cancel_open, acceptance.write. `release`: moves.release. `claim`,
`expired`, `take_over`: deliveries, by the same names. `settle`: results.settle, put_back and late_evidence. No SQL
runs, so no isolation level, lock order or plan is shown here.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from notifier.domain.event import Event
from notifier.domain.journey import Creation, Journeys, Seen, UserState, cancel_reason, plan
from notifier.domain.notification import MOVES, NotificationRow, Settlement, State
from notifier.proof.lab.record import Mail
from notifier.proof.lab.strategies.guards import Guard

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


def instant(seconds: float) -> datetime:
    """The lab's seconds as an instant."""
    return EPOCH + timedelta(seconds=seconds)


def seconds(at: datetime) -> float:
    """An instant as the lab's seconds."""
    return (at - EPOCH).total_seconds()


@dataclass(slots=True)
class _Delivery:
    """An open notification. Times are seconds."""

    next_attempt_at: float
    entered_at: float
    generation: int = 0
    attempts: int = 0
    waits: int = 0
    claimed_by: str | None = None
    claimed_at: float = 0.0
    expires_at: float = 0.0
    doubt_since: float | None = None


@dataclass(frozen=True, slots=True)
class Claim:
    """What a worker holds: the row as the claim left it."""

    mail: Mail
    worker: str
    generation: int
    attempts: int
    waits: int
    claimed_at: float
    entered_at: float
    doubt_since: float | None


@dataclass(frozen=True, slots=True)
class Answer:
    """What an event led to, stored with it and given again on a repeat."""

    created: tuple[str, ...]
    stopped: tuple[str, ...]
    too_late: tuple[str, ...]


class Outbox:
    """Users, events, decisions, and the three places a notification can be in; `without` names guards taken out."""

    def __init__(self, journeys: Journeys, without: Collection[Guard]) -> None:
        self._journeys, self._without = journeys, frozenset(without)
        self._events: dict[str, Answer] = {}
        self._last_seen: dict[str, dict[str, Seen]] = {}
        self._decided: dict[Mail, Creation] = {}
        self._copies = 0
        self.scheduled: dict[Mail, float] = {}
        self.deliveries: dict[Mail, _Delivery] = {}
        self.settlements: dict[Mail, tuple[State, str | None]] = {}

    # ------------------------------------------------------------------------------------------ events

    def accept(self, event: Event, now: float) -> Answer:
        """Take one event in one transaction, under its user's lock."""
        stored = self._events.get(event.id)
        if stored is not None:
            return stored
        occurred_at = event.occurred_at or instant(now)
        seen = self._last_seen.setdefault(event.user_id, {})
        rows = [self._row(mail) for mail in self._mails(event.user_id)]
        user = UserState(event.user_id, event.profile.email, None, None, None, {}, rows, seen)
        decided = plan(event, occurred_at, user, self._journeys, instant(now))
        if event.type not in seen or seen[event.type].at < occurred_at:
            seen[event.type] = Seen(occurred_at, event.ref)
        stopped = [row.kind for row in decided.cancel if self._cancel((event.user_id, row.kind), event.type)]
        for creation in decided.create:
            self._create((event.user_id, creation.kind), creation, now)
        rows_now = {row.kind: self._row((event.user_id, row.kind)) for row in decided.cancel}
        too_late = [kind for kind, row in rows_now.items() if kind not in stopped and row.is_too_late]
        answer = Answer(tuple(item.kind for item in decided.create), tuple(stopped), tuple(too_late))
        self._events[event.id] = answer
        return answer

    def _mails(self, user: str) -> list[Mail]:
        known = [(user, kind) for kind in self._journeys.kinds if (user, kind) in self._decided]
        return [] if Guard.UNIQUE in self._without else known

    def _create(self, mail: Mail, creation: Creation, now: float) -> None:
        assert mail not in self._decided or Guard.UNIQUE in self._without, "unique (user, kind)"
        self._decided[mail] = creation
        self.settlements.pop(mail, None)
        if creation.state is State.SCHEDULED:
            self.scheduled[mail] = seconds(creation.due_at)
        elif creation.state is State.PENDING:
            self.deliveries[mail] = _Delivery(now, now)
        else:
            self.settlements[mail] = (creation.state, creation.reason)

    def _cancel(self, mail: Mail, event_type: str) -> bool:
        """Close what waits, or is owed, unclaimed and without doubt; whether a row moved."""
        if Guard.LOGIN in self._without:
            return False
        row = self.deliveries.get(mail)
        open_for_cancel = row is not None and (
            Guard.CANCEL in self._without or (row.claimed_by is None and row.doubt_since is None)
        )
        if mail not in self.scheduled and not open_for_cancel:
            return False
        self._check(mail, State.CANCELED)
        self.scheduled.pop(mail, None)
        self.deliveries.pop(mail, None)
        self.settlements[mail] = (State.CANCELED, cancel_reason(event_type))
        return True

    # ------------------------------------------------------------------------------------------ workers

    def release(self, now: float) -> list[Mail]:
        """Move what is due into deliveries."""
        due = [mail for mail, at in self.scheduled.items() if at <= now]
        for mail in due:
            self._check(mail, State.PENDING)
            del self.scheduled[mail]
            self.deliveries[mail] = _Delivery(now, now)
        return due

    def claim(self, worker: str, limit: int, now: float, ttl_s: float) -> list[Claim]:
        """Claim what is due and held by nobody."""
        due = [m for m, row in self.deliveries.items() if row.claimed_by is None and row.next_attempt_at <= now]
        return [self._claim(mail, worker, now, ttl_s) for mail in due[:limit]]

    def expired(self, now: float, ttl_s: float) -> dict[Mail, bool]:
        """Rows whose claim ran out → whether so long ago that no lease saves them."""
        held = {mail: row for mail, row in self.deliveries.items() if row.claimed_by is not None}
        return {mail: row.expires_at + ttl_s <= now for mail, row in held.items() if row.expires_at <= now}

    def take_over(self, worker: str, mails: Collection[Mail], now: float, ttl_s: float) -> list[Claim]:
        """Claim those of `mails` whose claim is still expired; each comes in doubt, since its owner may have called."""
        taken = []
        for mail in mails:
            row = self.deliveries.get(mail)
            if row is None or row.claimed_by is None or row.expires_at > now:
                continue
            if Guard.DOUBT not in self._without and row.doubt_since is None:
                row.doubt_since = row.claimed_at
            taken.append(self._claim(mail, worker, now, ttl_s))
        return taken

    def _claim(self, mail: Mail, worker: str, now: float, ttl_s: float) -> Claim:
        row = self.deliveries[mail]
        row.generation, row.attempts, row.claimed_by = row.generation + 1, row.attempts + 1, worker
        row.claimed_at, row.expires_at = now, now + ttl_s
        return Claim(mail, worker, row.generation, row.attempts, row.waits, now, row.entered_at, row.doubt_since)

    def settle(self, claim: Claim, settlement: Settlement, *, called: bool, now: float) -> bool:
        """Write what came of a claim, if generation and owner are still ours; whether they were.

        Whoever lost the claim and knows that it was taken is evidence all the same, and ends an uncertainty.
        """
        row = self.deliveries.get(claim.mail)
        if Guard.FENCE in self._without:
            row = row or _Delivery(now, claim.entered_at)
        elif row is None or (row.generation, row.claimed_by) != (claim.generation, claim.worker):
            if settlement.state is State.SENT and self.is_uncertain(claim.mail):
                self.settlements[claim.mail] = (State.SENT, None)
            return False
        if settlement.state is State.PENDING:
            self._put_back(claim.mail, row, settlement, called, now)
            return True
        self._check(claim.mail, settlement.state)
        self.deliveries.pop(claim.mail, None)
        self.settlements[claim.mail] = (settlement.state, settlement.reason)
        return True

    def _put_back(self, mail: Mail, row: _Delivery, settlement: Settlement, called: bool, now: float) -> None:
        if settlement.doubt and row.doubt_since is None and Guard.DOUBT not in self._without:
            row.doubt_since = row.claimed_at
        row.claimed_by = None
        row.attempts = max(0, row.attempts - (0 if settlement.counted else 1))
        row.waits += 1 if called and not settlement.counted else 0
        row.next_attempt_at = max(row.next_attempt_at, now + settlement.wait.total_seconds())
        self.settlements.pop(mail, None)
        self.deliveries[mail] = row

    # ------------------------------------------------------------------------------------------ reading

    def is_uncertain(self, mail: Mail) -> bool:
        """Whether it waits for evidence, or for a person."""
        return self.settlements.get(mail, (None, None))[0] is State.UNCERTAIN

    def is_beyond_recall(self, mail: Mail) -> bool:
        """Whether it is claimed, in doubt, sent or uncertain: read from the tables themselves, for the judge."""
        row = self.deliveries.get(mail)
        if row is not None:
            return row.claimed_by is not None or row.doubt_since is not None
        return self.settlements.get(mail, (None, None))[0] in (State.SENT, State.UNCERTAIN)

    def state(self, mail: Mail) -> State:
        """Where it stands."""
        if mail in self.scheduled:
            return State.SCHEDULED
        row = self.deliveries.get(mail)
        if row is not None:
            return State.PENDING if row.claimed_by is None else State.SENDING
        return self.settlements[mail][0]

    def _row(self, mail: Mail) -> NotificationRow:
        """One notification as ingest reads it."""
        creation, row = self._decided[mail], self.deliveries.get(mail)
        claimed = row is not None and row.claimed_by is not None
        return NotificationRow(
            id=uuid.uuid5(uuid.NAMESPACE_OID, "/".join(mail)),
            user_id=mail[0],
            kind=mail[1],
            state=self.state(mail),
            reason=None,
            decided_at=creation.decided_at,
            due_at=creation.due_at,
            cancel_on=creation.cancel_on,
            cancel_from=creation.cancel_from,
            claimed_at=instant(row.claimed_at) if row is not None and claimed else None,
            doubt_since=instant(row.doubt_since) if row is not None and row.doubt_since is not None else None,
            settled_at=None,
        )

    def _check(self, mail: Mail, to: State) -> None:
        """Hold the move against the table of moves; without its guards ours is not expected to keep to it."""
        assert self._without - {Guard.LEASE} or to in MOVES[self.state(mail)], (mail, self.state(mail), to)
