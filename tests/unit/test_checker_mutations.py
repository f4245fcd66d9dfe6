"""The checker sees what is wrong: a good history with one line taken out, put in, swapped or moved breaks its rule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest

from notifier.proof.checker import Finding, explain, judge
from notifier.proof.history import Answer, Attempt, Line, Mail, Opinion, Request
from tests.support.histories import CLAIM_TTL_S, DUE_IN_5_S, Story, a_history

Pick = Callable[[Any], bool]


def a(form: type[Any], /, **fields: Any) -> Pick:
    """Lines of one kind with these fields."""
    return lambda line: isinstance(line, form) and all(getattr(line, name) == value for name, value in fields.items())


def answers_to(lines: Sequence[Line], act: str, user: str) -> Pick:
    asked = {line.n for line in lines if isinstance(line, Request) and line.act == act and line.user == user}
    return lambda line: isinstance(line, Answer) and line.n in asked


def without(lines: Sequence[Line], pick: Pick) -> list[Line]:
    kept = [line for line in lines if not pick(line)]
    assert len(kept) < len(lines), "nothing was taken out"
    return kept


def changed(lines: Sequence[Line], pick: Pick, **fields: Any) -> list[Line]:
    assert any(pick(line) for line in lines), "nothing was changed"
    return [line.model_copy(update=fields) if pick(line) else line for line in lines]


def moved(lines: Sequence[Line], pick: Pick, seconds: float) -> list[Line]:
    assert any(pick(line) for line in lines), "nothing was moved"
    by = timedelta(seconds=seconds)
    return [
        line.model_copy(update={"at": line.at + by, "mono": line.mono + seconds}) if pick(line) else line
        for line in lines
    ]


def rewritten(lines: Sequence[Line], pick: Pick, body: Callable[[dict[str, Any]], dict[str, Any]]) -> list[Line]:
    """The same with another body in each answer that is picked."""
    assert any(pick(line) for line in lines), "nothing was rewritten"
    return [
        line.model_copy(update={"body": body(line.body)}) if isinstance(line, Answer) and pick(line) else line
        for line in lines
    ]


def broken(lines: Sequence[Line], rule: str, user: str | None = None, kind: str | None = None) -> Finding:
    """The finding of this rule about this notification; there must be one."""
    violations = judge(lines).violations
    told = "\n".join(line for finding in violations for line in explain(finding))
    for finding in violations:
        if (finding.rule, finding.user, finding.kind) == (rule, user, kind):
            return finding
    raise AssertionError(f"no {rule} of {user} {kind} in:\n{told}")


def one_user(*, due: bool = True) -> Story:
    story = Story()
    story.signup("ada", ago=DUE_IN_5_S)
    story.call("ada", "onboarding")
    story.now += 6 if due else 0
    return story


# ---------------------------------------------------------------------------------------------- I1, I4


@pytest.mark.parametrize(("kind", "rule"), [("onboarding", "I1"), ("followup", "I4")])
def test_a_mail_taken_out(kind: str, rule: str) -> None:
    lines = one_user().finish()
    finding = broken(without(lines, a(Mail, kind=kind)), rule, "ada", kind)
    assert [line.what for line in finding.events] == ["request", "answer", "attempt", "opinion"]
    broken(without(lines, a(Mail, kind=kind)), "record", "ada")
    bare = without(without(lines, a(Mail, kind=kind)), a(Attempt, kind=kind))
    broken(bare, rule, "ada", kind)
    broken(bare, "I6", "ada", kind)


@pytest.mark.parametrize("state", ["canceled", "skipped", "failed", "uncertain", "pending"])
def test_the_services_word_excuses_nothing(state: str) -> None:
    lines = one_user().finish()
    bare = without(without(lines, a(Mail, kind="onboarding")), a(Attempt, kind="onboarding"))
    broken(changed(bare, a(Opinion, kind="onboarding"), state=state, reason="login"), "I1", "ada", "onboarding")


def test_an_acknowledged_repeat_owes_the_mail_too() -> None:
    story = Story()
    story.again(story.signup("ada", lost="before"))
    lines = story.finish()
    broken(without(without(lines, a(Mail)), a(Attempt)), "I1", "ada", "onboarding")


def test_a_retry_owes_the_mail_again() -> None:
    story = Story()
    story.signup("ada")
    story.operate("cancel", "ada", "onboarding")
    story.operate("retry", "ada", "onboarding")
    lines = story.finish()
    broken(without(without(lines, a(Mail)), a(Attempt)), "I1", "ada", "onboarding")


def test_too_late_owes_the_follow_up() -> None:
    story = one_user()
    story.call("ada", "followup")
    story.login("ada")
    lines = story.finish()
    broken(without(lines, a(Mail, kind="followup")), "I4", "ada", "followup")


def test_a_follow_up_before_it_is_due() -> None:
    lines = one_user().finish()
    early = moved(moved(lines, a(Mail, kind="followup"), -13), a(Attempt, kind="followup"), -13)
    broken(early, "I4", "ada", "followup")


# ---------------------------------------------------------------------------------------------- I2


def with_copy(lines: Sequence[Line], seconds: float = 1.0, **fields: Any) -> list[Line]:
    """Every onboarding mail a second time."""
    copies: list[Line] = []
    for line in lines:
        if isinstance(line, Mail) and line.kind == "onboarding":
            copies.append(line.model_copy(update={"id": "copy", "at": line.at + timedelta(seconds=seconds), **fields}))
        if isinstance(line, Attempt) and line.kind == "onboarding":
            later = {"message_ids": ("copy",), "at": line.at + timedelta(seconds=seconds), "seq": 1_000, **fields}
            copies.append(line.model_copy(update=later))
    return [*lines, *copies]


def test_a_mail_twice() -> None:
    lines = one_user().finish()
    finding = broken(with_copy(lines), "I2", "ada", "onboarding")
    assert finding.sentence == "accepted twice under one key"
    assert [line.what for line in finding.events] == ["mail", "attempt", "mail", "attempt"] or len(finding.events) == 4
    assert "2 keys" in broken(with_copy(lines, key="another"), "I2", "ada", "onboarding").sentence


def test_a_mail_twice_without_keys() -> None:
    story = Story(has_keys=False)
    story.signup("ada")
    story.call("ada", "onboarding")
    broken(with_copy(story.finish(), key=None), "I2", "ada", "onboarding")


def test_a_refused_resolve_asks_for_no_second_mail() -> None:
    story = Story(has_keys=False)
    story.signup("ada")
    story.call("ada", "onboarding", told=False)
    asked = story.operate("resolve", "ada", "onboarding", outcome="not_sent")
    lines = story.finish()
    broken(changed(lines, a(Answer, n=asked.n), status=409, body={}), "I2", "ada", "onboarding")
    for name, value in (("act", "retry"), ("detail", {"outcome": "sent"})):
        broken(changed(lines, a(Request, n=asked.n), **{name: value}), "I2", "ada", "onboarding")


def test_keys_forgotten_excuse_nothing_that_was_settled() -> None:
    story = Story()
    story.signup("ada")
    story.call("ada", "onboarding")
    story.now += 5
    story.forget_keys()
    broken(with_copy(story.finish(), seconds=10), "I2", "ada", "onboarding")


def test_keys_forgotten_excuse_nothing_that_only_another_worker_met() -> None:
    """What may hide an answer must have befallen the very worker that got it, and just then."""

    def told(trouble: str) -> list[Line]:
        story = Story()
        story.signup("ada")
        if trouble == "another worker's wire":
            story.fault(1, "network", "begin", name="provider_silent", pod="worker-12", hides_answers=True)
        story.call("ada", "onboarding")
        if trouble == "another worker":
            story.signal("KILL", 12)
        if trouble == "its worker drained":
            story.signal("TERM", 11)
            story.signal("END", 11)
        story.now += 2
        if trouble == "its worker, later":
            story.signal("KILL", 11)
        story.forget_keys()
        return with_copy(story.finish(), seconds=10)

    for trouble in ("another worker's wire", "another worker", "its worker drained", "its worker, later"):
        broken(told(trouble), "I2", "ada", "onboarding")


def test_keys_forgotten_excuse_nothing_that_a_wire_let_through_long_before() -> None:
    """The second call came seconds after its worker thawed or its wire healed: it was begun only then."""

    def told(by: str, after_s: float) -> list[Line]:
        story = Story()
        story.signup("ada")
        story.call("ada", "onboarding", worker="w12")
        story.now += CLAIM_TTL_S
        if by == "frozen":
            story.signal("STOP", 13)
        else:
            story.fault(1, "network", "begin", name=by, pod="worker-13", hides_answers=True)
        story.forget_keys()
        if by == "frozen":
            story.signal("CONT", 13)
        else:
            story.fault(1, "network", "end", name=by, pod="worker-13", hides_answers=True)
        story.now += after_s
        story.rows["ada", "onboarding"].state = "pending"  # as the late worker believes
        story.call("ada", "onboarding", worker="w13")
        return list(story.finish())

    for by in ("frozen", "provider_silent"):
        assert judge(told(by, 1.0)).is_good
        broken(told(by, 5.0), "I2", "ada", "onboarding")
    broken(told("provider_cut", 1.0), "I2", "ada", "onboarding")


def test_keys_forgotten_excuse_nothing_that_was_written_once_the_database_was_back() -> None:
    def told(*, died: bool = False, back_s: float = 5.0, wire: bool = False) -> list[Line]:
        story = Story()
        story.signup("ada")
        story.call("ada", "onboarding", settled=False)
        story.fault(1, "postgres", "begin")
        if wire:  # of another worker, whose call for it may have been lost
            story.fault(2, "network", "begin", pod="worker-12", hides_answers=True)
        story.now += 1
        if died:
            story.signal("KILL", 11)
        story.fault(1, "postgres", "end")
        story.now += back_s
        story.forget_keys()
        return with_copy(story.finish(), seconds=20)

    assert not [found for found in judge(told(died=True)).violations if found.rule == "I2"]
    assert not [found for found in judge(told(back_s=1)).violations if found.rule == "I2"]
    assert not [found for found in judge(told(wire=True)).violations if found.rule == "I2"]
    broken(told(), "I2", "ada", "onboarding")


def test_keys_forgotten_excuse_nothing_that_somebody_would_have_repeated() -> None:
    """Its worker died just after the answer; nobody asked again although another was at work: it had been written."""

    def told(*, at_work: bool) -> list[Line]:
        story = Story()
        story.signup("ada")
        story.call("ada", "onboarding")
        story.signal("KILL", 11)
        story.now += 2 * CLAIM_TTL_S
        for number in range(5 if at_work else 0):
            story.signup(f"u{number}")
            story.call(f"u{number}", "onboarding", worker="w12")
            story.now += 1
        story.forget_keys()
        copy = next(line for line in with_copy(story.lines, seconds=20) if isinstance(line, Mail) and line.id == "copy")
        return [*story.finish(), copy]

    broken(told(at_work=True), "I2", "ada", "onboarding")
    assert not [found for found in judge(told(at_work=False)).violations if found.rule == "I2"]


def test_keys_forgotten_excuse_no_second_key_and_nothing_without_keys() -> None:
    story = Story()
    story.signup("ada")
    story.call("ada", "onboarding", told=False, settled=False)
    story.forget_keys()
    story.taken_over("ada", "onboarding")
    story.call("ada", "onboarding", worker="w12")
    lines = list(story.finish())
    assert judge(lines).is_good
    second = a(Mail, seq=2)
    broken(changed(lines, second, key="another"), "I2", "ada", "onboarding")
    run = lines[0].model_copy(update={"has_keys": False})
    broken([run, *lines[1:]], "I2", "ada", "onboarding")


def test_keys_forgotten_excuse_no_worker_that_died_long_after() -> None:
    story = Story()
    story.signup("ada")
    story.call("ada", "onboarding")
    story.now += 30
    story.signal("KILL", 11)
    story.forget_keys()
    broken(with_copy(story.finish(), seconds=40), "I2", "ada", "onboarding")


def test_keys_forgotten_afterwards_excuse_nothing() -> None:
    story = Story()
    story.signup("ada")
    story.call("ada", "onboarding", told=False, settled=False)
    story.taken_over("ada", "onboarding")
    story.call("ada", "onboarding", worker="w12")
    story.now += 60
    story.forget_keys()
    first = next(line for line in story.lines if isinstance(line, Mail))
    second = first.model_copy(update={"id": "copy", "at": first.at + timedelta(seconds=5)})
    broken([*story.finish(), second], "I2", "ada", "onboarding")


def test_another_body_under_the_key() -> None:
    lines = a_history()
    broken(changed(lines, a(Attempt, verdict="duplicate"), verdict="body_mismatch"), "I2", "cid", "onboarding")


def test_a_repeat_under_another_key_or_by_another_worker_under_one_generation() -> None:
    story = a_death(0, verdict="hung")
    story.call("ada", "onboarding", worker="w12")
    lines = story.finish()
    assert judge(lines).is_good
    first = a(Attempt, kind="onboarding", worker="w11")
    assert "2 keys" in broken(changed(lines, first, key="another"), "I2", "ada", "onboarding").sentence
    assert "one generation" in broken(changed(lines, first, generation=2), "I2", "ada", "onboarding").sentence


def test_another_key_before_a_person_asked_for_it() -> None:
    story = Story(has_keys=False)
    story.signup("ada")
    story.call("ada", "onboarding", told=False, verdict="hung")
    resolve = story.operate("resolve", "ada", "onboarding", outcome="not_sent", lost="after")
    story.call("ada", "onboarding", worker="w12")
    lines = story.finish()
    assert judge(lines).is_good
    early = moved(moved(lines, a(Attempt, worker="w12"), -0.1), a(Mail), -0.1)
    assert resolve not in broken(early, "I2", "ada", "onboarding").events


# ---------------------------------------------------------------------------------------------- I3


def canceled_by(door: str) -> tuple[list[Line], Request]:
    story = one_user(due=False)
    login = story.login("ada", door=door)
    story.again(login)
    return list(story.finish()), login


def a_mail_after_all(lines: Sequence[Line], kind: str = "followup", seconds: float = 5.0) -> list[Line]:
    """The follow-up is sent although it was canceled: `seconds` after the start."""
    at = lines[0].at + timedelta(seconds=20 + seconds)
    call = next(line for line in lines if isinstance(line, Attempt))
    attempt = call.model_copy(update={"seq": 99, "kind": kind, "key": "f", "at": at, "message_ids": ("late",)})
    mail = Mail(mono=0, at=at, seq=99, id="late", key="f", user="ada", kind=kind, to=call.to)
    return [*lines, attempt, mail]


@pytest.mark.parametrize("door", ["webhook", "events"])
def test_a_mail_that_was_listed_as_canceled(door: str) -> None:
    lines, login = canceled_by(door)
    finding = broken(a_mail_after_all(lines), "I3", "ada", "followup")
    assert login in finding.events
    assert finding.events[-1].what == "mail"
    broken(a_mail_after_all(lines), "I6", "ada", "followup")


def test_when_it_was_accepted_makes_no_difference() -> None:
    lines, _ = canceled_by("webhook")
    broken(a_mail_after_all(lines, seconds=-100), "I3", "ada", "followup")


def test_a_call_for_what_was_canceled() -> None:
    lines, _ = canceled_by("webhook")
    call = next(line for line in lines if isinstance(line, Attempt))
    late = {"kind": "followup", "verdict": "failed", "status": 503, "message_ids": (), "at": lines[-1].at, "seq": 99}
    finding = broken([*lines, call.model_copy(update=late)], "I3", "ada", "followup")
    assert "call" in finding.sentence


def test_a_mail_that_an_operator_canceled() -> None:
    story = Story()
    story.signup("ada")
    story.operate("cancel", "ada", "onboarding")
    retry = story.operate("retry", "ada", "onboarding")
    story.call("ada", "onboarding")
    lines = list(story.finish())
    broken(without(without(lines, a(Request, n=retry.n)), a(Answer, n=retry.n)), "I3", "ada", "onboarding")
    broken(changed(lines, a(Answer, n=retry.n), status=409, body={}), "I3", "ada", "onboarding")
    early = moved(moved(lines, a(Mail), -0.05), a(Attempt), -0.05)
    broken(early, "I3", "ada", "onboarding")


def test_a_mail_that_an_erasure_canceled() -> None:
    story = Story()
    story.signup("ada", ago=DUE_IN_5_S)
    story.call("ada", "onboarding")
    story.erase("ada")
    broken(a_mail_after_all(story.finish()), "I3", "ada", "followup")


def test_a_follow_up_that_was_created_canceled() -> None:
    story = Story()
    story.login("ada")
    story.signup("ada", ago=DUE_IN_5_S)
    broken(a_mail_after_all(story.finish()), "I3", "ada", "followup")


@pytest.mark.parametrize("has_keys", [True, False])
def test_a_call_for_what_was_resolved_as_canceled(has_keys: bool) -> None:
    def told(*, frozen: bool) -> list[Line]:
        story = Story(has_keys=False)
        story.signup("ada", ago=DUE_IN_5_S)
        story.call("ada", "onboarding")
        story.now += 6
        if frozen:
            story.signal("STOP", 13)
        story.call("ada", "followup", told=False, verdict="hung")
        story.login("ada")
        story.operate("resolve", "ada", "followup", outcome="not_sent")
        if frozen:
            story.signal("CONT", 13)
        call = next(line for line in reversed(story.lines) if isinstance(line, Attempt))
        lines = list(story.finish())
        at = story.time - timedelta(seconds=10)
        late = {"seq": 99, "at": at, "generation": 9, "worker": "w13", "verdict": "failed", "status": 503}
        run = lines[0].model_copy(update={"has_keys": has_keys})
        return [run, *lines[1:], call.model_copy(update={**late, "key": call.key if frozen else "new"})]

    assert "call" in broken(told(frozen=False), "I3", "ada", "followup").sentence
    assert not [found for found in judge(told(frozen=True)).violations if found.rule == "I3"]


def test_a_follow_up_that_a_later_signup_finds_canceled() -> None:
    story = one_user(due=False)
    story.login("ada", lost="after")
    story.signup("ada", id="again")
    broken(a_mail_after_all(story.finish()), "I3", "ada", "followup")


def test_an_operator_may_lift_what_a_signup_finds_canceled() -> None:
    story = Story()
    story.signup("ada")
    story.operate("cancel", "ada", "onboarding")
    story.signup("ada", id="again")
    story.operate("retry", "ada", "onboarding")
    assert judge(story.finish()).is_good


def test_a_repeat_that_is_told_something_else() -> None:
    lines, login = canceled_by("webhook")
    last = max(line.n for line in lines if isinstance(line, Answer))
    other = rewritten(lines, a(Answer, n=last), lambda body: {**body, "canceled": [], "untouched": body["canceled"]})
    finding = broken(other, "I3", "ada")
    assert login in finding.events


# ---------------------------------------------------------------------------------------------- answers


def test_one_id_taken_as_new_twice() -> None:
    story = Story()
    story.again(story.signup("ada"))
    lines = story.finish()
    fresh = rewritten(lines, a(Answer, replayed=True), lambda body: {**body, "event": {"duplicate": False}})
    broken(changed(fresh, a(Answer, replayed=True), replayed=False, status=202), "answers", "ada")
    broken(changed(lines, a(Answer, replayed=True), status=202), "answers", "ada")


def test_one_id_with_two_contents() -> None:
    story = Story()
    again = story.again(story.signup("ada"))
    other = {"email": "other@example.com"}
    broken(changed(story.finish(), a(Request, n=again.n), **other), "answers", "ada")


def test_a_notification_with_two_ids() -> None:
    lines, _ = canceled_by("webhook")
    told = rewritten(lines, answers_to(lines, "login", "ada"), move_entry("canceled", "canceled", id="another"))
    assert "2 ids" in broken(told, "answers", "ada", "followup").sentence
    broken(changed(lines, a(Opinion, kind="followup"), id="another"), "answers", "ada", "followup")


def test_a_replay_of_nothing() -> None:
    story = Story()
    first = story.signup("ada", lost="after")
    story.again(first)
    lines = without(without(story.finish(), a(Request, n=first.n)), a(Answer, n=first.n))
    broken(lines, "answers", "ada")


def move_entry(source: str, target: str, **fields: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Take the follow-up from one list of an answer to another."""

    def body(old: dict[str, Any]) -> dict[str, Any]:
        mine = [{**entry, **fields} for entry in old[source] if entry["kind"] == "followup"]
        rest = {**old, source: [entry for entry in old[source] if entry["kind"] != "followup"]}
        return {**rest, target: [*rest.get(target, []), *mine]}

    return body


