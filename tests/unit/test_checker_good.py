"""The checker passes what is right: each lawful story, however odd, is no violation; and what is excused is named."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from notifier.proof.checker import Verdict, explain, judge
from notifier.proof.history import Line, Signal
from tests.support.histories import CLAIM_TTL_S, DUE_IN_5_S, Story, a_history


def passed(lines: Sequence[Line]) -> Verdict:
    """Judge, and tell why when it is not good."""
    verdict = judge(lines)
    assert verdict.is_good, "\n".join(line for finding in verdict.violations for line in explain(finding))
    return verdict


def excuses(verdict: Verdict) -> list[tuple[str, str | None, str | None]]:
    return [(finding.rule, finding.user, finding.kind) for finding in verdict.excused]


def test_a_run_with_a_bit_of_everything() -> None:
    verdict = passed(a_history())
    assert verdict.excused == ()
    assert verdict.totals["signups_acknowledged"] == 2
    assert verdict.totals["mails_accepted"] == 4
    assert verdict.totals["requests_without_answer"] == 3
    assert verdict.totals["duplicates_refused"] == 1
    [takeover] = verdict.takeovers
    assert (takeover.user, takeover.worker, takeover.held_up) == ("cid", "w11", None)
    assert takeover.seconds == CLAIM_TTL_S


def test_the_order_of_the_lines_means_nothing() -> None:
    passed(sorted(a_history(), key=lambda line: (line.what, line.mono), reverse=True))


def test_an_unanswered_signup_may_be_mailed_or_not() -> None:
    for lost in ("before", "after"):
        story = Story()
        story.signup("ada", lost=lost)
        passed(story.finish())


def test_only_the_repeat_is_acknowledged() -> None:
    story = Story()
    first = story.signup("ada", lost="after")
    story.again(first, lost="before")
    story.again(first)
    verdict = passed(story.finish())
    assert verdict.totals["signups_acknowledged"] == 1


def test_what_an_operator_reads_is_no_promise() -> None:
    story = Story()
    story.signup("ada", ago=DUE_IN_5_S)
    story.call("ada", "onboarding")
    story.operate("cancel", "ada", "followup")
    row = story.rows["ada", "followup"]
    read = story.request("read", "operate", user="ada")
    found = {"id": row.id, "user_id": "ada", "kind": "followup", "state": "canceled", "reason": "operator"}
    story.answer(read, 200, {"notifications": [found], "next": None})
    story.operate("retry", "ada", "followup")
    story.now += 6
    story.call("ada", "followup")
    passed(story.finish())


def test_a_storm_of_repeats_over_two_doors() -> None:
    story = Story()
    first = story.signup("ada")
    for _ in range(5):
        story.again(first)
        story.again(first.model_copy(update={"door": "batch"}))
    passed(story.finish())


def test_a_login_before_its_signup() -> None:
    story = Story()
    story.login("ada")
    story.signup("ada", ago=DUE_IN_5_S)
    story.now += 20
    verdict = passed(story.finish())
    assert verdict.totals["followups_accepted"] == 0


def test_an_older_login_cancels_nothing() -> None:
    story = Story()
    story.login("ada", ago=timedelta(days=4))
    story.signup("ada", ago=DUE_IN_5_S)
    story.login("ada", id="later", ago=timedelta(days=5))
    story.now += 20
    assert passed(story.finish()).totals["followups_accepted"] == 1


def test_a_second_signup_changes_nothing() -> None:
    story = Story()
    story.signup("ada", ago=DUE_IN_5_S)
    story.signup("ada", id="again", ago=timedelta(days=1))
    story.now += 20
    passed(story.finish())


def test_the_deciding_signup_had_no_answer() -> None:
    story = Story()
    story.signup("ada", ago=DUE_IN_5_S, lost="after")
    story.signup("ada", id="again", ago=timedelta(days=1))
    story.now += 20
    passed(story.finish())


def test_a_login_that_came_too_late() -> None:
    story = Story()
    story.signup("ada", ago=DUE_IN_5_S)
    story.now += 6
    story.call("ada", "followup")
    story.login("ada")
    story.login("ada", id="by event", door="events")
    passed(story.finish())


def test_two_logins() -> None:
    story = Story()
    story.signup("ada", ago=DUE_IN_5_S)
    story.login("ada", id="one")
    story.login("ada", id="two")
    passed(story.finish())


def test_refused_for_now_then_canceled() -> None:
    story = Story()
    story.signup("ada", ago=DUE_IN_5_S)
    story.now += 6
    story.call("ada", "followup", verdict="busy")
    story.login("ada")
    passed(story.finish())


def test_refused_for_good() -> None:
    story = Story()
    story.signup("ada")
    story.call("ada", "onboarding", verdict="rejected")
    passed(story.finish())


def test_no_address_and_too_old() -> None:
    story = Story()
    story.signup("ada", email=None)
    story.signup("bob", ago=timedelta(days=8))
    passed(story.finish())


def test_an_operator_cancels_and_retries() -> None:
    for lost in ("", "after"):
        story = Story()
        story.signup("ada")
        story.operate("cancel", "ada", "onboarding", lost=lost)
        passed(list(story.finish()))
        story = Story()
        story.signup("ada")
        story.operate("cancel", "ada", "onboarding")
        story.operate("retry", "ada", "onboarding", lost=lost)
        assert passed(story.finish()).totals["onboardings_accepted"] == 1


def test_a_login_after_an_operators_cancel() -> None:
    story = Story()
    story.signup("ada", ago=DUE_IN_5_S)
    story.operate("cancel", "ada", "followup")
    story.login("ada")
    story.operate("retry", "ada", "followup")  # 409
    story.now += 20
    passed(story.finish())


def test_an_erased_user() -> None:
    for lost in ("", "after", "before"):
        story = Story()
        story.signup("ada", ago=DUE_IN_5_S)
        story.call("ada", "onboarding")
        story.erase("ada", lost=lost)
        story.signup("ada", id="again")
        story.now += 20
        passed(story.finish())


def test_without_keys_a_call_in_hand_ends_uncertain() -> None:
    story = Story(has_keys=False)
    for user, told in (("ada", False), ("bob", True)):
        story.signup(user)
        story.call(user, "onboarding", told=told)
    story.signup("cid")
    story.call("cid", "onboarding", verdict="hung", told=False)
    verdict = passed(story.finish())
    assert excuses(verdict) == [("uncertain", "cid", "onboarding")]
    assert verdict.totals["uncertain"] == 2


def test_a_person_says_not_sent_and_there_are_two() -> None:
    story = Story(has_keys=False)
    story.signup("ada")
    story.call("ada", "onboarding", told=False)
    story.operate("resolve", "ada", "onboarding", outcome="not_sent")
    assert passed(story.finish()).totals["onboardings_accepted"] == 2


def test_a_person_says_not_sent_and_a_login_stands() -> None:
    story = Story(has_keys=False)
    story.signup("ada", ago=DUE_IN_5_S)
    story.call("ada", "onboarding")
    story.now += 6
    story.call("ada", "followup", verdict="reset", told=False)
    story.login("ada")  # too late
    story.operate("resolve", "ada", "followup", outcome="not_sent")
    assert passed(story.finish()).totals["followups_accepted"] == 0


def test_a_person_says_sent_and_there_is_none() -> None:
    story = Story(has_keys=False)
    story.signup("ada")
    story.call("ada", "onboarding", verdict="hung", told=False)
    story.operate("resolve", "ada", "onboarding", outcome="sent")
    passed(story.finish())


def forgotten(*, told: bool) -> Story:
    story = Story()
    story.signup("ada")
    story.call("ada", "onboarding", told=told, settled=False)
    story.forget_keys()
    story.taken_over("ada", "onboarding")
    story.call("ada", "onboarding", worker="w12")
    return story


def test_a_second_mail_after_the_keys_were_forgotten_in_doubt() -> None:
    verdict = passed(forgotten(told=False).finish())
    assert excuses(verdict) == [("keys forgotten", "ada", "onboarding")]
    assert any(line.what == "keys_forgotten" for line in verdict.excused[0].events)


def test_a_second_mail_after_the_keys_were_forgotten_under_a_killed_worker() -> None:
    story = Story()
    story.signup("ada")
    story.call("ada", "onboarding", settled=False)
    story.signal("KILL", 11)
    story.forget_keys()
    story.taken_over("ada", "onboarding")
    story.call("ada", "onboarding", worker="w12")
    assert excuses(passed(story.finish())) == [("keys forgotten", "ada", "onboarding")]


def test_a_second_mail_whose_call_was_on_its_way_when_the_keys_were_forgotten() -> None:
    """The first is known to have been sent; another worker's call for it comes through only now."""

    def told(frozen: bool, wire: bool) -> Story:
        story = Story()
        story.signup("ada")
        if frozen:
            story.signal("STOP", 13)
        if wire:
            story.fault(1, "network", "begin", hides_answers=True)
        story.now += CLAIM_TTL_S
        story.call("ada", "onboarding", worker="w12")
        story.now += CLAIM_TTL_S
        story.forget_keys()
        story.now += 1
        if frozen:
            story.signal("CONT", 13)
        if wire:
            story.fault(1, "network", "end")
        story.rows["ada", "onboarding"].state = "pending"  # as the late worker believes
        story.call("ada", "onboarding", worker="w13")
        return story

    for frozen, wire in ((True, False), (False, True)):
        assert excuses(passed(told(frozen, wire).finish())) == [("keys forgotten", "ada", "onboarding")]
    assert [finding.rule for finding in judge(told(False, False).finish()).violations] == ["I2"]


