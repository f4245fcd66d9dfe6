"""The mail provider as the mock behaves: keys are remembered for a day, answers may be slow, lost, or a no."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from notifier.proof.lab.loop import FOR_EVER, Loop, Process, nap
from notifier.proof.lab.record import Mail, Record
from notifier.proof.lab.script import KEYS_KNOWN_S, Fate, Moment, Script, Verdict
from providers.base import Accepted, Ambiguous, Duplicate, Outcome, Rejected, RetryLater


class Provider:
    """Takes mails. What befalls the caller round a call is the script's, so that it is the same for everybody."""

    def __init__(
        self,
        loop: Loop,
        record: Record,
        script: Script,
        kill: Callable[[Process, str, Mail], None],
        pause: Callable[[Process, float, str, Mail], None],
        log_in: Callable[[str], None],
    ) -> None:
        self._loop, self._record, self._script = loop, record, script
        self._kill, self._pause, self._log_in = kill, pause, log_in
        self._calls: Counter[Mail] = Counter()
        self._keys: dict[str, float] = {}  # key → when it was first taken
        self._in_flight: dict[str, float] = {}  # key → when its first answer is out

    async def send(self, process: Process, mail: Mail, key: str | None = None, *, timeout_s: float = 60.0) -> Outcome:
        """Make one call; its outcome is what the caller gets to know, which may be less than what happened."""
        self._calls[mail] += 1
        fate = self._script.fate(*mail, self._calls[mail], self._loop.now)
        await self._befall(process, mail, fate, Moment.BEFORE)
        began = self._loop.now
        self._record.note(began, process.name, "calls the provider" + (f" with key {key[:14]}" if key else ""), mail)
        heard: list[Outcome] = []
        arrives, answered = began + fate.way_s, began + fate.way_s + fate.answer_s
        self._loop.at(arrives, lambda: heard.append(self._take(mail, key, fate, began, answered)))
        if fate.killed is Moment.AMID:
            self._loop.at(arrives + fate.answer_s / 2, self._kill, process, Moment.AMID, mail)
        if fate.answer_lost or answered - began > timeout_s:
            await nap(min(timeout_s, answered - began) if fate.answer_lost else timeout_s)
            return self._hears(process, mail, Ambiguous("connection lost" if fate.answer_lost else "timeout"))
        await nap(answered - began)
        outcome = self._hears(process, mail, heard[0])
        await self._befall(process, mail, fate, Moment.AFTER)
        return outcome

    def _take(self, mail: Mail, key: str | None, fate: Fate, began: float, answered: float) -> Outcome:
        """What the provider does when the request reaches it, whether or not anybody still waits for the answer."""
        now = self._loop.now
        if fate.verdict is Verdict.UNAVAILABLE:
            return RetryLater("unavailable")
        if key is not None and key in self._keys and self._keys[key] + KEYS_KNOWN_S > now:
            if self._in_flight[key] > now:
                return Ambiguous("in_flight", counted=False)
            self._record.note(now, "provider", "has taken this key before: no second mail", mail)
            return Duplicate()
        if fate.verdict is Verdict.REFUSES:
            self._record.refused.add(mail)
            self._record.note(now, "provider", "refuses it for good", mail)
            return Rejected("refused")
        if key is not None:
            self._keys[key], self._in_flight[key] = now, answered
        self._record.taken[mail].append(began)
        self._record.note(now, "provider", f"takes it: mail number {len(self._record.taken[mail])}", mail)
        return Accepted()

    def _hears(self, process: Process, mail: Mail, outcome: Outcome) -> Outcome:
        reason = getattr(outcome, "reason", None)
        said = type(outcome).__name__.lower() + (f" ({reason})" if reason else "")
        self._record.note(self._loop.now, process.name, f"hears: {said}", mail)
        return outcome

    async def _befall(self, process: Process, mail: Mail, fate: Fate, moment: Moment) -> None:
        """Let the process die or stand still here, if that is the fate of this call."""
        if fate.killed is moment:
            self._loop.at(self._loop.now, self._kill, process, moment, mail)
            await nap(FOR_EVER)
        if fate.paused is moment:
            self._pause(process, fate.pause_s, moment, mail)
            if fate.login_after_s is not None:
                self._loop.at(self._loop.now + fate.login_after_s, self._log_in, mail[0])
            await nap(0)