def test_a_follow_up_that_a_login_calls_untouched() -> None:
    lines, _ = canceled_by("webhook")
    for state in ("scheduled", "pending", "sending", "sent"):
        told = rewritten(lines, answers_to(lines, "login", "ada"), move_entry("canceled", "untouched", state=state))
        broken(told, "answers", "ada", "followup")


def test_too_late_without_doubt() -> None:
    lines, _ = canceled_by("webhook")
    pick = answers_to(lines, "login", "ada")
    for state, since in (("pending", None), ("scheduled", None), ("sending", None), ("sent", None)):
        told = rewritten(lines, pick, move_entry("canceled", "too_late", state=state, since=since))
        broken(told, "answers", "ada", "followup")
    doubtful = move_entry("canceled", "too_late", state="pending", since=lines[0].at.isoformat())
    broken(rewritten(lines, pick, doubtful), "answers", "ada", "followup")


@pytest.mark.parametrize("state", ["sending", "uncertain"])
def test_too_late_before_it_was_due(state: str) -> None:
    """The only login came in time, is told that it came too late, and the follow-up goes out."""
    lines, login = canceled_by("webhook")
    said = changed(a_mail_after_all(lines), a(Opinion, kind="followup"), state="sent", reason=None)
    told = move_entry("canceled", "too_late", state=state, since=login.at.isoformat())
    wrong = rewritten(said, answers_to(lines, "login", "ada"), told)
    assert {found.rule for found in judge(wrong).violations} == {"answers"}


