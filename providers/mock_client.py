"""The way out to the mock provider: Resend's wire format over HTTP, every failure told as an outcome."""

from __future__ import annotations

import asyncio
import hashlib
import json
import string
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from urllib.parse import quote, urlsplit

import aiohttp
from aiohttp.abc import AbstractStreamWriter
from aiohttp.payload import Payload

from providers.base import Ambiguous, Family, HandOver, Message, Outcome, RetryLater, Traits, Written
from providers.resend_answers import Answer, classify, classify_batch

ANSWER_BYTES_MAX = 65_536
BATCH_MAX = 100  # what POST /emails/batch takes
CONTEXT_HEADERS = {
    "worker": "X-Notifier-Worker",
    "generation": "X-Notifier-Generation",
    "user": "X-Notifier-User",
    "kind": "X-Notifier-Kind",
}
OF_A_MAIL = ("user", "kind")
_PLAIN = string.punctuation.replace("%", "")  # all visible ASCII beside letters and digits, which quote() keeps anyway


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
        self._url = f"{base_url}/emails"
        self._headers = {"Authorization": f"Bearer {api_key}", "Content-Type": "application/json"}
        self._timeout_s = timeout_s
        self._concurrency = concurrency
        self._session: aiohttp.ClientSession | None = None
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
        answer = await self._send(self._url, _document(message), self._call_headers(key, context), hand_over, written)
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
            _document(replace(message, headers={**message.headers, **_context_headers(context, OF_A_MAIL)}))
            for message, context in zip(messages, contexts, strict=True)
        ]
        generations = [context["generation"] for context in contexts if "generation" in context]
        of_all = {name: value for name, value in contexts[0].items() if name == "worker"}
        if generations:
            of_all["generation"] = generations[0] if len(set(generations)) == 1 else ",".join(generations)
        answer = await self._send(f"{self._url}/batch", mails, self._call_headers(key, of_all), hand_over, written)
        if answer is None:
            return None
        if isinstance(answer, Answer):
            return classify_batch(answer, len(messages), datetime.now(UTC))
        return [answer] * len(messages)

    async def _send(
        self,
        url: str,
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
        call = _Call(written)
        answer: Answer | Outcome
        try:
            async with asyncio.timeout(self._timeout_s):
                answer = await self._post(url, call, _serialise(document), headers)
        except TimeoutError:
            answer = call.broken("timeout", "connect_timeout")
        except (aiohttp.ClientConnectionError, OSError):
            answer = call.broken("disconnected", "connect_failed")
        except (aiohttp.ClientError, ValueError):
            answer = call.broken("unreadable_answer", "connect_failed")
        if call.callers_error is not None:
            raise call.callers_error
        return answer

    async def close(self) -> None:
        """Let go of connections; a call still under way ends in doubt."""
        self._closed = True
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _post(self, url: str, call: _Call, body: bytes, headers: Mapping[str, str]) -> Answer:
        request_body = _Body(body, call)
        async with self._open().post(
            url, data=request_body, headers=headers, allow_redirects=False, trace_request_ctx=call
        ) as response:
            await request_body.done.wait()
            answer_headers = {name.lower(): value for name, value in response.headers.items()}
            return Answer(response.status, answer_headers, await _read(response))

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            trace = aiohttp.TraceConfig()
            trace.on_request_headers_sent.append(_mark_started)
            self._session = aiohttp.ClientSession(
                # force_close: without keys a doubt cannot be asked away, and an idle connection that has
                # died unnoticed would make one for nothing.
                connector=aiohttp.TCPConnector(limit=self._concurrency, force_close=not self._traits.has_keys),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None),  # send() sets one for the whole
                trace_configs=[trace],
                headers={"User-Agent": "notifier"},
            )
        return self._session

    def _call_headers(self, key: str, context: Mapping[str, str]) -> dict[str, str]:
        headers = dict(self._headers)
        if self._traits.has_keys:
            headers["Idempotency-Key"] = key
        return headers | _context_headers(context, CONTEXT_HEADERS)


def _context_headers(context: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    """Who sends what, percent-encoded."""
    return {
        CONTEXT_HEADERS[name]: quote(context[name], safe=_PLAIN, errors="surrogatepass")
        for name in names
        if name in context
    }


@dataclass(slots=True)
class _Call:
    """How far one call has come."""

    written: Written | None
    started: bool = False
    callers_error: Exception | None = None

    def broken(self, doubtful: str, certain: str) -> Outcome:
        """The outcome of a call that ended without an answer."""
        return Ambiguous(doubtful) if self.started else RetryLater(certain, answered=False)


async def _mark_started(_session: aiohttp.ClientSession, context: SimpleNamespace, _params: object) -> None:
    """A connection stands and the next thing to happen is the first byte: from here on nothing is certain."""
    call: _Call = context.trace_request_ctx
    call.started = True


class _Body(Payload):
    """Ready bytes that tell when they have left this process."""

    _autoclose = True

    def __init__(self, body: bytes, call: _Call) -> None:
        super().__init__(body, content_type="application/json")
        self._size = len(body)
        self._body = body
        self._call = call
        self.done = asyncio.Event()

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return self._body.decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        await self.write_with_length(writer, None)

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        """Write everything; with a `written` to call, wait for the socket to have it all first."""
        try:
            if self._call.written is None:
                await writer.write(self._body)
            else:
                transport = writer.transport
                assert isinstance(transport, asyncio.Transport)
                await write_through(writer, transport, self._body)
                await self._tell(self._call.written, transport)
        finally:
            self.done.set()

    async def _tell(self, written: Written, transport: asyncio.Transport) -> None:
        transport.pause_reading()  # an answer that comes now would end the request, and `written` with it
        try:
            await written()
        except Exception as error:
            self._call.callers_error = error  # aiohttp would wrap it; it belongs to the caller of send()
            raise
        finally:
            transport.resume_reading()


async def write_through(writer: AbstractStreamWriter, transport: asyncio.Transport, body: bytes) -> None:
    """Write, and return when the kernel holds the last byte: a SIGKILL after that takes nothing back."""
    transport.set_write_buffer_limits(high=0)  # drain() then waits for an empty buffer
    await writer.write(body)
    await writer.drain()
    transport.set_write_buffer_limits()


async def _read(response: aiohttp.ClientResponse) -> bytes | None:
    """The body, or None where it breaks off or never ends: the status may be enough all the same."""
    body = b""
    try:
        async for chunk in response.content.iter_any():
            body += chunk
            if len(body) > ANSWER_BYTES_MAX:
                response.close()
                return None
    except (aiohttp.ClientError, OSError) as error:
        if isinstance(error, TimeoutError):
            raise
        return None
    return body


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
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