def test_an_address_that_another_event_gave() -> None:
    story = Story()
    change = story.request("other", "events", user="ada", id="change", email="ada@example.org")
    story.addresses["ada"] = "ada@example.org"
    story.answer(change, 202, {"event": {"duplicate": False}, "notifications": []})
    story.signup("ada", email=None)
    assert passed(story.finish()).totals["onboardings_accepted"] == 1


def test_a_takeover_that_a_switch_or_the_database_held_up() -> None:
    def told(trouble: str) -> Story:
        story = Story()
        story.signup("ada")
        story.call("ada", "onboarding", settled=False)
        story.signal("KILL", 11)
        if trouble == "switch":
            request = story.request("switch", "operate", detail={"name": "pause", "method": "PUT", "ttl_s": 30})
            story.answer(request, 200, {})
        if trouble == "postgres":
            fields = {"process": "postgres", "role": "postgres", "pid": 1, "signal": "KILL"}
            story.lines.append(Signal(**story.moment(), **fields))  # type: ignore[arg-type]  # the model checks it when it is made
        story.now += 30
        story.taken_over("ada", "onboarding")
        story.call("ada", "onboarding", worker="w12")
        return story

    for trouble, name in (("switch", "a switch"), ("postgres", "the database")):
        [takeover] = passed(told(trouble).finish()).takeovers
        assert takeover.held_up == name
    assert [finding.rule for finding in judge(told("").finish()).violations] == ["I7"]