@pytest.mark.parametrize("state", ["pending", "sending", "uncertain"])
def test_no_trouble_makes_it_too_late_before_it_was_due(state: str) -> None:
    story = one_user(due=False)
    story.fault(1, "postgres", "begin")
    login = story.login("ada")
    told = move_entry("canceled", "too_late", state=state, since=login.at.isoformat())
    wrong = rewritten(story.finish(), a(Answer, n=login.n), told)
    assert "before it was due" in broken(wrong, "answers", "ada", "followup").sentence


def test_too_late_by_a_claim_that_had_no_call_of_its_own() -> None:
    story = one_user()
    login = story.login("ada")
    at = story.time
    story.now += 4 * CLAIM_TTL_S
    lines = a_mail_after_all(story.finish(), seconds=15)
    told = move_entry("canceled", "too_late", state="sending", since=at.isoformat())
    broken(rewritten(lines, a(Answer, n=login.n), told), "answers", "ada", "followup")


def test_a_list_that_leaves_something_out_or_has_it_twice() -> None:
    lines, _ = canceled_by("webhook")
    pick = answers_to(lines, "login", "ada")
    broken(rewritten(lines, pick, lambda body: {**body, "untouched": []}), "answers", "ada", "onboarding")
    twice = rewritten(lines, pick, lambda body: {**body, "untouched": body["untouched"] * 2})
    broken(twice, "answers", "ada", "onboarding")
    stopped = move_entry("canceled", "untouched", state="canceled")
    both = rewritten(lines, pick, lambda body: {**stopped(body), "canceled": body["canceled"]})
    broken(both, "answers", "ada", "followup")


