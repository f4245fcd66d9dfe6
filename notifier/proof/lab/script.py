"""What the world will do, drawn from a seed before anybody acts: the same for every strategy."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from random import Random

HOUR_S = 3_600.0
DAY_S = 24 * HOUR_S
FOLLOWUP_AFTER_S = 3 * DAY_S
WORKERS = 3
SIGNUP_HOURS = 2
END_S = FOLLOWUP_AFTER_S + 10 * HOUR_S
KEYS_KNOWN_S = DAY_S
UNLUCKY_CALLS = 3  # of one mail; what comes after them suffers from its neighbours only, so that trouble ends

ONBOARDING = "onboarding"
FOLLOWUP = "followup"


@dataclass(frozen=True, slots=True)
class User:
    """One user; seconds since the begin. `again_at`: when the same signup is delivered once more."""

    id: str
    signs_up_at: float
    again_at: tuple[float, ...]
    logs_in_at: float | None


class What(enum.StrEnum):
    """What may befall everybody at once."""

    KILL = "kill"
    PAUSE = "pause"
    DEPLOY = "deploy"
    REDIS_EMPTY = "redis empty"
    REDIS_FAILOVER = "redis failover"


@dataclass(frozen=True, slots=True)
class Trouble:
    """One blow. `slot`: which worker; `seconds`: how long the pause, or how many of its last writes Redis loses."""

    at: float
    what: What
    slot: int = 0
    seconds: float = 0.0


class Moment(enum.StrEnum):
    """Where a call of the provider is interrupted."""

    BEFORE = "just before the call"
    AMID = "in the middle of the call"
    AFTER = "just after the answer"


class Verdict(enum.StrEnum):
    """What the provider makes of a call it gets."""

    TAKES = "takes it"
    UNAVAILABLE = "is not there"
    REFUSES = "refuses it for good"


@dataclass(frozen=True, slots=True)
class Fate:
    """What happens round one call: the n-th for this user and kind, whoever makes it.

    `killed`, `paused`: at which moment the calling process is. `login_after_s`: how far into the pause the user logs
    in. `way_s`: how long the request is on its way. `answer_s`: how long the answer takes; `answer_lost`: the
    connection breaks instead.
    """

    killed: Moment | None = None
    paused: Moment | None = None
    pause_s: float = 0.0
    login_after_s: float | None = None
    way_s: float = 0.02
    verdict: Verdict = Verdict.TAKES
    answer_s: float = 0.3
    answer_lost: bool = False


@dataclass(frozen=True, slots=True)
class Script:
    """All that is settled beforehand."""

    seed: int
    users: tuple[User, ...]
    troubles: tuple[Trouble, ...]
    slow: tuple[tuple[float, float], ...]

    def fate(self, user: str, kind: str, number: int, now: float) -> Fate:
        """Draw what happens round the call `number` (from 1) for this mail; from the seed alone, but for slow hours."""
        draw = Random(f"{self.seed}/{user}/{kind}/{number}")
        slowly = 12.0 if any(begin <= now < end for begin, end in self.slow) else 1.0
        calm = Fate(way_s=draw.uniform(0.01, 0.05), answer_s=draw.uniform(0.2, 1.2) * slowly)
        if number > UNLUCKY_CALLS:
            return calm
        return replace(_interrupted(draw, calm, kind), verdict=_verdict(draw))


def _verdict(draw: Random) -> Verdict:
    luck = draw.random()
    return Verdict.REFUSES if luck < 0.03 else Verdict.UNAVAILABLE if luck < 0.08 else Verdict.TAKES


def _interrupted(draw: Random, calm: Fate, kind: str) -> Fate:
    """Let three calls in ten be interrupted, one way each."""
    luck, pause_s = draw.random(), draw.uniform(5, 100)
    if luck < 0.10:
        return replace(calm, killed=draw.choice(list(Moment)))
    if luck < 0.16:
        login_after_s = pause_s / 2 if kind == FOLLOWUP else None
        return replace(calm, paused=Moment.BEFORE, pause_s=pause_s, login_after_s=login_after_s)
    if luck < 0.20:
        return replace(calm, paused=Moment.AFTER, pause_s=pause_s)
    if luck < 0.25:
        return replace(calm, answer_lost=True)
    if luck < 0.28:
        return replace(calm, way_s=draw.uniform(5, 40))
    if luck < 0.30:
        return replace(calm, answer_s=draw.uniform(12, 40))
    return calm


def write(seed: int, users: int) -> Script:
    """Draw a world of `users` people: some come in bursts, some twice, some log in round the time their mail is due."""
    draw = Random(f"lab/{seed}")
    bursts = [draw.uniform(0, SIGNUP_HOURS * HOUR_S) for _ in range(max(1, users // 40))]
    people = tuple(_user(draw, f"u{number}", bursts) for number in range(1, users + 1))
    busy = [(0.0, (SIGNUP_HOURS + 0.5) * HOUR_S), (FOLLOWUP_AFTER_S, FOLLOWUP_AFTER_S + (SIGNUP_HOURS + 0.5) * HOUR_S)]
    troubles = [trouble for begin, end in busy for trouble in _troubles(draw, begin, end)]
    slow = [(at, at + draw.uniform(120, 400)) for begin, end in busy for at in [draw.uniform(begin, end)]]
    slow += [(at, at + 240) for at in (bursts[0], bursts[0] + FOLLOWUP_AFTER_S)]
    return Script(seed, people, tuple(sorted(troubles, key=lambda trouble: trouble.at)), tuple(slow))


def _user(draw: Random, name: str, bursts: list[float]) -> User:
    at = draw.uniform(0, SIGNUP_HOURS * HOUR_S)
    if draw.random() < 0.5:
        at = draw.choice(bursts) + draw.uniform(0, 2)
    again: list[float] = []
    twice = draw.random()
    if twice < 0.12:  # two jobs at once
        again.append(at + draw.uniform(0, 0.004))
    elif twice < 0.20:  # a sender that tries again
        again.append(at + draw.uniform(20, 1_800))
    elif twice < 0.22:  # a queue that is played back the next day
        again.append(at + 26 * HOUR_S)
    due, login, turn = at + FOLLOWUP_AFTER_S, None, draw.random()
    if turn < 0.20:
        login = due + draw.uniform(-1, 5)
    elif turn < 0.40:
        login = due + draw.uniform(-600, 900)
    elif turn < 0.50:
        login = at + draw.uniform(60, 2 * DAY_S)
    return User(name, at, tuple(again), login)


def _troubles(draw: Random, begin: float, end: float) -> list[Trouble]:
    found = []
    for what, every_s, seconds in (
        (What.KILL, 500, (0, 0)),
        (What.PAUSE, 300, (5, 120)),
        (What.DEPLOY, 3_600, (0, 0)),
        (What.REDIS_EMPTY, 2_400, (0, 0)),
        (What.REDIS_FAILOVER, 1_200, (1, 20)),
    ):
        at = begin + draw.expovariate(1 / every_s)
        while at < end:
            found.append(Trouble(at, what, draw.randrange(WORKERS), draw.uniform(*seconds)))
            at += draw.expovariate(1 / every_s)
    return found
