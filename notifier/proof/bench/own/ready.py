"""Mails without rendering, as the peers' jobs have them: a deliverer whose mail is ready, and two ways out for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

from notifier.proof.bench.peers.over_http import Poster as SessionPoster
from notifier.proof.bench.peers.talk import Count
from notifier.store.deliveries import Claim
from notifier.worker.deliver import Deliverer
from providers.base import Accepted, Family, HandOver, Message, Outcome, Traits, Written
from providers.http_post import Call, Poster
from providers.resend_answers import Answer, classify, classify_batch

READY = Message(sender="a@example.com", to="b@example.com", subject="Hello", html="", text="")
BATCH_MAX = 100
SESSION, HTTP_POST = "session", "http_post"


class Unrendered(Deliverer):
    """Does all that the worker's own does for a claim, but has its mail ready."""

    async def _render(self, claim: Claim) -> Message:
        claim.data()  # whoever has no template has its arguments read all the same
        return READY


def _check_ready(messages: Sequence[Message]) -> None:
    if any(message is not READY for message in messages):
        raise RuntimeError("a mail was rendered where none is to be: the deliverer no longer asks _render()")


class AtOnce:
    """A provider that is no further away than a function call, and sends nothing."""

    def __init__(self, count: Count, *, keys: bool) -> None:
        self._count = count
        family, batch_max = (Family.REJECT, BATCH_MAX) if keys else (Family.NONE, 1)
        self.traits = Traits("mock", "mock:bench", family, timedelta(days=1), batch_max)

    async def send(
        self,
        message: Message,
        key: str,
        context: Mapping[str, str],
        hand_over: HandOver | None = None,
        written: Written | None = None,
    ) -> Outcome | None:
        """Take it."""
        _check_ready([message])
        if hand_over is not None and not await hand_over():
            return None
        self._count.add()
        return Accepted("at-once")

    async def send_batch(
        self,
        messages: Sequence[Message],
        key: str,
        contexts: Sequence[Mapping[str, str]],
        hand_over: HandOver | None = None,
        written: Written | None = None,
    ) -> list[Outcome] | None:
        """Take all of them."""
        _check_ready(messages)
        if hand_over is not None and not await hand_over():
            return None
        self._count.add(len(messages))
        return [Accepted("at-once")] * len(messages)

    async def close(self) -> None:
        """Nothing to let go of."""


class BareClient:
    """Posts ready bytes through one of the clients; what comes back is looked at for its status alone."""

    def __init__(self, client: str, url: str, body: str, connections: int) -> None:
        self._body = body.encode()
        self._batches: dict[int, bytes] = {}
        self._session = SessionPoster(url, body, connections) if client == SESSION else None
        head = {"Authorization": "Bearer re_bench", "Content-Type": "application/json"}
        self._poster = Poster(url, head, connections=connections, keep=True)

    async def post(self, key: str, mails: int = 1) -> Answer:
        """Make one call for so many mails. Raises RuntimeError when they are not taken."""
        path, body = ("/emails", self._body) if mails == 1 else ("/emails/batch", self._batch(mails))
        if self._session is not None:
            return Answer(200, {}, await self._session.post(key, path, body))
        answer = await self._poster.post(path, {"Idempotency-Key": key}, body, Call())
        if answer.status != 200:
            raise RuntimeError(f"the receiver answered {answer.status}")
        return answer

    def _batch(self, mails: int) -> bytes:
        if mails not in self._batches:
            self._batches[mails] = b"[" + b",".join([self._body] * mails) + b"]"
        return self._batches[mails]

    async def close(self) -> None:
        """Let go of the connections."""
        await self._poster.close()
        if self._session is not None:
            await self._session.close()


class ReadyMade:
    """A provider over such a client: hands over and reads answers as ours does, and sends bytes that are ready."""

    def __init__(self, client: BareClient) -> None:
        self._client = client
        self.traits = Traits("mock", "mock:bench", Family.REJECT, timedelta(days=1), BATCH_MAX)

    async def send(
        self,
        message: Message,
        key: str,
        context: Mapping[str, str],
        hand_over: HandOver | None = None,
        written: Written | None = None,
    ) -> Outcome | None:
        """Make one call."""
        _check_ready([message])
        if hand_over is not None and not await hand_over():
            return None
        return classify(await self._client.post(key), datetime.now(UTC))

    async def send_batch(
        self,
        messages: Sequence[Message],
        key: str,
        contexts: Sequence[Mapping[str, str]],
        hand_over: HandOver | None = None,
        written: Written | None = None,
    ) -> list[Outcome] | None:
        """Make one call for all."""
        _check_ready(messages)
        if hand_over is not None and not await hand_over():
            return None
        answer = await self._client.post(key, len(messages))
        if len(messages) == 1:
            return [classify(answer, datetime.now(UTC))]
        return classify_batch(answer, len(messages), datetime.now(UTC))

    async def close(self) -> None:
        """Let go of the connections."""
        await self._client.close()