def test_two_logins_that_each_canceled_it() -> None:
    story = one_user(due=False)
    story.login("ada", id="one")
    second = story.login("ada", id="two")
    told = rewritten(story.finish(), a(Answer, n=second.n), move_entry("untouched", "canceled"))
    broken(told, "answers", "ada", "followup")


def test_a_login_that_does_not_concern_it() -> None:
    story = one_user(due=False)
    login = story.login("ada", ago=timedelta(days=5))
    told = rewritten(story.finish(), a(Answer, n=login.n), move_entry("untouched", "canceled"))
    broken(told, "answers", "ada", "followup")


def test_a_mail_after_a_login_that_was_not_told() -> None:
    story = one_user()
    story.call("ada", "followup")
    login = story.login("ada", door="events")
    told = rewritten(story.finish(), a(Answer, n=login.n), lambda body: {**body, "too_late": []})
    broken(told, "answers", "ada", "followup")


def test_a_follow_up_that_a_login_in_time_does_not_name() -> None:
    lines, _ = canceled_by("events")
    told = rewritten(lines, answers_to(lines, "login", "ada"), lambda body: {**body, "canceled": []})
    broken(told, "answers", "ada", "followup")
    assert judge(changed(told, a(Opinion, kind="followup"), state="skipped", reason="suppressed")).is_good


