"""What happened in one run: every step with its time and who took it, from which the judge counts."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from notifier.proof.lab.script import DAY_S, HOUR_S

Mail = tuple[str, str]  # (user, kind)
STORY_LINES_MAX = 60
IN_HAND_S = 60.0
BLOWS = (KILLED, STANDS_STILL) = ("is killed", "stands still")


@dataclass(frozen=True, slots=True)
class Step:
    """One step; `mail` is None for what befalls a whole process, or Redis."""

    at: float
    who: str
    what: str
    mail: Mail | None = None


@dataclass(slots=True)
class Login:
    """A login: when it was committed, what it was told, and how the mail stood then.

    `stopped`: the answer; None where this strategy tells nobody anything. `was_late`: whether the tables, read at the
    commit and not by whoever answers, had the mail claimed, in doubt or sent. Only that makes a "too late" true.
    """

    at: float
    stopped: bool | None
    was_late: bool = False

    @property
    def is_told_too_late(self) -> bool:
        """Whether it was told that it stopped nothing, and that was so."""
        return self.stopped is False and self.was_late


@dataclass(slots=True)
class Record:
    """Steps, and the facts among them.

    `taken`: when the calls began that the provider took. `failed`, `uncertain`: what the strategy wrote down itself.
    """

    common: list[Step] = field(default_factory=list)
    own: defaultdict[Mail, list[Step]] = field(default_factory=lambda: defaultdict(list))
    taken: defaultdict[Mail, list[float]] = field(default_factory=lambda: defaultdict(list))
    refused: set[Mail] = field(default_factory=set)
    failed: set[Mail] = field(default_factory=set)
    uncertain: set[Mail] = field(default_factory=set)
    logins: dict[str, Login] = field(default_factory=dict)

    def note(self, at: float, who: str, what: str, mail: Mail | None = None) -> None:
        """Write one step down."""
        (self.common if mail is None else self.own[mail]).append(Step(at, who, what, mail))

    def story(self, mail: Mail, *, with_redis: bool = True) -> list[str]:
        """Tell what happened to one mail: its own steps, and what befell those who had just had it in hand."""
        own = [*self.own.get((mail[0], ""), []), *self.own.get(mail, [])]
        if not own:
            return ["(nobody ever did anything about it)"]
        first, last = min(step.at for step in own), max(step.at for step in own)
        within = [step for step in self.common if first <= step.at <= last]
        told_better = {(step.at, step.who) for step in own if step.what.startswith(BLOWS)}
        about = [
            step
            for step in within
            if ((with_redis and step.who == "redis") or _had_it(step, own)) and (step.at, step.who) not in told_better
        ]
        told = sorted(own + about, key=lambda step: step.at)
        width = max(len(step.who) for step in told)
        lines = [f"{_clock(step.at)}  {step.who:<{width}}  {step.what}" for step in told]
        if len(lines) > STORY_LINES_MAX:
            half = STORY_LINES_MAX // 2
            lines = [*lines[:half], f"… {len(lines) - 2 * half} more steps …", *lines[-half:]]
        return lines


def _had_it(blow: Step, own: list[Step]) -> bool:
    return any(step.who == blow.who and 0 <= blow.at - step.at <= IN_HAND_S for step in own)


def _clock(at: float) -> str:
    day, rest = divmod(at, DAY_S)
    hour, rest = divmod(rest, HOUR_S)
    minute, second = divmod(rest, 60)
    return f"day {int(day)} {int(hour):02}:{int(minute):02}:{second:06.3f}"
