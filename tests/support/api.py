"""A real api inside a test: the app on a real database, a key per scope, and ways to bring rows into a state."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
from aiohttp import ClientSession, DummyCookieJar, web
from yarl import URL

from notifier.clock import boot_clock
from notifier.domain.notification import Settlement, State
from notifier.http.app import build_app, listen
from notifier.ingest import Ingest
from notifier.runtime import Runtime, background, open_runtime, way_out
from notifier.settings import Settings
from notifier.store import deliveries, results
from notifier.store.deliveries import Claim, Claimant
from notifier.store.results import Call, Result

KEYS = {
    "k-all": ["events", "read", "operate"],
    "k-events": ["events"],
    "k-read": ["read"],
    "k-operate": ["operate"],
}
LOGIN_SECRETS = tuple(
    "whsec_" + base64.b64encode(text).decode()
    for text in (b"the secret in use, of thirty-two", b"the one it is rotated to, longer")
)
SENT = Settlement(State.SENT, None, False, "accepted", "m_1")
UNCERTAIN = Settlement(State.UNCERTAIN, "timeout", True)
FAILED = Settlement(State.FAILED, "invalid_to", False)
AGAIN = Settlement(State.PENDING, "http_503", True, wait=timedelta(hours=1))
_numbers = itertools.count(1)


@dataclass(frozen=True)
class Answer:
    status: int
    body: Any
    headers: Any

    @property
    def etag(self) -> str:
        return self.headers["ETag"]


@dataclass
class Api:
    url: URL
    session: ClientSession
    app: web.Application
    runtime: Runtime
    conn: asyncpg.Connection
    worker: str = "worker-1"

    @property
    def at(self) -> tuple[str, int]:
        """Host and port."""
        assert self.url.host and self.url.port
        return self.url.host, self.url.port

    async def ask(self, method: str, path: str, *, key: str | None = "k-all", **options: Any) -> Answer:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        headers |= options.pop("headers", {})
        url = self.url.join(URL(path, encoded=True))
        async with self.session.request(method, url, headers=headers, **options) as answer:
            body: Any = await answer.read()
            if answer.content_type.endswith("json"):
                body = await answer.json(content_type=None)
            return Answer(answer.status, body, answer.headers)

    async def get(self, path: str, **options: Any) -> Answer:
        return await self.ask("GET", path, **options)

    async def event(self, event_type: str, user_id: str = "u_1", **fields: Any) -> dict[str, Any]:
        user = {"id": user_id, **fields.pop("user", {})}
        document = {"id": f"evt_{next(_numbers)}", "type": event_type, "user": user, **fields}
        answer = await self.ask("POST", "/v1/events", json=document)
        assert answer.status == 202, answer
        return answer.body

    async def signup(self, user_id: str = "u_1", email: str | None = "ada@example.com", ago: Any = None) -> Any:
        """Sign a user up; gives the ids of both notifications by kind."""
        fields: dict[str, Any] = {} if ago is None else {"occurred_at": (datetime.now(UTC) - ago).isoformat()}
        told = await self.event("user.signed_up", user_id, user={} if email is None else {"email": email}, **fields)
        return {item["kind"]: item["id"] for item in told["notifications"]}

    async def login(self, user_id: str = "u_1") -> dict[str, Any]:
        return await self.event("user.logged_in", user_id)

    async def read(self, notification: str) -> Answer:
        answer = await self.get(f"/v1/notifications/{notification}")
        assert answer.status == 200, answer
        return answer

    async def state(self, notification: str) -> str:
        return (await self.read(notification)).body["state"]

    async def act(
        self, act: str, notification: str, etag: str | None, body: Any = None, *, key: str = "k-operate"
    ) -> Answer:
        headers = {} if etag is None else {"If-Match": etag}
        path = f"/v1/notifications/{notification}/{act}"
        return await self.ask("POST", path, key=key, headers=headers, **({} if body is None else {"json": body}))

    # ------------------------------------------------------------------------------------------ a worker's part

    @property
    def claimant(self) -> Claimant:
        traits = way_out(self.runtime.settings).traits
        return Claimant(
            worker=self.worker,
            ttl=timedelta(seconds=30),
            templates={name: template.hash for name, template in self.runtime.templates.items()},
            provider=traits.name,
            account=traits.account,
            has_keys=traits.has_keys,
        )

    async def claim(self, limit: int = 10) -> list[Claim]:
        async with self.runtime.database.connection() as conn:
            return await deliveries.claim(conn, self.claimant, list(self.claimant.templates), limit)

    async def finish(self, claim: Claim, settlement: Settlement, outcome: str | None = "accepted") -> bool:
        """Write what a call led to; False when the claim had been lost."""
        call = None
        if outcome is not None:
            call = Call(outcome, settlement.reason, began=boot_clock(), took_s=0.0)
        result = Result(claim, settlement, call, f"worker:{self.worker}")
        async with self.runtime.database.connection() as conn:
            if settlement.state is State.PENDING:
                return claim.id in await results.put_back(conn, self.worker, [result])
            return claim.id in (await results.settle(conn, self.worker, [result])).ids

    async def bring_to(self, state: str, user_id: str = "u_1", **options: Any) -> str:
        """Sign up and take the onboarding mail to a state; gives its id."""
        notification: str = (await self.signup(user_id, **options))["onboarding"]
        if state == "pending":
            return notification
        [claim] = await self.claim()
        assert claim.id == UUID(notification)
        match state:
            case "sent":
                assert await self.finish(claim, SENT)
            case "failed":
                assert await self.finish(claim, FAILED, "rejected")
            case "uncertain":
                assert await self.finish(claim, UNCERTAIN, "ambiguous")
            case "doubtful":
                assert await self.finish(claim, AGAIN, "ambiguous")
            case "skipped":
                assert await self.finish(claim, Settlement(State.SKIPPED, "suppressed", False), None)
            case _:
                assert state == "sending"
        return notification


@contextlib.asynccontextmanager
async def running_api(database_url: str, **settings: Any) -> AsyncIterator[Api]:
    """The api with everything behind it, without Redis unless given."""
    wanted = {
        "database_url": database_url,
        "redis_url": "",
        "api_keys": KEYS,
        "login_webhook_secrets": LOGIN_SECRETS,
        "_env_file": None,
        **settings,
    }
    options = Settings(**wanted)
    conn = await asyncpg.connect(database_url)
    try:
        async with open_runtime(options, "api") as runtime:
            ingest = Ingest(runtime.database, runtime.journeys, runtime.wakeup, pool_size=options.pool_size)
            app = build_app(runtime, ingest)
            async with (
                background(ingest.run()),
                listen(app, "127.0.0.1", 0) as (host, port),
                ClientSession(cookie_jar=DummyCookieJar()) as session,
            ):
                yield Api(URL.build(scheme="http", host=host, port=port), session, app, runtime, conn)
    finally:
        await conn.close()


async def together(*awaitables: Any) -> list[Any]:
    """Start all at the same moment."""
    barrier = asyncio.Barrier(len(awaitables))

    async def run(awaitable: Any) -> Any:
        await barrier.wait()
        return await awaitable

    return await asyncio.gather(*(run(awaitable) for awaitable in awaitables))