def test_a_signup_whose_answer_is_wrong() -> None:
    lines = one_user().finish()
    pick = answers_to(lines, "signup", "ada")

    def told(**fields: Any) -> list[Line]:
        return rewritten(
            lines, pick, lambda body: {**body, "notifications": [{**e, **fields} for e in body["notifications"]]}
        )

    broken(rewritten(lines, pick, lambda body: {**body, "notifications": []}), "answers", "ada", "onboarding")
    broken(told(existing=True), "answers", "ada", "followup")
    broken(told(state="canceled"), "answers", "ada", "followup")
    broken(told(due_at=lines[0].at.isoformat()), "answers", "ada", "followup")
    broken(told(due_at=None), "answers", "ada", "followup")
    broken(told(id="one id for both"), "answers")


def test_a_signup_that_does_not_know_of_the_login_before_it() -> None:
    story = Story()
    story.login("ada")
    story.signup("ada", ago=DUE_IN_5_S)
    lines = story.finish()
    pick = answers_to(lines, "signup", "ada")
    told = rewritten(
        lines,
        pick,
        lambda body: {**body, "notifications": [{**e, "state": "scheduled"} for e in body["notifications"]]},
    )
    broken(told, "answers", "ada", "followup")


def test_two_signups_that_each_created_it() -> None:
    story = one_user()
    second = story.signup("ada", id="again")
    told = rewritten(
        story.finish(),
        a(Answer, n=second.n),
        lambda body: {
            **body,
            "notifications": [{n: v for n, v in e.items() if n != "existing"} for e in body["notifications"]],
        },
    )
    broken(told, "answers", "ada", "onboarding")


