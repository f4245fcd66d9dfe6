"""The nudge: "there is work", heard at once when Redis is well. Polling is the floor when it is not."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from redis.exceptions import ConnectionError as RedisConnectionError

from notifier import observe
from notifier.coordination.client import PREFIX, RedisClient, close_quietly, connect

CHANNEL = f"{PREFIX}nudge"
COALESCE_S = 0.01
LISTEN_S = 5.0
RECONNECT_MAX_S = 5.0


class Wakeup:
    """Publishes nudges, at most one per 10 ms, and listens for them. Never waited for."""

    def __init__(self, client: RedisClient, url: str | None) -> None:
        self._client = client
        self._url = url
        self._line: Any = None  # a connection that nothing else is said on
        self._words: Any = None
        self._pending: asyncio.Task[None] | None = None
        self._again = False

    def nudge(self) -> None:
        """Tell everybody that there is work; returns at once and may be lost."""
        if not self._client.is_configured:
            return
        if self._pending is not None and not self._pending.done():
            self._again = True
            return
        self._pending = asyncio.create_task(self._publish())

    async def _publish(self) -> None:
        while True:
            self._again = False
            await self._client.ask("nudge", self._say)
            await asyncio.sleep(COALESCE_S)
            if not self._again:
                return

    async def _say(self, redis: Any) -> Any:
        """Publish, at half the price: a hundred times a second, a connection's way out of the pool and back counts."""
        if self._line is None:
            self._line = await redis.connection_pool.get_connection()
            self._words = self._line.pack_command("PUBLISH", CHANNEL, "1")
        try:
            return await self._exchange()
        except RedisConnectionError:  # it may have died unnoticed since the last one; it opens itself anew
            return await self._exchange()

    async def _exchange(self) -> Any:
        await self._line.send_packed_command(self._words, check_health=False)
        return await self._line.read_response()

    async def flush(self) -> None:
        """Wait until what was nudged is out, or given up; for the end of a process."""
        if self._pending is not None:
            await asyncio.wait([self._pending], timeout=1)

    async def listen(self, heard: Callable[[], None]) -> None:
        """Call `heard` for every nudge, for ever; reconnects with back-off. Ends only when canceled."""
        if self._url is None or not self._client.is_configured:
            return
        wait_s = 0.1
        while True:
            started = time.monotonic()
            try:
                await self._subscribe(heard)
            except asyncio.CancelledError:
                raise
            except Exception as error:  # noqa: BLE001 - anything may come back from a server that lies
                observe.log().debug("nudges_unheard", error=type(error).__name__)
            if time.monotonic() - started > LISTEN_S:
                wait_s = 0.1
            await asyncio.sleep(wait_s)
            wait_s = min(wait_s * 2, RECONNECT_MAX_S)

    async def _subscribe(self, heard: Callable[[], None]) -> None:
        assert self._url is not None
        redis = connect(self._url, timeout_s=1.0)
        pubsub = redis.pubsub(ignore_subscribe_messages=True)
        try:
            await pubsub.subscribe(CHANNEL)
            heard()  # whatever was said while nobody listened
            silent_since = time.monotonic()
            while True:
                asked = time.monotonic()
                message = await pubsub.get_message(timeout=LISTEN_S)
                if isinstance(message, dict) and message.get("type") == "message":
                    heard()
                    silent_since = time.monotonic()
                elif time.monotonic() - asked < COALESCE_S:
                    await asyncio.sleep(COALESCE_S)  # an answer that is none must not make a hot loop
                if time.monotonic() - silent_since > 6 * LISTEN_S:
                    await asyncio.wait_for(redis.ping(), 1)  # is anybody there? An error here subscribes anew
                    silent_since = time.monotonic()
        finally:
            await close_quietly(pubsub)
            await close_quietly(redis)
