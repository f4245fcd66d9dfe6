"""One claimed notification, from the claim to what is to be written about it."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from fnmatch import fnmatchcase
from typing import NamedTuple, assert_never

from notifier import observe
from notifier.clock import boot_clock
from notifier.domain.journey import cancel_reason, template_values
from notifier.domain.message import Template, TemplateBroken, render
from notifier.domain.notification import Settlement, State, may_repeat, sent, settle, stopped_by_rule
from notifier.domain.provider_key import provider_key
from notifier.domain.restore import REASON_RESTORED
from notifier.domain.retry import RetryPolicy
from notifier.failpoints import Point, is_armed, reach
from notifier.runtime import Runtime
from notifier.store import deliveries, templates
from notifier.store.database import RETRYABLE, UNAVAILABLE
from notifier.store.deliveries import Claim
from notifier.store.results import Call, Result
from notifier.worker.breaker import Breaker
from providers.base import (
    Accepted,
    Ambiguous,
    BatchProvider,
    BodyMismatch,
    ConfigError,
    Duplicate,
    HandOver,
    Message,
    Outcome,
    Provider,
    Rejected,
    RetryLater,
    Written,
)

TURN_S = 0.005  # so long batches are rendered one after the other, and nothing is heard
_DATABASE_ERRORS = (*RETRYABLE, *UNAVAILABLE)
_NOT_BEGUN = Settlement(State.PENDING, None, doubt=False, counted=False)


class Held(NamedTuple):
    """A claim in this process's hands.

    `until`: boot-clock second at which it runs out, reckoned from before the claim statement, so never later than
    the database says. `probe`: it asks whether the provider is back.
    """

    claim: Claim
    until: float
    probe: bool


@dataclass(slots=True)
class Deliverer:
    """Delivers claims of one worker through one provider."""

    runtime: Runtime
    provider: Provider
    breaker: Breaker
    stopping: bool = False
    policy: RetryPolicy = field(init=False)
    _known: dict[str, Template] = field(init=False)
    _has_keys: bool = field(init=False)
    _decided_by: str = field(init=False)
    _looking: asyncio.Lock = field(default_factory=asyncio.Lock)
    _heard_at: float = 0.0  # when the loop last had its turn between two batches

    def __post_init__(self) -> None:
        """Read once what is asked for with every mail."""
        self._has_keys = self.provider.traits.has_keys
        self._known = {template.hash: template for template in self.runtime.templates.values()}
        self._decided_by = f"worker:{self.runtime.process_id}"
        settings = self.runtime.settings
        self.policy = RetryPolicy(
            first_s=settings.backoff_first_s,
            max_s=settings.backoff_max_s,
            attempts_max=settings.attempts_max,
            give_up_after=timedelta(seconds=settings.give_up_after_s),
        )

    async def deliver(self, held: Held) -> Result:
        """Take one claim to its result, with one call at most."""
        claim = held.claim
        await reach(Point.WORKER_AFTER_CLAIM)
        stopped = self._last_step(claim)
        if stopped is not None:
            return self._result(claim, stopped, None)
        if self._too_late_to_call(held):  # the look that counts comes just before the call; this one saves a connection
            return self._result(claim, _NOT_BEGUN, None)
        try:
            message = await self._render(claim)
        except TemplateBroken as error:
            return self._broken(claim, error)
        except _DATABASE_ERRORS as error:
            return self._given_back(claim, error)
        return await self._call(held, message)

    async def deliver_batch(
        self, batch: Sequence[Held], settle_first: Callable[[Sequence[Result]], Awaitable[bool]]
    ) -> list[Result]:
        """Take the claims of one batch to their results, with one call at most.

        Whoever takes the batch over repeats the call with all that still carry its name. So what is stopped here must
        have left before the call: `settle_first` writes that, and says whether it could.
        """
        await reach(Point.WORKER_AFTER_CLAIM)
        stopped = [(held, end) for held in batch if (end := self._last_step(held.claim)) is not None]
        gone = {held.claim.id for held, _ in stopped}
        ends = [self._result(held.claim, end, None) for held, end in stopped]
        going = [held for held in batch if held.claim.id not in gone]
        await self._give_way()
        if not going or self._too_late_to_call(going[0]):
            return ends + [self._result(held.claim, _NOT_BEGUN, None) for held in going]
        messages: list[Message] = []
        rest: list[Held] = []
        for held in going:
            try:
                messages.append(await self._render(held.claim))
            except TemplateBroken as error:
                ends.append(self._broken(held.claim, error))
            except _DATABASE_ERRORS as error:
                return [*ends, *(self._given_back(held.claim, error) for held in going)]
            else:
                rest.append(held)
        if ends and not await settle_first(ends):
            return ends + [self._result(held.claim, _NOT_BEGUN, None) for held in rest]
        return await self._call_batch(rest, messages) if rest else []

    async def _give_way(self) -> None:
        """Let the loop hear what came, where batches were rendered for long; whoever resumes first goes first."""
        while time.monotonic() - (seen := self._heard_at) >= TURN_S:
            await asyncio.sleep(0)
            if self._heard_at == seen:  # nobody had this turn yet
                self._heard_at = time.monotonic()
                return

    def _broken(self, claim: Claim, error: TemplateBroken) -> Result:
        observe.log().error("template_broken", notification=str(claim.id), kind=claim.kind, error=str(error))
        return self._result(claim, stopped_by_rule("template_error", claim.in_doubt, State.FAILED), None)

    def _given_back(self, claim: Claim, error: Exception) -> Result:
        """The database failed before anything was handed over: the claim goes back as it came."""
        observe.log().warning("given_back", notification=str(claim.id), error=type(error).__name__)
        return self._result(claim, _NOT_BEGUN, None)

    async def _hand_over(self, held: Held) -> bool:
        """Begin and the last look, just before the first byte that may make the provider take the mail.

        False: the claim was lost, which giving it back will find too, or it is too late to call.
        """
        if self._too_late_to_call(held) or not (self._has_keys or await self._begin(held)):
            return False
        await reach(Point.WORKER_AFTER_BEGIN)
        if self._too_late_to_call(held):
            return False
        await reach(Point.WORKER_BEFORE_SEND)
        return True

    async def _begin(self, held: Held) -> bool:
        """Mark the call for a provider without keys. False: the claim was lost."""
        async with self.runtime.database.connection() as conn:
            return await deliveries.begin(conn, held.claim, self.runtime.process_id)

    def _last_step(self, claim: Claim) -> Settlement | None:
        """Whatever stops a claimed notification without a call; in doubt it ends uncertain, never more."""
        doubt = claim.in_doubt
        if claim.erased:
            return stopped_by_rule("erased", doubt, State.CANCELED)
        if doubt and not self._may_repeat([claim]):
            return Settlement(State.UNCERTAIN, self._why_not_again(claim), True, counted=False)
        if claim.called_off_by is not None:  # the answer to that event may have promised it, and was lost
            return stopped_by_rule(cancel_reason(claim.called_off_by), doubt, State.CANCELED)
        if claim.attempts > self.policy.attempts_max:
            return stopped_by_rule("attempts_exhausted", doubt, State.FAILED)
        if claim.recipient is None:
            return stopped_by_rule("no_recipient", doubt)
        if claim.suppressed is not None:
            return stopped_by_rule("suppressed", doubt)
        only_to = self.runtime.settings.only_to
        if only_to is not None and not any(fnmatchcase(claim.recipient.lower(), pattern) for pattern in only_to):
            return stopped_by_rule("not_allowed", doubt)
        return None

    def _may_repeat(self, claims: Sequence[Claim], took_s: float = 0.0) -> bool:
        """Whether a call under the same keys is harmless for as long as a claim may last from now."""
        traits = self.provider.traits
        margin_s = self.runtime.settings.claim_ttl_s
        oldest_s = max(claim.doubt_age_s for claim in claims)
        left = traits.window - timedelta(seconds=oldest_s + took_s + margin_s)
        return may_repeat(traits.has_keys, all(claim.provider == traits.account for claim in claims), left)

    def _why_not_again(self, claim: Claim) -> str:
        traits = self.provider.traits
        if claim.restored:
            return REASON_RESTORED
        if not traits.has_keys:
            return "no_provider_key"
        return "provider_changed" if claim.provider != traits.account else "window_passed"

    def _too_late_to_call(self, held: Held) -> bool:
        """The last look: no call starts when less than one time-out of the claim is left, or we hold calls back."""
        if self.stopping or (self.breaker.is_open and not held.probe):
            return True
        return held.until - boot_clock() < self.runtime.settings.provider_timeout_s

    async def _render(self, claim: Claim) -> Message:
        template = self._known.get(claim.template_hash) or await self._look_up(claim.template_hash)
        assert claim.recipient is not None
        values = template_values(claim.user_id, claim.data())
        return render(template, values, to=claim.recipient, kind=claim.kind, dated=claim.entered_at)

    async def _look_up(self, template_hash: str) -> Template:
        """Fetch a template of another build; one asks, and the others that need it wait."""
        async with self._looking:
            if template_hash not in self._known:
                async with self.runtime.database.connection() as conn:
                    template = await templates.find(conn, template_hash)
                if template is None:
                    raise TemplateBroken("the template this notification was frozen to is not in the database")
                self._known[template_hash] = template
            return self._known[template_hash]

    async def _call(self, held: Held, message: Message) -> Result:
        claim = held.claim
        key = provider_key(self.runtime.namespace, claim.user_id, claim.kind, claim.resend_number)

        async def send(hand_over: HandOver) -> list[Outcome] | None:
            outcome = await self.provider.send(message, key, self._context(claim), hand_over, written=_armed_mid_send())
            return None if outcome is None else [outcome]

        [result] = await self._make_call([held], send)
        return result

    async def _call_batch(self, batch: Sequence[Held], messages: Sequence[Message]) -> list[Result]:
        claims = [held.claim for held in batch]
        contexts = [self._context(claim) for claim in claims]
        provider = self.provider
        assert isinstance(provider, BatchProvider)

        async def send(hand_over: HandOver) -> list[Outcome] | None:
            key = str(claims[0].batch_id)
            return await provider.send_batch(messages, key, contexts, hand_over, written=_armed_mid_send())

        results = await self._make_call(batch, send)
        if any(result.settlement.doubt or result.call is None for result in results):
            return results
        # Refused, and certainly so: one of them may be at fault for all, so each is asked about by itself.
        return [_alone(result) if result.settlement.state is State.FAILED else result for result in results]

    def _context(self, claim: Claim) -> dict[str, str]:
        return {
            "worker": self.runtime.process_id,
            "generation": str(claim.generation),
            "user": claim.user_id,
            "kind": claim.kind,
        }

    async def _make_call(
        self, group: Sequence[Held], send: Callable[[HandOver], Awaitable[list[Outcome] | None]]
    ) -> list[Result]:
        """Make the one call for these claims, which share their time, and read what it means for each."""
        handed_over, began = False, boot_clock()

        async def hand_over() -> bool:
            nonlocal handed_over, began
            asked = boot_clock()
            handed_over = await self._hand_over(group[0])
            began += boot_clock() - asked  # our own time is not the provider's
            return handed_over

        outcomes: list[Outcome] | None
        try:
            outcomes = await send(hand_over)
        except asyncio.CancelledError:  # the grace time of a stop is over: the provider may have taken it
            outcomes = [Ambiguous("cut_by_stop")] * len(group) if handed_over else None
        except _DATABASE_ERRORS as error:
            if handed_over:
                raise  # not ours to read: the claim runs out and comes back in doubt
            return [self._given_back(held.claim, error) for held in group]
        if outcomes is None:
            return [self._result(held.claim, _NOT_BEGUN, None) for held in group]
        ended = boot_clock()
        await reach(Point.WORKER_AFTER_SEND)
        name = outcome_name(outcomes[0])
        self.breaker.note(outcomes[0], time.monotonic())
        observe.attempts(self.provider.traits.name, name).inc(len(group))
        observe.PROVIDER_SECONDS.observe(ended - began)
        return self._read(group, outcomes, Call(name, getattr(outcomes[0], "reason", None), began, ended - began))

    def _read(self, group: Sequence[Held], outcomes: Sequence[Outcome], call: Call) -> list[Result]:
        """What the outcomes of one call mean. Claims of one batch share their fate, so they are judged by the worst."""
        first = outcomes[0]
        if isinstance(first, (Accepted, Duplicate)):
            results = []
            for held, outcome in zip(group, outcomes, strict=True):
                assert isinstance(outcome, (Accepted, Duplicate)), "the outcomes of one call are of one sort"
                results.append(Result(held.claim, sent(outcome), call, self._decided_by))
            return results
        claims = [held.claim for held in group]
        settlement = settle(
            first,
            policy=self.policy,
            attempt=max(claim.attempts for claim in claims),
            waits=max(claim.waits for claim in claims),
            doubt=any(claim.in_doubt for claim in claims),
            may_repeat=self._may_repeat(claims, boot_clock() - self._claimed_at(group[0])),
            given_up_waiting=max(claim.open_for_s for claim in claims) > self.runtime.settings.give_up_after_s,
            jitter=random.random(),
            probe=group[0].probe,
        )
        return [self._result(claim, settlement, call) for claim in claims]

    def _claimed_at(self, held: Held) -> float:
        return held.until - self.runtime.settings.claim_ttl_s

    def _result(self, claim: Claim, settlement: Settlement, call: Call | None) -> Result:
        return Result(claim, settlement, call, self._decided_by if call else f"rule:{settlement.reason}")


def _alone(result: Result) -> Result:
    settlement = Settlement(State.PENDING, result.settlement.reason, doubt=False, counted=False)
    return result._replace(settlement=settlement, alone=True)


def _armed_mid_send() -> Written | None:
    return _mid_send if is_armed(Point.WORKER_MID_SEND) else None


async def _mid_send() -> None:
    await reach(Point.WORKER_MID_SEND)


def outcome_name(outcome: Outcome) -> str:
    """The word the contract has for it."""
    match outcome:
        case Accepted():
            return "accepted"
        case Duplicate():
            return "duplicate"
        case Rejected():
            return "rejected"
        case RetryLater():
            return "retry_later"
        case Ambiguous():
            return "ambiguous"
        case BodyMismatch():
            return "body_mismatch"
        case ConfigError():
            return "config_error"
        case _:
            assert_never(outcome)