def test_an_erasure_that_leaves_something_open() -> None:
    story = one_user(due=False)
    erase = story.erase("ada")
    told = rewritten(story.finish(), a(Answer, n=erase.n), move_entry("canceled", "untouched", state="scheduled"))
    broken(told, "answers", "ada", "followup")


# ---------------------------------------------------------------------------------------------- I5


def test_nobody_asked() -> None:
    lines = one_user().finish()
    request, answer = answers_to(lines, "signup", "ada"), a(Request, user="ada")
    broken(without(without(lines, request), answer), "I5", "ada", "onboarding")
    broken(changed(lines, request, status=422, body={}), "I5", "ada", "onboarding")
    broken(changed(lines, a(Mail, kind="onboarding"), kind="welcome"), "I5", "ada", "welcome")
    broken(changed(lines, a(Mail, kind="onboarding"), user="eve"), "I5", "eve", "onboarding")
    broken(changed(lines, a(Mail, kind="onboarding"), user=None), "I5")
    broken(changed(lines, a(Mail, kind="onboarding"), to=("eve@example.com",)), "I5", "ada", "onboarding")
    broken(changed(lines, a(Mail, kind="onboarding"), to=()), "I5", "ada", "onboarding")
    broken(moved(lines, a(Mail, kind="onboarding"), -20), "I5", "ada", "onboarding")


