"""The lab's judge: what counts as lost, doubled, sent after a login, and wrongly failed, and what does not."""

from __future__ import annotations

from notifier.proof.lab.judge import Fault, announced, judge
from notifier.proof.lab.record import Login, Record
from notifier.proof.lab.script import FOLLOWUP, ONBOARDING, Script, User

SCRIPT = Script(1, (User("u1", 0.0, (), None),), (), ())
WELCOME, LATER = ("u1", ONBOARDING), ("u1", FOLLOWUP)


def faults(record: Record, kind: str = ONBOARDING) -> set[Fault]:
    return {fault for fault, mails in judge(SCRIPT, record, [kind]).items() if mails}


def test_a_mail_that_was_taken_once_suffered_nothing() -> None:
    record = Record()
    record.taken[WELCOME].append(1.0)
    assert faults(record) == set()


def test_a_mail_that_nobody_took_is_lost_also_when_it_was_left_uncertain() -> None:
    assert faults(Record()) == {Fault.LOST}
    assert faults(Record(uncertain={WELCOME})) == {Fault.LOST}


def test_a_mail_that_the_provider_refused_is_not_lost() -> None:
    assert faults(Record(refused={WELCOME})) == set()
    assert faults(Record(refused={WELCOME}, failed={WELCOME})) == set()


def test_a_mail_taken_twice_is_doubled() -> None:
    record = Record()
    record.taken[WELCOME] += [1.0, 2.0]
    assert faults(record) == {Fault.DUPLICATED}


def test_failed_is_wrong_where_it_was_taken_or_never_refused() -> None:
    record = Record(failed={WELCOME})
    assert faults(record) == {Fault.LOST, Fault.WRONGLY_FAILED}
    record.taken[WELCOME].append(1.0)
    record.refused.add(WELCOME)
    assert faults(record) == {Fault.WRONGLY_FAILED}


def test_a_call_that_began_after_a_login_is_a_fault_where_nobody_was_told() -> None:
    record = Record(logins={"u1": Login(5.0, stopped=None)})
    assert faults(record, FOLLOWUP) == set()  # stopped it
    record.taken[LATER].append(4.9)
    assert faults(record, FOLLOWUP) == set()
    record.taken[LATER][0] = 5.1
    assert faults(record, FOLLOWUP) == {Fault.AFTER_LOGIN}


def test_a_login_that_was_told_stopped_is_a_promise_and_one_told_too_late_leaves_the_mail_owed() -> None:
    record = Record(logins={"u1": Login(5.0, stopped=True)})
    assert faults(record, FOLLOWUP) == set()
    record.taken[LATER].append(4.9)
    assert faults(record, FOLLOWUP) == {Fault.AFTER_LOGIN}
    record.logins["u1"] = Login(5.0, stopped=False, was_late=True)
    assert faults(record, FOLLOWUP) == set()
    assert announced(record) == 0
    record.taken[LATER][0] = 5.1
    assert faults(record, FOLLOWUP) == set()
    assert announced(record) == 1
    record.taken.clear()
    assert faults(record, FOLLOWUP) == {Fault.LOST}


def test_told_too_late_excuses_nothing_where_the_mail_still_waited_for_anybody_to_take_it() -> None:
    record = Record(logins={"u1": Login(5.0, stopped=False, was_late=False)})
    assert faults(record, FOLLOWUP) == set()  # nothing was sent, and nothing is owed
    record.taken[LATER].append(5.1)
    assert faults(record, FOLLOWUP) == {Fault.AFTER_LOGIN}
    assert announced(record) == 0
