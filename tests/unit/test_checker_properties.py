"""Any history of a correct service is judged good, and any harm done to it is found: random stories, random harm."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta

from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.strategies import DataObject

from notifier.proof.checker import explain, judge
from notifier.proof.history import Answer, Attempt, KeysForgotten, Line, Mail, Opinion, dump, load
from tests.support.histories import CLAIM_TTL_S, DAYS_3, DUE_IN_5_S, Story

USERS = ("ada", "bob", "cid")
AGES = (timedelta(0), timedelta(days=1), DUE_IN_5_S, DAYS_3 + timedelta(minutes=1), timedelta(days=8))
LOST = ("", "", "", "before", "after")


def tell(draw: DataObject, *, has_keys: bool, may_forget: bool = True) -> Story:
    """Let a story happen, step by step as it is drawn."""
    story = Story(has_keys=has_keys)
    steps: list[Callable[[Story, DataObject], None]] = [_signup, _signup, _login, _repeat, _call, _call, _die, _operate]
    steps += [_erase, _wait] + ([_forget] if may_forget else [])
    for step in draw.draw(st.lists(st.sampled_from(steps), min_size=5, max_size=30)):
        step(story, draw)
    return story


def _user(draw: DataObject) -> str:
    return draw.draw(st.sampled_from(USERS))


def _signup(story: Story, draw: DataObject) -> None:
    ago, lost = draw.draw(st.sampled_from(AGES)), draw.draw(st.sampled_from(LOST))
    door, email = draw.draw(st.sampled_from(["events", "batch"])), draw.draw(st.sampled_from(["", "", "", None]))
    story.signup(_user(draw), id=f"s{story.asked}", ago=ago, lost=lost, door=door, email=email)


def _login(story: Story, draw: DataObject) -> None:
    ago, lost = draw.draw(st.sampled_from(AGES)), draw.draw(st.sampled_from(LOST))
    door = draw.draw(st.sampled_from(["events", "batch", "webhook"]))
    story.login(_user(draw), id=f"l{story.asked}", ago=ago, lost=lost, door=door)


def _repeat(story: Story, draw: DataObject) -> None:
    known = [line for line in story.lines if line.what == "request" and line.door != "operate"]
    if known:
        story.again(draw.draw(st.sampled_from(known)), lost=draw.draw(st.sampled_from(LOST)))


def _owed(story: Story) -> list[tuple[str, str]]:
    return [(row.user, row.kind) for row in story.rows.values() if story.is_owed(row) and row.user in story.addresses]


def _call(story: Story, draw: DataObject) -> None:
    if owed := _owed(story):
        verdict = draw.draw(st.sampled_from(["accepted", "accepted", "failed", "busy", "rejected", "hung"]))
        told = verdict != "hung" and (verdict != "accepted" or draw.draw(st.booleans()))
        story.call(*draw.draw(st.sampled_from(owed)), worker="w12", verdict=verdict, told=told)


def _die(story: Story, draw: DataObject) -> None:
    """A worker dies over a call, and another one takes it over."""
    if owed := _owed(story):
        name = draw.draw(st.sampled_from(owed))
        pid = 1_000 + story.asked + story.seq
        story.signal("START", pid)
        story.call(*name, worker=f"w{pid}", verdict=draw.draw(st.sampled_from(["accepted", "hung"])), settled=False)
        story.signal("KILL", pid)
        if draw.draw(st.booleans()):
            story.login(name[0], id=f"l{story.asked}")
        story.taken_over(*name)
        if story.is_owed(story.rows[name]):
            story.call(*name, worker="w13")


def _operate(story: Story, draw: DataObject) -> None:
    if story.rows:
        name = draw.draw(st.sampled_from(sorted(story.rows)))
        lost = draw.draw(st.sampled_from(LOST))
        act = draw.draw(st.sampled_from(["cancel", "retry", "resolve"]))
        detail = {"outcome": draw.draw(st.sampled_from(["sent", "not_sent"]))} if act == "resolve" else {}
        story.operate(act, *name, lost=lost, **detail)


def _erase(story: Story, draw: DataObject) -> None:
    if story.rows:
        story.erase(draw.draw(st.sampled_from(sorted(story.rows)))[0], lost=draw.draw(st.sampled_from(LOST)))


def _wait(story: Story, draw: DataObject) -> None:
    story.now += draw.draw(st.sampled_from([1.0, CLAIM_TTL_S, 10.0]))


def _forget(story: Story, draw: DataObject) -> None:
    story.forget_keys()


@given(st.data(), st.booleans())
def test_a_correct_service_is_judged_good(draw: DataObject, has_keys: bool) -> None:
    lines = tell(draw, has_keys=has_keys).finish()
    verdict = judge(lines)
    assert verdict.is_good, "\n".join(line for finding in verdict.violations for line in explain(finding))
    assert judge(load(map(dump, lines))) == verdict, "what is written down says the same"
    assert judge(reversed(lines)).is_good, "the order of the lines means nothing"


# ------------------------------------------------------------------------------------------- harm


def _accepted(lines: Sequence[Line], draw: DataObject) -> Mail:
    mails = [line for line in lines if isinstance(line, Mail)]
    assume(mails)
    return draw.draw(st.sampled_from(mails))


def copy_a_mail(lines: list[Line], draw: DataObject) -> tuple[str, list[Line]]:
    mail = _accepted(lines, draw)
    assume(not any(isinstance(line, KeysForgotten) for line in lines))
    later = mail.at + timedelta(seconds=draw.draw(st.floats(0, 60)))
    return "I2", [*lines, mail.model_copy(update={"id": "copy", "at": later})]


def lose_a_mail(lines: list[Line], draw: DataObject) -> tuple[str, list[Line]]:
    mail = _accepted(lines, draw)
    return "record", [line for line in lines if line != mail]


def send_a_mail_elsewhere(lines: list[Line], draw: DataObject) -> tuple[str, list[Line]]:
    mail = _accepted(lines, draw)
    other = draw.draw(st.sampled_from([{"to": ("eve@example.com",)}, {"user": "eve"}, {"kind": "welcome"}]))
    return "I5", [line.model_copy(update=other) if line == mail else line for line in lines]


def break_a_promise(lines: list[Line], draw: DataObject) -> tuple[str, list[Line]]:
    promised = [
        (line.n, entry["kind"])
        for line in lines
        if isinstance(line, Answer) and line.status
        for entry in line.body.get("canceled", [])
    ]
    assume(promised)
    n, kind = draw.draw(st.sampled_from(promised))
    user = next(line.user for line in lines if line.what == "request" and line.n == n)
    at = lines[0].at + timedelta(seconds=draw.draw(st.floats(0, 120)))
    mail = Mail(mono=0, at=at, seq=999, id="late", key="k", user=user, kind=kind, to=(f"{user}@example.com",))
    return "I3", [*lines, mail]


def call_after_a_promise(lines: list[Line], draw: DataObject) -> tuple[str, list[Line]]:
    _, broken = break_a_promise(lines, draw)
    mail = broken[-1]
    assert isinstance(mail, Mail)
    call = Attempt(
        **mail.model_dump(include={"seq", "key", "user", "kind", "to"}),
        mono=0,
        at=max(line.at for line in lines),
        worker="w12",
        generation=1,
        verdict="failed",
        status=503,
    )
    return "I3", [*lines, call]


def believe_otherwise(lines: list[Line], draw: DataObject) -> tuple[str, list[Line]]:
    sent = {(line.user, line.kind) for line in lines if isinstance(line, Mail)}
    told = [line for line in lines if isinstance(line, Opinion)]
    wrong = [
        (line, {"state": "skipped", "reason": "x"} if (line.user, line.kind) in sent else {"state": "sent"})
        for line in told
        if line.state in ("canceled", "skipped")
        or (line.state == "sent" and line.document.get("evidence") != "operator")
    ]
    wrong = [(line, other) for line, other in wrong if other["state"] != line.state]
    resolved = any(line.what == "request" and line.act == "resolve" for line in lines)
    assume(wrong and not resolved)
    line, other = draw.draw(st.sampled_from(wrong))
    return "I6", [one.model_copy(update=other) if one == line else one for one in lines]


def forget_a_row(lines: list[Line], draw: DataObject) -> tuple[str, list[Line]]:
    mail = _accepted(lines, draw)
    about = (mail.user, mail.kind)
    kept = [line for line in lines if not (isinstance(line, Opinion) and (line.user, line.kind) == about)]
    assume(any(isinstance(line, Opinion) for line in kept))
    return "I6", kept


def call_it_too_late(lines: list[Line], draw: DataObject) -> tuple[str, list[Line]]:
    answers = [line for line in lines if isinstance(line, Answer) and line.status == 200 and line.body.get("canceled")]
    logins = {line.n for line in lines if line.what == "request" and line.act == "login"}
    answers = [line for line in answers if line.n in logins]
    assume(answers)
    wrong = draw.draw(st.sampled_from(answers))
    late = [{**entry, "state": "pending", "since": None} for entry in wrong.body["canceled"]]
    body = {**wrong.body, "canceled": [], "too_late": late}
    return "", [line.model_copy(update={"body": body}) if line == wrong else line for line in lines]


def never_rest(lines: list[Line], draw: DataObject) -> tuple[str, list[Line]]:
    return "quiet", [line for line in lines if line.what != "quiet"]


HARMS = [
    copy_a_mail,
    lose_a_mail,
    send_a_mail_elsewhere,
    break_a_promise,
    call_after_a_promise,
    believe_otherwise,
    forget_a_row,
    call_it_too_late,
    never_rest,
]


@given(st.data(), st.booleans(), st.sampled_from(HARMS))
def test_any_harm_is_found(
    draw: DataObject, has_keys: bool, harm: Callable[[list[Line], DataObject], tuple[str, list[Line]]]
) -> None:
    story = tell(draw, has_keys=has_keys, may_forget=False)
    rule, lines = harm(list(story.finish()), draw)
    rules = {finding.rule for finding in judge(lines).violations}
    assert rule in rules if rule else rules & {"answers", "I3"}, (rule, rules)