def test_a_signup_after_an_erasure_asks_for_nothing() -> None:
    story = Story()
    story.signup("bob")
    story.call("bob", "onboarding")
    story.login("ada")
    story.erase("ada")
    story.signup("ada")
    sent = a_mail_after_all(story.finish(), kind="onboarding")
    finding = broken(changed(sent, a(Mail, seq=99), to=("ada@example.com",)), "I5", "ada", "onboarding")
    assert "nobody had asked" in finding.sentence


# ---------------------------------------------------------------------------------------------- I6


@pytest.mark.parametrize("state", ["scheduled", "pending", "sending", "canceled", "skipped", "failed"])
def test_accepted_and_called_something_else(state: str) -> None:
    broken(changed(one_user().finish(), a(Opinion), state=state, reason="x"), "I6", "ada", "onboarding")


def test_opinions_that_contradict_the_record() -> None:
    lines = one_user().finish()
    onboarding = a(Opinion, kind="onboarding")
    broken(without(lines, onboarding), "I6", "ada", "onboarding")
    broken([*lines, next(line for line in lines if onboarding(line))], "I6", "ada", "onboarding")
    broken(changed(lines, onboarding, user="eve"), "I5", "eve", "onboarding")
    broken(changed(lines, onboarding, state="uncertain", reason="timeout"), "I6", "ada", "onboarding")


def test_resolved_as_sent_is_sent() -> None:
    story = Story(has_keys=False)
    story.signup("ada")
    story.call("ada", "onboarding", told=False, verdict="hung")
    resolve = story.operate("resolve", "ada", "onboarding", outcome="sent")
    lines = story.finish()
    assert judge(lines).is_good
    wrong = changed(lines, a(Opinion, kind="onboarding"), state="failed", reason="rejected")
    assert resolve in broken(wrong, "I6", "ada", "onboarding").events


def test_an_end_without_a_reason_or_without_a_cause() -> None:
    lines, _ = canceled_by("webhook")
    broken(changed(lines, a(Opinion, kind="followup"), reason=None), "I6", "ada", "followup")
    broken(changed(lines, a(Opinion, kind="followup"), state="skipped"), "I6", "ada", "followup")
    story = Story()
    story.signup("ada")
    broken(changed(story.finish(), a(Opinion, kind="followup"), state="canceled", reason="x"), "I6", "ada", "followup")


