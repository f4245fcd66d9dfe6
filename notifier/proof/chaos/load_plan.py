"""What the load does and when, from a seed alone; pure, so that the same seed is the same load."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from notifier.proof.history import Act

FOLLOWUP_DELAY_S = 3 * 86_400.0
TOO_OLD_S = 8 * 86_400.0
SIGNUPS_UNTIL = 0.8  # of the time; what becomes due must become so before the end
DUE_UNTIL = 0.95
RESOLVES_AT = (0.7, 0.85, 0.96)
BATCH_LEAST, BATCH_MOST = 2, 8
PAUSE_LEAST_S, PAUSE_MOST_S = 2.0, 4.0
PAUSED = ("followup", "onboarding")
ONE_PAUSE_EVERY_S = 40.0
CROSSING_SHARE = 0.3  # of the signups that come alone
KNOWN_BEFORE_S = 1.5

Form = Literal["single", "batch", "ndjson", "webhook"]


@dataclass(frozen=True, slots=True)
class Happening:
    """Something an application says happened. `occurred_s` is seconds after the load's start; None: it does not say."""

    act: Act
    user: str
    id: str
    type: str
    occurred_s: float | None = None
    email: str | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Say:
    """One request at `at_s` with these happenings; `copies` of it at the same moment, over both apis."""

    at_s: float
    happenings: tuple[Happening, ...]
    form: Form = "single"
    copies: int = 1


@dataclass(frozen=True, slots=True)
class Operate:
    """What an operator does at `at_s`. `for_s`: how long a switch is on."""

    at_s: float
    act: Literal["cancel", "retry", "erase", "resolve", "switch"]
    user: str | None = None
    kind: str | None = None
    for_s: float = 0.0


Step = Say | Operate


def plan_load(seed: int, users: int, seconds: float) -> Sequence[Step]:
    """Everything that is going to be asked, the earliest first. `seconds`: how long the load goes on."""
    chance = random.Random(f"load {seed}")
    steps = [step for number in range(users) for step in _life(chance, f"u-{number:04d}", seconds)]
    steps += _crossing(random.Random(f"crossing {seed}"), steps, seconds)
    steps += _pauses(chance, seconds)
    steps += [Operate(share * seconds, "resolve") for share in RESOLVES_AT]
    return sorted(_in_batches(chance, steps), key=lambda step: step.at_s)


def _life(chance: random.Random, user: str, seconds: float) -> Iterator[Step]:
    """Everything around one user: a signup, and what fate adds to it."""
    at_s = chance.uniform(0, SIGNUPS_UNTIL * seconds)
    due_s = min(at_s + chance.uniform(-1, 30), DUE_UNTIL * seconds)
    occurred_s = due_s - FOLLOWUP_DELAY_S
    email: str | None = f"{user}@example.com"
    match chance.random():
        case luck if luck < 0.03:
            occurred_s, due_s = -TOO_OLD_S, at_s
        case luck if luck < 0.10:
            occurred_s, due_s = at_s, at_s  # due in three days: it only waits
        case luck if luck < 0.12:
            email = None
    signup = Happening("signup", user, f"evt-{user}-signup", "user.signed_up", occurred_s, email, user.upper())
    yield from _said(chance, at_s, signup, seconds)
    if chance.random() < 0.6:
        yield from _logins(chance, signup, at_s, due_s, seconds)
    if chance.random() < 0.1 and email:
        other = email if chance.random() < 0.5 else f"{user}@example.org"
        again = Happening("signup", user, f"evt-{user}-again", "user.signed_up", occurred_s + 0.5, other)
        yield Say(_within(at_s + chance.uniform(-2, 20), seconds), (again,))
    if chance.random() < 0.1:
        change = Happening("other", user, f"evt-{user}-update", "user.updated", None, None, f"{user} changed")
        yield Say(_within(at_s + chance.uniform(-1, 10), seconds), (change,))
    yield from _operator(chance, user, at_s, due_s, seconds)


def _crossing(chance: random.Random, steps: Sequence[Step], seconds: float) -> Iterator[Step]:
    """For somebody who is known already: the signup under a second id as well, or just behind it a login, or a move."""
    first: dict[str, Say] = {}
    for step in steps:
        if isinstance(step, Say):
            first.setdefault(step.happenings[0].id, step)
    for step in first.values():
        [one] = step.happenings
        if one.id != f"evt-{one.user}-signup" or step.form != "single" or step.at_s < KNOWN_BEFORE_S:
            continue
        if chance.random() < CROSSING_SHARE:
            known = Happening("other", one.user, f"evt-{one.user}-known", "user.updated", None, one.email)
            yield Say(step.at_s - KNOWN_BEFORE_S, (known,))
            soon_s = _within(step.at_s + chance.uniform(0.3, 1.2), seconds)
            match chance.choice(("twin", "login", "move")):
                case "twin":
                    twin = replace(one, id=f"evt-{one.user}-twin", email=None, name=None)  # nothing to merge
                    yield Say(step.at_s, (twin,))
                case "login":
                    login = Happening("login", one.user, f"evt-{one.user}-at-once", "user.logged_in")
                    yield Say(soon_s, (login,), "webhook")
                case _:
                    email = f"{one.user}@example.net"
                    yield Say(
                        soon_s, (Happening("other", one.user, f"evt-{one.user}-move", "user.updated", None, email),)
                    )


