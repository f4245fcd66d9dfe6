"""The demo's judge: every way in which the record can differ from what was told is seen, and named."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

from notifier.demo.judge import FOLLOWUP, ONBOARDING, Record, Row, Told, judge

KILLED, FROZEN, SOUND = 11, 12, 13
ANN, BEN, CLEO, DAN = (f"{name}@example.com" for name in ("ann", "ben", "cleo", "dan"))

Json = dict[str, Any]


def a_telling() -> Told:
    """Four people: Ann logs in in time, Ben too late, the others never."""
    return Told(
        people={ANN, BEN, CLEO, DAN},
        events=15,
        accepted=15,
        signups=4,
        repeats=8,
        repeats_known=8,
        second_signups=1,
        second_signups_idle=1,
        logins=2,
        canceled={ANN},
        too_late={BEN},
        killed_pid=KILLED,
        frozen_pid=FROZEN,
    )


def a_mail(address: str, kind: str) -> Json:
    return {"to": [address], "kind": kind, "key": f"key of {address} {kind}"}


def a_call(address: str, kind: str, verdict: str, pid: int) -> Json:
    return a_mail(address, kind) | {"verdict": verdict, "worker": f"a-host-{pid}-0123abcd"}


def a_record() -> Record:
    """Ann's welcome was sent by the worker that was killed, Ben's was in the frozen one's hand."""
    owed = [(person, ONBOARDING) for person in (ANN, BEN, CLEO, DAN)] + [(p, FOLLOWUP) for p in (BEN, CLEO, DAN)]
    calls = [a_call(*mail, "accepted", KILLED if mail == (ANN, ONBOARDING) else SOUND) for mail in owed]
    calls.append(a_call(ANN, ONBOARDING, "duplicate", SOUND))
    calls.append(a_call(BEN, ONBOARDING, "duplicate", FROZEN))
    return Record([a_mail(*mail) for mail in owed], calls)


def wrong(rows: list[Row]) -> set[str]:
    return {row.name for row in rows if not row.ok}


def test_a_record_that_fits_has_no_wrong_number() -> None:
    rows = judge(a_telling(), a_record())
    assert wrong(rows) == set()
    found = {row.name: row.found for row in rows}
    assert (found["people"], found["mails"], found["followups"], found["canceled"], found["refused"]) == (4, 7, 3, 1, 2)
    assert len(found) == len(rows)


Messages = list[Json]


def lose_a_welcome(mails: Messages) -> None:
    mails.remove(a_mail(CLEO, ONBOARDING))


def lose_a_followup(mails: Messages) -> None:
    mails.remove(a_mail(DAN, FOLLOWUP))


def lose_the_one_that_was_told_too_late(mails: Messages) -> None:
    mails.remove(a_mail(BEN, FOLLOWUP))


def send_a_welcome_twice(mails: Messages) -> None:
    mails.append(a_mail(CLEO, ONBOARDING) | {"key": "another"})


def send_the_killed_workers_mail_twice(mails: Messages) -> None:
    mails.append(a_mail(ANN, ONBOARDING))


def send_what_was_canceled(mails: Messages) -> None:
    mails.append(a_mail(ANN, FOLLOWUP))


def send_it_to_somebody_else(mails: Messages) -> None:
    mails[mails.index(a_mail(CLEO, FOLLOWUP))]["to"] = [ANN]


def send_it_to_a_stranger(mails: Messages) -> None:
    mails.append(a_mail("eve@example.com", ONBOARDING))


def send_another_kind(mails: Messages) -> None:
    mails.append(a_mail(DAN, "digest"))


def send_one_twice_and_another_never(mails: Messages) -> None:
    lose_a_followup(mails)
    mails.append(a_mail(CLEO, FOLLOWUP))


@pytest.mark.parametrize(
    ("doctor", "rows", "named"),
    [
        (lose_a_welcome, {"mails", "onboarding", "lost"}, "cleo@example.com (onboarding)"),
        (lose_a_followup, {"mails", "followups", "lost"}, "dan@example.com (followup)"),
        (lose_the_one_that_was_told_too_late, {"mails", "followups", "lost", "too_late"}, "ben@example.com (followup)"),
        (send_a_welcome_twice, {"mails", "onboarding", "twice"}, "cleo@example.com (onboarding)"),
        (
            send_the_killed_workers_mail_twice,
            {"mails", "onboarding", "twice", "killed"},
            "ann@example.com (onboarding)",
        ),
        (send_what_was_canceled, {"mails", "followups", "unasked", "canceled"}, "ann@example.com (followup)"),
        (send_it_to_somebody_else, {"lost", "unasked", "canceled"}, "cleo@example.com (followup)"),
        (send_it_to_a_stranger, {"mails", "onboarding", "unasked"}, "eve@example.com (onboarding)"),
        (send_another_kind, {"mails", "unasked"}, "dan@example.com (digest)"),
        (send_one_twice_and_another_never, {"lost", "twice"}, "dan@example.com (followup)"),
    ],
)
def test_a_doctored_inbox_is_seen(doctor: Callable[[Messages], None], rows: set[str], named: str) -> None:
    record = a_record()
    messages = [deepcopy(dict(message)) for message in record.messages]
    doctor(messages)
    judged = judge(a_telling(), Record(messages, record.attempts))
    assert wrong(judged) == rows
    assert named in {name for row in judged for name in row.wrong}


@pytest.mark.parametrize(
    ("verdict", "pid", "rows"),
    [
        ("duplicate", FROZEN, {"refused", "late_calls"}),
        ("duplicate", SOUND, {"refused"}),
        ("accepted", KILLED, {"killed"}),
    ],
)
def test_a_call_that_was_not_made_is_missed(verdict: str, pid: int, rows: set[str]) -> None:
    record = a_record()
    left = [call for call in record.attempts if call not in record.calls_of(pid, verdict)]
    assert wrong(judge(a_telling(), Record(record.messages, left))) == rows


@pytest.mark.parametrize(
    ("change", "rows"),
    [
        ({"accepted": 14}, {"events"}),
        ({"signups": 5}, {"people"}),
        ({"repeats_known": 7}, {"repeats"}),
        ({"second_signups_idle": 0}, {"again"}),
        ({"logins": 3}, {"logins"}),
        ({"too_late": {ANN, BEN}}, {"logins", "too_late"}),
        ({"under_way": 1}, {"under_way"}),
        ({"killed_pid": 1}, {"killed"}),
    ],
)
def test_an_answer_that_does_not_fit_is_seen(change: Json, rows: set[str]) -> None:
    told = a_telling()
    for name, value in change.items():
        setattr(told, name, value)
    assert wrong(judge(told, a_record())) == rows


def test_a_call_without_a_worker_or_of_a_like_named_host_is_nobodys() -> None:
    calls = [
        a_call(ANN, ONBOARDING, "accepted", SOUND) | {"worker": worker} for worker in (None, "", "11", "x-11-7-ab")
    ]
    assert Record([], calls).calls_of(KILLED) == []
