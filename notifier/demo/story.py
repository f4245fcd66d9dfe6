"""The story: what happens to the people, the workers and Redis, act by act."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import psutil

from notifier.demo.judge import FOLLOWUP, ONBOARDING, Mail, Record, Told
from notifier.demo.outsider import Answer, Outsider, Person, new_event_id
from notifier.demo.screen import Screen
from notifier.demo.stage import Stage
from notifier.embedded.process import birth
from notifier.supervisor.children import Child

DAYS = 3
WITHIN_S = 30.0
LOOK_EVERY_S = 0.1
WITHOUT_REDIS_S = 2.0  # costs nothing: the claims of the fallen run for longer
PARALLEL = 20
STALE = "notifier_stale_settles_total"


class NotInTime(Exception):
    """Something did not happen within its time; the text says what is missing."""


@dataclass(slots=True)
class Story:
    """The acts, in their order. `told` grows with every answer."""

    stage: Stage
    outsider: Outsider
    screen: Screen
    people: Sequence[Person]
    told: Told = field(default_factory=Told)

    async def play(self) -> None:
        """All six acts. Raises NotInTime, or NotReady where the service refuses what it must take."""
        early, late = len(self.people) // 5, len(self.people) * 2 // 3
        await self.an_ordinary_day(self.people[:early])
        frozen = await self.a_rush(self.people[early:late])
        await self.without_redis(self.people[late:])
        await self.the_frozen_one_wakes(frozen)
        await self.logins_and_repeats()
        await self.three_days_pass()
        await self.outsider.set_latency(0, 0)

    async def an_ordinary_day(self, people: Sequence[Person]) -> None:
        """Signups are mailed."""
        await self._act("People sign up, as on any day")
        await self.outsider.set_latency(50, 150)
        await self._sign_up_and_wait(people)
        self.screen.say(f"{len(people)} people signed up, and each has a welcome mail.")

    async def a_rush(self, people: Sequence[Person]) -> Child:
        """Two more workers, each of which falls at its first call. The other two are held until they have one."""
        await self._act("A rush of people, and two workers fall in the middle of it")
        to_kill = self.stage.start_worker("worker-3", "worker.mid_send=kill*1")
        to_freeze = self.stage.start_worker("worker-4", "worker.before_send=freeze*1")
        for worker in (to_kill, to_freeze):
            await self.stage.up(worker)
        killed, frozen = to_kill.pid or 0, to_freeze.pid or 0
        self.told.killed_pid, self.told.frozen_pid = killed, frozen

        async def both_fell() -> bool:
            return birth(killed) is None and _is_stopped(frozen)

        with _stopped(*self.stage.facts["pids"]["workers"]):
            await self._sign_up(people)
            self.screen.say(
                f"Workers 3 and 4 join. {len(people)} more people sign up, and these two get the first mails."
            )
            await self._until(both_fell, lambda: "workers 3 and 4 getting a mail to fall over")
        self.screen.say("Worker 3 is killed (SIGKILL) in the middle of a send: the mail is out, the answer unread.")
        self.screen.say("Worker 4 is frozen (SIGSTOP) with a mail in hand, one step before it calls the provider.")
        return to_freeze

    async def without_redis(self, people: Sequence[Person]) -> None:
        """Redis hangs, which is worse than being away; signups are accepted and mailed all the same."""
        await self._act("Redis hangs: it takes connections and answers nothing")
        began = time.monotonic()
        with _stopped(self.stage.facts["pids"]["redis"]):
            await self._sign_up_and_wait(people)
            await self._until_passed(began + WITHOUT_REDIS_S)
        took_s = time.monotonic() - began
        self.screen.say(f"{took_s:.1f} s without Redis: {len(people)} people signed up meanwhile, and have their mail.")

    async def the_frozen_one_wakes(self, frozen: Child) -> None:
        """Claims run out and are taken over; whoever wakes up after that can do no harm."""
        await self._act("Others take over, then the frozen worker wakes up")
        record = await self._until_mailed({(address, ONBOARDING) for address in self.told.people})
        refused = sum(call["verdict"] == "duplicate" for call in record.attempts)
        self.screen.say(
            "Their claims ran out, and others sent what the two had in hand."
            + f" {refused} of those mails had arrived before: the provider refused the copy." * bool(refused)
        )
        pid = self.told.frozen_pid
        _send(pid, signal.SIGCONT)
        record = await self._until_recorded(lambda record: bool(record.calls_of(pid)), "worker 4's late call")
        verdict = record.calls_of(pid)[-1]["verdict"]
        self.screen.say(f"Worker 4 goes on (SIGCONT) and makes its late call. The provider's answer: {verdict}.")

        async def settle_was_ignored() -> bool:
            return await self.outsider.metric(frozen.metrics or "", STALE) > 0

        await self._until(settle_was_ignored, lambda: "worker 4 finding out that the mail is not its own any more")
        self.screen.say("What it then wants to write down is ignored: the mail has been another worker's since.")

    async def logins_and_repeats(self) -> None:
        """Logins cancel; the same events again, and second signups, change nothing."""
        await self._act("Some log in, and every signup arrives a second time")
        people = self.people[::4]
        canceled, _ = await self._log_in(people)
        self.screen.say(f"{len(people)} people log in, which cancels {canceled} follow-ups.")
        await self._repeat()
        self.screen.say(
            f"All {len(self.people)} signups arrive again, and some people sign up a second time: no new mail."
        )

    async def three_days_pass(self) -> None:
        """Follow-ups go out, while some log in at that very moment, and some when it is too late."""
        await self._act("Three days pass in a moment, and the follow-ups go out")
        await self.outsider.advance(DAYS * 86_400 + 1)
        await self._until_recorded(lambda record: bool(record.followed), "the first follow-up")
        people = self.people[1::8]
        canceled, too_late = await self._log_in(people)
        self.screen.say(
            f"{len(people)} people log in while follow-ups are being sent: {canceled} in time, and "
            f"{too_late} are told that it is too late for theirs."
        )
        record = await self._until_mailed(self.told.owed)
        self.screen.say(f"{len(record.followed)} people have a follow-up.")
        await self._log_in(self.people[2::16])
        await self._repeat()
        self.screen.say("Some more log in, and every signup arrives once more: no new mail.")
        await self._until(self._is_quiet, lambda: f"the end of {self.told.under_way} mails that are under way")
        await self._until_read()

    # What the acts are made of

    async def _act(self, title: str) -> None:
        await self._until_read()
        self.screen.act(title)

    async def _until_read(self) -> None:
        """Where somebody watches, leave them time to read about the last act."""
        await self._until_passed(time.monotonic() + self.screen.reading_s)

    async def _until_passed(self, moment: float) -> None:
        await self._until_recorded(lambda _: time.monotonic() >= moment, "a moment")

    async def _sign_up_and_wait(self, people: Sequence[Person]) -> None:
        await self._sign_up(people)
        await self._until_mailed({(person.email, ONBOARDING) for person in people})

    async def _sign_up(self, people: Sequence[Person]) -> None:
        async def one(person: Person) -> None:
            self.told.signups += 1
            await self._send(self.outsider.sign_up(person))
            self.told.people.add(person.email)

        await _for_each(people, one)

    async def _repeat(self) -> None:
        """Send every signup again with its own id, and some with a new one."""

        async def again(person: Person) -> None:
            self.told.repeats += 1
            answer = await self._send(self.outsider.sign_up(person))
            self.told.repeats_known += answer["event"]["duplicate"]

        async def anew(person: Person) -> None:
            self.told.second_signups += 1
            answer = await self._send(self.outsider.sign_up(person, event_id=new_event_id()))
            self.told.second_signups_idle += all(row.get("existing") for row in answer["notifications"])

        await _for_each(self.people, again)
        await _for_each(self.people[::10], anew)

    async def _log_in(self, people: Sequence[Person]) -> tuple[int, int]:
        """Have them log in; answers for how many that canceled the follow-up, and for how many it was too late."""
        canceled, too_late = len(self.told.canceled), len(self.told.too_late)

        async def one(person: Person) -> None:
            self.told.logins += 1
            answer = await self._send(self.outsider.log_in(person))
            if _lists_followup(answer, "canceled"):
                self.told.canceled.add(person.email)
            if _lists_followup(answer, "too_late"):
                self.told.too_late.add(person.email)

        await _for_each(people, one)
        return len(self.told.canceled) - canceled, len(self.told.too_late) - too_late

    async def _send(self, sending: Awaitable[Answer]) -> Answer:
        self.told.events += 1
        answer = await sending
        self.told.accepted += 1
        return answer

    async def _is_quiet(self) -> bool:
        self.told.under_way = await self.outsider.under_way()
        return self.told.under_way == 0

    async def _until_mailed(self, owed: Iterable[Mail]) -> Record:
        """Wait until these mails are in the inbox, however often."""
        wanted = set(owed)
        left = wanted

        def all_there(record: Record) -> bool:
            nonlocal left
            left = wanted - set(record.mails())
            return not left

        return await self._until_recorded(all_there, lambda: _some(left))

    async def _until_recorded(self, so: Callable[[Record], bool], missing: str | Callable[[], str]) -> Record:
        record = Record((), ())

        async def look() -> bool:
            nonlocal record
            record = await self.outsider.record()
            self.screen.count(self.told, record)
            return so(record)

        await self._until(look, missing if callable(missing) else lambda: missing)
        return record

    async def _until(self, look: Callable[[], Awaitable[bool]], missing: Callable[[], str]) -> None:
        within_s = WITHIN_S + len(self.people) / 10
        deadline = time.monotonic() + within_s
        while not await look():
            if time.monotonic() > deadline:
                raise NotInTime(f"not within {within_s:g} s: {missing()}")
            await asyncio.sleep(LOOK_EVERY_S)


@contextlib.contextmanager
def _stopped(*pids: int) -> Iterator[None]:
    for pid in pids:
        _send(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            _send(pid, signal.SIGCONT)


def _send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _is_stopped(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_STOPPED
    except psutil.Error:
        return False


async def _for_each(people: Iterable[Person], act: Callable[[Person], Awaitable[None]]) -> None:
    """Do it for all of them, so many at a time."""
    gate = asyncio.Semaphore(PARALLEL)

    async def one(person: Person) -> None:
        async with gate:
            await act(person)

    try:
        async with asyncio.TaskGroup() as group:
            for person in people:
                group.create_task(one(person))
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None  # the others say the same


def _lists_followup(answer: Answer, name: str) -> bool:
    return any(row["kind"] == FOLLOWUP for row in answer[name])


def _some(mails: set[Mail]) -> str:
    named = ", ".join(f"{address} ({kind})" for address, kind in sorted(mails)[:3])
    return f"{len(mails)} mails, among them {named}"