def _logins(chance: random.Random, signup: Happening, at_s: float, due_s: float, seconds: float) -> Iterator[Step]:
    """One login, or two that race; most of them around the moment when the follow-up goes out."""
    assert signup.occurred_s is not None
    for number in range(2 if chance.random() < 0.15 else 1):
        occurred_s: float | None = None
        match chance.random():
            case luck if luck < 0.65:
                when_s = due_s + chance.choice((chance.gauss(0, 0.3), chance.uniform(-3, 3)))
            case luck if luck < 0.80:
                when_s = chance.uniform(at_s, max(at_s, due_s))
            case luck if luck < 0.90:
                when_s = at_s - chance.uniform(0, 3)  # arrives before its signup, which it cancels all the same
            case luck if luck < 0.95:
                when_s, occurred_s = due_s - chance.uniform(0, 2), signup.occurred_s - 60  # older: cancels nothing
            case _:
                when_s, occurred_s = due_s - chance.uniform(0, 2), signup.occurred_s  # a tie goes to the login
        when_s = _within(when_s, seconds)
        if occurred_s is None and chance.random() < 0.5:
            occurred_s = when_s
        login = Happening("login", signup.user, f"evt-{signup.user}-login-{number}", "user.logged_in", occurred_s)
        yield from _said(chance, when_s, login, seconds, by_webhook=chance.random() < 0.6)


def _said(
    chance: random.Random, at_s: float, happening: Happening, seconds: float, *, by_webhook: bool = False
) -> Iterator[Step]:
    """A happening through one of the doors; sometimes in a storm of copies, sometimes said again later."""
    copies = chance.randint(3, 8) if chance.random() < 0.08 else 1
    form: Form = "webhook" if by_webhook else "single"
    if copies == 1 and not by_webhook:
        form = chance.choices(("single", "batch", "ndjson"), (7, 2, 1))[0]
    yield Say(at_s, (happening,), form, copies)
    if chance.random() < 0.1:
        yield Say(_within(at_s + chance.uniform(0.2, 15), seconds), (happening,), "webhook" if by_webhook else "single")


def _operator(chance: random.Random, user: str, at_s: float, due_s: float, seconds: float) -> Iterator[Step]:
    """Few users have to do with an operator."""
    match chance.random():
        case luck if luck < 0.04:
            when_s = _within(chance.choice((chance.uniform(at_s, max(at_s, due_s)), due_s)), seconds)
            yield Operate(when_s, "cancel", user, "followup")
            if luck < 0.02:
                yield Operate(_within(when_s + chance.uniform(1, 6), seconds), "retry", user, "followup")
        case luck if luck < 0.05:
            yield Operate(_within(at_s + 0.1, seconds), "cancel", user, "onboarding")
        case luck if luck < 0.07:
            yield Operate(_within(chance.uniform(at_s + 0.5, due_s + 2), seconds), "erase", user)


def _pauses(chance: random.Random, seconds: float) -> Iterator[Operate]:
    for number in range(max(1, round(seconds / ONE_PAUSE_EVERY_S))):
        for_s = chance.uniform(PAUSE_LEAST_S, PAUSE_MOST_S)
        at_s = chance.uniform(0, max(0.0, DUE_UNTIL * seconds - PAUSE_MOST_S))
        yield Operate(at_s, "switch", kind=PAUSED[number % len(PAUSED)], for_s=for_s)


def _in_batches(chance: random.Random, steps: Sequence[Step]) -> Iterator[Step]:
    """Put what is to go through a batch together with its neighbours in time."""
    waiting: dict[Form, list[Say]] = {"batch": [], "ndjson": []}
    size = {form: chance.randint(BATCH_LEAST, BATCH_MOST) for form in waiting}
    for step in sorted(steps, key=lambda step: step.at_s):
        if not isinstance(step, Say) or step.form not in waiting:
            yield step
            continue
        waiting[step.form].append(step)
        if len(waiting[step.form]) >= size[step.form]:
            yield _together(waiting[step.form])
            waiting[step.form], size[step.form] = [], chance.randint(BATCH_LEAST, BATCH_MOST)
    yield from (_together(left) for left in waiting.values() if left)


def _together(parts: Sequence[Say]) -> Say:
    return Say(parts[-1].at_s, tuple(part.happenings[0] for part in parts), parts[-1].form)


def _within(at_s: float, seconds: float) -> float:
    return min(max(at_s, 0.0), seconds)
