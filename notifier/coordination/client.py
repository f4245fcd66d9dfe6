"""One connection to Redis, one time budget: every question has an answer, also when Redis has none."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ResponseError
from redis.exceptions import TimeoutError as RedisTimeout

from notifier import observe

BUDGET_S = 0.05  # Redis slower than this is Redis away
PAUSE_S = 1.0  # after a failure, how long nobody asks
CONNECTIONS_MAX = 8
PREFIX = "nt:"


class RedisClient:
    """Asks Redis and never raises for what it answers, or for its silence."""

    def __init__(self, url: str | None) -> None:
        self._silent_until = 0.0
        self.redis: Any = connect(url, timeout_s=BUDGET_S) if url else None

    @property
    def is_configured(self) -> bool:
        """Whether there is a Redis at all."""
        return self.redis is not None

    @property
    def is_well(self) -> bool:
        """Whether the last question was answered."""
        return self.is_configured and time.monotonic() >= self._silent_until

    async def ask(self, operation: str, question: Callable[[Any], Awaitable[Any]]) -> Any | None:
        """Put one question within the budget. None: no usable answer; the caller goes on without Redis."""
        if not self.is_configured:
            self._go_on("not_configured")
            return None
        if not self.is_well:
            self._go_on("paused")
            return None
        started = time.monotonic()
        try:
            async with asyncio.timeout(BUDGET_S):
                answer = await question(self.redis)
        except (TimeoutError, RedisTimeout):  # whichever of the two clocks ends first
            self._fail("redis_slow")
            return None
        except Exception as error:  # noqa: BLE001 - anything may come back from a server that lies
            self._fail("redis_error" if isinstance(error, ResponseError) else "redis_unavailable")
            return None
        finally:
            observe.COORDINATION_LATENCY.labels(operation).observe(time.monotonic() - started)
        return answer

    def _fail(self, reason: str) -> None:
        self._silent_until = time.monotonic() + PAUSE_S
        self._go_on(reason)

    def _go_on(self, reason: str) -> None:
        observe.COORDINATION_FALLBACK.labels(reason).inc()

    async def ping(self) -> bool:
        """Whether Redis answers now."""
        return await self.ask("ping", lambda redis: redis.ping()) is not None

    async def close(self) -> None:
        """Let go of the connections, whatever state they are in."""
        if self.redis is not None:
            await close_quietly(self.redis)


def connect(url: str, *, timeout_s: float) -> Any:
    """Make a client that tries once: the library's default asks ten times and has been seen to act eleven times."""
    pool = BlockingConnectionPool.from_url(  # the default pool fails at once where this one waits for its turn
        url,
        timeout=timeout_s,
        socket_connect_timeout=timeout_s,
        socket_timeout=timeout_s,
        retry=Retry(NoBackoff(), 0),
        protocol=2,
        max_connections=CONNECTIONS_MAX,
    )
    return Redis.from_pool(pool)


async def close_quietly(closable: Any) -> None:
    """Close something of Redis; a server that is gone is no reason to fail."""
    try:
        async with asyncio.timeout(1):
            await closable.aclose()
    except Exception as error:  # noqa: BLE001 - we are leaving anyway
        observe.log().debug("redis_close_failed", error=type(error).__name__)