def test_still_open_when_all_was_quiet() -> None:
    story = Story()
    story.signup("ada", ago=DUE_IN_5_S)
    story.call("ada", "onboarding")
    story.now += 60
    lines = list(story.finish())
    bare = without(without(lines, a(Mail, kind="followup")), a(Attempt, kind="followup"))
    for state in ("scheduled", "pending", "sending"):
        broken(changed(bare, a(Opinion, kind="followup"), state=state), "I6", "ada", "followup")


def test_the_service_counts_violations_of_its_own() -> None:
    lines = one_user().finish()
    document = {"invariants": {"I3": {"violations": 2}, "I0": {"violations": 0}}, "violations": 2}
    finding = broken(changed(lines, lambda line: line.what == "invariants", document=document), "I6")
    assert "I3" in finding.sentence
    assert "I0" not in finding.sentence


# ---------------------------------------------------------------------------------------------- I7, quiet, record


def a_death(after_s: float, verdict: str = "accepted") -> Story:
    story = Story()
    story.signup("ada")
    story.call("ada", "onboarding", verdict=verdict, settled=False)
    story.signal("KILL", 11, by="failpoint worker.mid_send")
    story.signal("END", 11)
    story.now += after_s
    story.taken_over("ada", "onboarding")
    return story


def test_a_takeover_that_came_too_late() -> None:
    story = a_death(20)
    story.call("ada", "onboarding", worker="w12")
    finding = broken(story.finish(), "I7", "ada", "onboarding")
    assert [line.what for line in finding.events] == ["attempt", "signal", "attempt"]


def test_a_takeover_is_late_although_much_was_broken_if_another_worker_was_at_work() -> None:
    def told(*, busy: bool) -> Story:
        story = a_death(0)
        story.fault(1, "provider", "begin", hides_answers=True)
        story.fault(2, "network", "begin", pod="worker-13", hides_answers=True)
        for number in range(20 if busy else 0):
            story.signup(f"u{number}")
            story.call(f"u{number}", "onboarding", worker="w12")
            story.now += 0.2
        story.now += 20
        story.call("ada", "onboarding", worker="w12")
        return story

    broken(told(busy=True).finish(), "I7", "ada", "onboarding")
    verdict = judge(told(busy=False).finish())
    assert verdict.is_good
    assert (verdict.totals["takeovers_judged"], verdict.totals["takeovers_held_up"]) == (0, 1)


def test_a_call_that_nobody_took_over() -> None:
    lines = a_death(0, verdict="hung").finish()
    bare = without(without(lines, a(Mail)), a(Attempt, worker="w12"))
    broken(bare, "I7", "ada", "onboarding")
    broken(bare, "I1", "ada", "onboarding")


def test_without_another_worker_nobody_is_late() -> None:
    story = a_death(20)
    story.call("ada", "onboarding", worker="w12")
    lines = without(story.finish(), lambda line: line.what == "signal" and line.signal == "START")
    assert not judge(lines).violations
    assert judge(lines).takeovers[0].held_up == "no other worker was up"


def test_not_quiet() -> None:
    story = Story()
    story.signup("ada")
    lines = story.finish(reached=False)
    finding = broken(lines, "quiet")
    assert "ada onboarding pending" in finding.sentence
    assert [found.rule for found in judge(lines).violations] == ["quiet"]
    broken(without(lines, lambda line: line.what == "quiet"), "quiet")


@pytest.mark.parametrize("state", ["pending", "sending"])
def test_what_was_under_way_when_it_was_not_quiet_may_be_accepted_by_now(state: str) -> None:
    """The service is asked before the provider, and meanwhile mails go on."""
    story = Story()
    story.signup("ada")
    story.call("ada", "onboarding")
    lines = changed(story.finish(reached=False), a(Opinion, kind="onboarding"), state=state, reason=None)
    assert [finding.rule for finding in judge(lines).violations] == ["quiet"]


def test_a_record_that_contradicts_itself() -> None:
    lines = one_user().finish()
    broken(without(lines, a(Request)), "record")
    broken([*lines, next(line for line in lines if isinstance(line, Answer))], "record")
    broken(without(lines, a(Attempt)), "record", "ada")
