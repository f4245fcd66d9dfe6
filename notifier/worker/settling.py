"""Writing results in batches until they are written or refused: a database error is not a failed send."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from uuid import UUID

import structlog

from notifier import observe
from notifier.domain.notification import State
from notifier.failpoints import Point, reach
from notifier.runtime import Runtime
from notifier.store import results
from notifier.store.database import RETRYABLE, UNAVAILABLE, Connection
from notifier.store.deliveries import Claim
from notifier.store.results import Result

BATCH_MAX = 1_000
RETRY_FIRST_S = 0.1
RETRY_MAX_S = 2.0


@dataclass(slots=True)
class Settler:
    """Takes results from the deliverer and writes them. `written` hears how many claims are no longer in hand."""

    runtime: Runtime
    written: Callable[[Sequence[Claim]], None]
    _results: deque[Sequence[Result]] = field(default_factory=deque)
    _come: asyncio.Event = field(default_factory=asyncio.Event)
    _idle: asyncio.Event = field(default_factory=asyncio.Event)

    def put(self, *results: Result) -> None:
        """Hand over results; those of one call together, so that they are written together."""
        self._results.append(results)
        self._idle.clear()
        self._come.set()

    async def drained(self) -> None:
        """Wait until everything handed over is written."""
        if self._results or not self._idle.is_set():
            await self._idle.wait()

    async def run(self) -> None:
        """Write batches, for ever. Whatever has come by the time the last batch is done is the next batch."""
        while True:
            if not self._results:
                self._idle.set()
                await self._come.wait()
            self._come.clear()
            batch = self._next_batch()
            if not batch:
                continue
            self._idle.clear()
            try:
                await reach(Point.WORKER_BEFORE_SETTLE)
                await self._write_until_answered(batch)
                await reach(Point.WORKER_AFTER_SETTLE)
            except Exception as error:  # noqa: BLE001 - the top of one batch: what is unwritten runs out
                _log().error("batch_broke", results=len(batch), exc_info=error)
            finally:
                self.written([result.claim for result in batch])

    def _next_batch(self) -> list[Result]:
        batch: list[Result] = []
        while self._results and (not batch or len(batch) + len(self._results[0]) <= BATCH_MAX):
            batch += self._results.popleft()
        return batch

    async def settle_first(self, batch: Sequence[Result]) -> bool:
        """Write these at once. False: not all of them were ours, or nobody knows; they may be handed over again."""
        try:
            return len(await self._write(batch, again=False)) == len(batch)
        except (*RETRYABLE, *UNAVAILABLE) as error:
            observe.log().warning("settle_failed", error=type(error).__name__, results=len(batch))
            return False

    async def _write_until_answered(self, batch: Sequence[Result]) -> None:
        wait_s = RETRY_FIRST_S
        again = False
        while True:
            try:
                await self._write(batch, again=again)
            except (*RETRYABLE, *UNAVAILABLE) as error:
                observe.log().warning("settle_failed", error=type(error).__name__, results=len(batch))
            except Exception as error:  # noqa: BLE001 - one result that cannot be written must not keep the others
                if len(batch) == 1:
                    _log().error("unwritable", notification=str(batch[0].claim.id), exc_info=error)
                    return  # the claim runs out, and whoever takes it over finds it in doubt
                for result in batch:
                    await self._write_until_answered([result])
                return
            else:
                return
            again = True
            await asyncio.sleep(wait_s)
            wait_s = min(wait_s * 2, RETRY_MAX_S)

    async def _write(self, batch: Sequence[Result], *, again: bool) -> set[UUID]:
        """One statement for what is closed, one for what goes back; both may be repeated after a lost answer.

        `again`: an earlier try may have been written, so a row that is gone now is not for that reason lost. Returns
        the ids that were ours.
        """
        written: set[UUID] = set()
        closed = [result for result in batch if result.settlement.state is not State.PENDING]
        back = [result for result in batch if result.settlement.state is State.PENDING]
        async with self.runtime.database.connection() as conn:
            if closed:
                ours = await results.settle(conn, self.runtime.process_id, closed)
                written |= ours.ids
                if len(ours.ids) < len(closed):
                    await self._lose(conn, [result for result in closed if result.claim.id not in ours.ids])
                    closed = [result for result in closed if result.claim.id in ours.ids]
                _count(closed, ours.sent_at)
            if back:
                before = await results.recorded(conn, self.runtime.process_id, back) if again else set()
                returned = before | await results.put_back(conn, self.runtime.process_id, back)
                gone = [r for r in back if r.claim.id not in returned]
                _count_lost([r for r in gone if r.call is not None], "settle")
                observe.LOST_RACES.labels("give_back").inc(sum(1 for r in gone if r.call is None))
                written |= returned
        return written

    async def _lose(self, conn: Connection, lost: Sequence[Result]) -> None:
        """Lost claims change nothing, but what they know for certain still counts."""
        _count_lost(lost, "settle")
        certain = [result for result in lost if result.settlement.state is State.SENT]
        if certain:
            await results.record(conn, self.runtime.process_id, certain)
            found = await results.late_evidence(conn, self.runtime.process_id, certain)
            observe.count_settled("sent", None, len(found))
            for notification in found:
                _log().info("late_evidence", notification=str(notification))


def _count(settled: Sequence[Result], sent_at: float | None) -> None:
    sent = [result for result in settled if result.settlement.state is State.SENT]
    if sent:
        observe.count_settled("sent", None, len(sent))
    if sent_at is not None:
        observe.EVENT_TO_SENT.observe_all([sent_at - result.claim.taken_at for result in sent])
    if len(sent) == len(settled):
        return
    for result in settled:
        if result.settlement.state is not State.SENT:
            observe.count_settled(result.settlement.state.value, result.settlement.reason)
            _log().warning(
                "settled",
                notification=str(result.claim.id),
                generation=result.claim.generation,
                state=result.settlement.state.value,
                reason=result.settlement.reason,
            )


def _count_lost(lost: Sequence[Result], move: str) -> None:
    if lost:
        observe.STALE_SETTLES.inc(len(lost))
        observe.LOST_RACES.labels(move).inc(len(lost))
        for result in lost:
            _log().warning("lost_claim", notification=str(result.claim.id), generation=result.claim.generation)


def _log() -> structlog.typing.FilteringBoundLogger:
    logger: structlog.typing.FilteringBoundLogger = observe.log()
    return logger