def test_a_frozen_worker_that_thaws_and_leaves_it_to_another() -> None:
    story = Story()
    story.signup("ada")
    story.call("ada", "onboarding", settled=False)
    story.signal("STOP", 11)
    story.now += 1
    story.signal("CONT", 11)
    story.now += 20
    story.taken_over("ada", "onboarding")
    story.call("ada", "onboarding", worker="w12")
    [takeover] = passed(story.finish()).takeovers
    assert takeover.held_up is not None


def test_a_worker_that_froze_and_died_is_taken_over_once() -> None:
    story = Story()
    story.signup("ada")
    story.call("ada", "onboarding", settled=False)
    story.signal("STOP", 11)
    story.signal("KILL", 11)
    story.taken_over("ada", "onboarding")
    story.call("ada", "onboarding", worker="w12")
    assert len(passed(story.finish()).takeovers) == 1


def test_a_worker_that_drained_left_nothing_in_hand() -> None:
    story = Story()
    story.signup("ada")
    story.call("ada", "onboarding", told=False)
    story.signal("TERM", 11)
    story.signal("END", 11)
    story.now += 30
    assert passed(story.finish()).takeovers == ()


def test_a_worker_killed_without_anything_in_hand() -> None:
    story = Story()
    story.signup("ada")
    story.call("ada", "onboarding")
    story.now += 10
    story.signal("KILL", 11)
    verdict = passed(story.finish())
    assert verdict.takeovers == ()


def test_a_takeover_that_a_fault_held_up() -> None:
    story = Story()
    story.signup("ada")
    story.fault(1, "postgres", "begin")
    story.call("ada", "onboarding", settled=False)
    story.signal("KILL", 11)
    story.now += 30
    story.fault(1, "postgres", "end")
    story.taken_over("ada", "onboarding")
    story.call("ada", "onboarding", worker="w12")
    [takeover] = passed(story.finish()).takeovers
    assert takeover.seconds > 30
    assert takeover.held_up == "fault 1, postgres: postgres trouble"


def test_a_frozen_worker_that_thaws_and_ends_it_itself() -> None:
    story = Story()
    story.signup("ada")
    story.call("ada", "onboarding", verdict="hung", told=False)
    story.signal("STOP", 11)
    story.now += 20
    story.signal("CONT", 11)
    story.call("ada", "onboarding", worker="w11")
    passed(story.finish())


def test_what_is_not_due_yet_may_wait() -> None:
    story = Story()
    story.signup("ada")
    passed(story.finish())
