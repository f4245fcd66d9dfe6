"""One question to the API over HTTP, and its answer; what goes wrong is said in words about what to do."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from notifier.client.address import find_api, find_key
from notifier.domain.errors import NotifierError, NotReady
from notifier.settings import Scope, Settings

CONNECT_TIMEOUT_S = 5.0
ANSWER_TIMEOUT_S = 40.0  # a batch may take 20 s
ANSWER_BYTES_MAX = 64 * 1024 * 1024
PROBLEM = "application/problem+json"
HEARS_ALL = {"Accept": "application/json, application/problem+json"}


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back. Header names are lower-case."""

    status: int
    body: Any
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def generation(self) -> int:
        """The generation an ETag names."""
        return int(self.headers.get("etag", "").strip('"') or 0)

    @property
    def now(self) -> datetime:
        """Real time where the API is."""
        try:
            return parsedate_to_datetime(self.headers["date"]).astimezone(UTC)
        except (KeyError, ValueError):
            return datetime.now(UTC)

    @property
    def business_now(self) -> datetime:
        """Business time, where the answer tells it; else real time."""
        try:
            return datetime.fromisoformat(self.headers["notifier-now"])
        except (KeyError, ValueError):
            return self.now


class Unreachable(NotReady):
    """Nobody answers there: nothing was done."""


class Unanswered(NotReady):
    """The request went out and no answer came: it may have been done."""


class Refused(NotifierError):
    """The API said no. `answer`: its RFC 9457 document; the text is that in words."""

    def __init__(self, text: str, answer: Answer) -> None:
        super().__init__(text)
        self.status = answer.status
        self.answer = answer


class Api:
    """A caller of one API. Every question has a connection of its own: nothing goes stale while a person thinks."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._found = find_api(settings)

    @property
    def where(self) -> str:
        """The address, and who named it."""
        return f"{self._found.value} ({self._found.origin})"

    def get(self, path: str, *, scope: Scope = "read", query: Mapping[str, str | None] | None = None) -> Answer:
        """Read something."""
        return self.ask("GET", path, scope=scope, query=query)

    def ask(
        self,
        method: str,
        path: str,
        *,
        scope: Scope | None,
        query: Mapping[str, str | None] | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Give the answer. Raises Refused for a problem, Unreachable or Unanswered when there is no answer."""
        connection = self._connect()  # first of all: without an API nobody needs a key
        sent = dict(HEARS_ALL | dict(headers or {}))
        key_from = ""
        if scope is not None:
            key = find_key(self._settings, scope)
            sent["Authorization"], key_from = f"Bearer {key.value}", key.origin
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
            sent.setdefault("Content-Type", "application/json")
        given = {name: value for name, value in (query or {}).items() if value is not None}
        target = path + ("?" + urlencode(given, errors="surrogateescape") if given else "")
        answer = self._exchange(connection, method, target, body, sent)
        if answer.status < 400:
            return answer
        raise Refused(self._words(answer, key_from, scope), answer)

    def _exchange(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        target: str,
        body: bytes | None,
        headers: Mapping[str, str],
    ) -> Answer:
        try:
            connection.request(method, target, body, {name: _raw(value) for name, value in headers.items()})
            response = connection.getresponse()
            raw = response.read(ANSWER_BYTES_MAX + 1)
        except TimeoutError:
            raise Unanswered(
                f"the API at {self.where} has not answered for {ANSWER_TIMEOUT_S:.0f} s: {_PERHAPS}"
            ) from None
        except (OSError, http.client.HTTPException) as error:
            why = str(error) or type(error).__name__
            raise Unanswered(f"the API at {self.where} broke off before it answered ({why}): {_PERHAPS}") from None
        finally:
            connection.close()
        return self._understand(response, raw)

    def _connect(self) -> http.client.HTTPConnection:
        parts = urlsplit(self._found.value)
        connection: http.client.HTTPConnection
        if parts.scheme.lower() == "https":
            connection = http.client.HTTPSConnection(
                parts.hostname or "", parts.port, timeout=CONNECT_TIMEOUT_S, context=ssl.create_default_context()
            )
        else:
            connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=CONNECT_TIMEOUT_S)
        try:
            connection.connect()
        except (OSError, UnicodeError) as error:
            why = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise Unreachable(
                f"no API answers at {self.where}: {why}. Start one (`notifier run`, or `notifier api`), or say where "
                "it is: NOTIFIER_API_URL, or NOTIFIER_DATA_DIR of the run"
            ) from None
        connection.sock.settimeout(ANSWER_TIMEOUT_S)
        return connection

    def _understand(self, response: http.client.HTTPResponse, raw: bytes) -> Answer:
        headers = {name.lower(): value for name, value in response.getheaders()}
        if response.status == 204:
            return Answer(response.status, None, headers)
        try:
            if not headers.get("content-type", "").partition(";")[0].strip().endswith("json"):
                raise ValueError
            return Answer(response.status, json.loads(raw), headers)
        except ValueError:
            raise Unreachable(
                f"what answers at {self.where} is no notifier API (status {response.status}, "
                f"{headers.get('content-type', 'no content type')}): set NOTIFIER_API_URL to the right address"
            ) from None

    def _words(self, answer: Answer, key_from: str, scope: Scope | None) -> str:
        problem = answer.body if isinstance(answer.body, dict) else {}
        if not {"type", "title", "detail"} & problem.keys():
            return (
                f"what answers at {self.where} is no notifier API (status {answer.status}): set NOTIFIER_API_URL to "
                "the right address"
            )
        detail = str(problem.get("detail") or problem.get("title") or f"status {answer.status}")
        match answer.status:
            case 401:
                return (
                    f"the API at {self.where} does not know this key ({key_from}): set NOTIFIER_API_KEY to one "
                    "it knows, or NOTIFIER_DATA_DIR to the directory of the `notifier run` it belongs to"
                )
            case 403:
                return f"this key ({key_from}) lacks the scope {scope!r}: set NOTIFIER_API_KEY to one that has it"
            case 503:
                wait_s = answer.headers.get("retry-after", "1")
                return f"{detail} (again in {wait_s} s)"
        others = [item for item in problem.get("errors", []) if item.get("detail") not in detail]
        more = [f"{item.get('pointer') or 'the whole'}: {item.get('detail')}" for item in others]
        return "\n".join([detail, *more])


_PERHAPS = "it may have been done all the same; look before you repeat it"


def path(*parts: str) -> str:
    """An address below /v1, each part percent-encoded."""
    return "/v1/" + "/".join(quote(part, safe="", errors="surrogateescape") for part in parts)


def _raw(value: str) -> bytes:
    return value.encode("utf-8", "surrogateescape")  # the library would take Latin-1
