"""The way out to the mock provider: Resend's wire format over HTTP, every failure told as an outcome."""

from __future__ import annotations

import asyncio
import hashlib
import json
import string
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from urllib.parse import quote, urlsplit

from providers.base import Ambiguous, Family, HandOver, Message, Outcome, RetryLater, Traits, Written
from providers.http_post import Call, Poster
from providers.resend_answers import Answer, classify, classify_batch

BATCH_MAX = 100  # what POST /emails/batch takes
CONTEXT_HEADERS = {
    "worker": "X-Notifier-Worker",
    "generation": "X-Notifier-Generation",
    "user": "X-Notifier-User",
    "kind": "X-Notifier-Kind",
}
OF_A_MAIL = ("user", "kind")
_PLAIN = string.punctuation.replace("%", "")  # all visible ASCII beside letters and digits, which quote() keeps anyway
_JSON = json.JSONEncoder(sort_keys=True, separators=(",", ":"))


class MockProvider:
    """A client of the mock provider. Connections are opened with the first call, inside the running loop."""

    def __init__(
        self,
        *,
        base_url: str,
        api_key: str,
        family: Family,
        window: timedelta,
        timeout_s: float,
        concurrency: int,
    ) -> None:
        base_url = base_url.rstrip("/")
        if urlsplit(base_url).scheme not in {"http", "https"} or not urlsplit(base_url).hostname:
            raise ValueError(f"the mock provider's address {base_url!r} must look like http://host:port")
        # By key alone: a mock that comes back on another port is the same account with the same memory.
        account = hashlib.sha256(api_key.encode()).hexdigest()[:12]
        # What was called without a key must never be repeated under one: the provider has not seen it.
        name = "mock" if family is not Family.NONE else "mock-keyless"
        batch_max = BATCH_MAX if family is not Family.NONE else 1  # a batch in doubt can only be asked about by its key
        self._traits = Traits("mock", f"{name}:{account}", family, window, batch_max)
        headers = {"Authorization": f"Bearer {api_key}", "Content-Type": "application/json"}
        # Without keys a doubt cannot be asked away.
        self._poster = Poster(base_url, headers, connections=concurrency, keep=self._traits.has_keys)
        self._timeout_s = timeout_s
        self._closed = False

    @property
    def traits(self) -> Traits:
        """What may be assumed; constant for the life of the object."""
        return self._traits

    async def send(
        self,
        message: Message,
        key: str,
        context: Mapping[str, str],
        hand_over: HandOver | None = None,
        written: Written | None = None,
    ) -> Outcome | None:
        """Make one call; raises nothing but what `hand_over` and `written` themselves raise, and CancelledError.

        A failure before the request starts to go out is certain (nothing was taken), a later one a doubt.
        """
        answer = await self._send("/emails", _document(message), self._call_headers(key, context), hand_over, written)
        return classify(answer, datetime.now(UTC)) if isinstance(answer, Answer) else answer

    async def send_batch(
        self,
        messages: Sequence[Message],
        key: str,
        contexts: Sequence[Mapping[str, str]],
        hand_over: HandOver | None = None,
        written: Written | None = None,
    ) -> list[Outcome] | None:
        """Make one call for all; see `send`. Whose each mail is stands with it, as the call has one head for all."""
        mails = [
            _document(message) | {"headers": {**message.headers, **_context_headers(context, OF_A_MAIL)}}
            for message, context in zip(messages, contexts, strict=True)
        ]
        generations = [context["generation"] for context in contexts if "generation" in context]
        of_all = {name: value for name, value in contexts[0].items() if name == "worker"}
        if generations:
            of_all["generation"] = generations[0] if len(set(generations)) == 1 else ",".join(generations)
        answer = await self._send("/emails/batch", mails, self._call_headers(key, of_all), hand_over, written)
        if answer is None:
            return None
        if isinstance(answer, Answer):
            return classify_batch(answer, len(messages), datetime.now(UTC))
        return [answer] * len(messages)

    async def _send(
        self,
        path: str,
        document: object,
        headers: Mapping[str, str],
        hand_over: HandOver | None,
        written: Written | None,
    ) -> Answer | Outcome | None:
        """Make one call: what came back, or what it means that nothing did."""
        if self._closed:
            return RetryLater("client_closed", answered=False)
        if hand_over is not None and not await hand_over():
            return None
        call = Call(written)
        answer: Answer | Outcome
        try:
            async with asyncio.timeout(self._timeout_s):
                answer = await self._poster.post(path, headers, _serialise(document), call)
        except TimeoutError:
            answer = _broken(call, "timeout", "connect_timeout")
        except OSError:
            answer = _broken(call, "disconnected", "connect_failed")
        except ValueError:
            answer = _broken(call, "unreadable_answer", "connect_failed")
        if call.callers_error is not None:
            raise call.callers_error
        return answer

    async def close(self) -> None:
        """Let go of connections; a call still under way ends in doubt."""
        self._closed = True
        await self._poster.close()

    def _call_headers(self, key: str, context: Mapping[str, str]) -> dict[str, str]:
        headers = _context_headers(context, CONTEXT_HEADERS)
        if self._traits.has_keys:
            headers["Idempotency-Key"] = key
        return headers


def _context_headers(context: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    """Who sends what, percent-encoded."""
    return {
        CONTEXT_HEADERS[name]: value if _is_plain(value) else quote(value, safe=_PLAIN, errors="surrogatepass")
        for name in names
        if (value := context.get(name)) is not None
    }


def _is_plain(value: str) -> bool:
    """Whether quote() would change nothing; asking quote() costs four times as much."""
    return value.isascii() and value.isprintable() and " " not in value and "%" not in value


def _broken(call: Call, doubtful: str, certain: str) -> Outcome:
    """The outcome of a call that ended without an answer."""
    return Ambiguous(doubtful) if call.started else RetryLater(certain, answered=False)


def _document(message: Message) -> dict[str, object]:
    body: dict[str, object] = {"from": message.sender, "to": [message.to], "subject": message.subject}
    if message.html:
        body["html"] = message.html
    if message.text:
        body["text"] = message.text
    if message.headers:
        body["headers"] = dict(message.headers)
    if message.tags:
        body["tags"] = [{"name": name, "value": value} for name, value in message.tags.items()]
    return body


def _serialise(document: object) -> bytes:
    """The body's bytes: a pure function of its messages, so that a repeat is byte for byte the same."""
    return _JSON.encode(document).encode()
