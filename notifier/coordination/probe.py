"""Whether a Redis is good for what we ask of one: answers in time, and lets us do the few things hints take."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass
from typing import Any

from redis.exceptions import AuthenticationError, NoPermissionError, RedisError

from notifier.coordination.client import PREFIX, close_quietly, connect
from notifier.coordination.lease import RENEW
from notifier.coordination.wakeup import CHANNEL
from notifier.domain.errors import NotReady

ANSWER_TIMEOUT_S = 2.0
LEASES = f"EVAL, GET and SET on {PREFIX}*"


@dataclass(frozen=True, slots=True)
class Report:
    """`version` and `eviction` are empty where we may not ask. `refused`: what its access list keeps from us.

    `full`: it has reached its memory limit and throws nothing out.
    """

    version: str
    eviction: str
    full: bool
    answer_s: float
    refused: tuple[str, ...]


async def examine(url: str) -> Report:
    """Try everything once. Raises NotReady, in words without the URL, when it does not answer or let us in."""
    try:
        redis = connect(url, timeout_s=ANSWER_TIMEOUT_S)
    except ValueError:  # what the library says may quote the password
        raise NotReady("NOTIFIER_REDIS_URL cannot be read: write redis://[user:password@]host[:port]") from None
    try:
        await redis.ping()
        started = time.monotonic()
        await redis.ping()
        answer_s = time.monotonic() - started
        return await _report(redis, answer_s)
    except (AuthenticationError, NoPermissionError):
        raise NotReady("it does not let us in: look at user and password in NOTIFIER_REDIS_URL") from None
    except (RedisError, OSError, TimeoutError) as error:
        raise NotReady(f"it does not answer ({type(error).__name__})") from None
    finally:
        await close_quietly(redis)


async def _report(redis: Any, answer_s: float) -> Report:
    refused: list[str] = []
    server = await _try(redis.info("server"), "INFO", refused) or {}
    memory = await _try(redis.info("memory"), "INFO", refused) or {}
    refused.clear()  # nothing but this report is made of INFO
    key = f"{PREFIX}lease:{uuid.uuid4()}"
    full = False
    try:
        if await _try(redis.eval(RENEW, 1, key, "doctor", 1000), LEASES, refused) == 0:
            refused.append(LEASES)  # the script ran, and could not look at its key
    except RedisError as error:
        if not str(error).startswith("OOM"):
            raise
        full = True
    await _try(redis.publish(CHANNEL, "1"), f"PUBLISH to {CHANNEL}", refused)
    pubsub = redis.pubsub()
    try:
        await _try(pubsub.subscribe(CHANNEL), f"SUBSCRIBE to {CHANNEL}", refused)
        await _try(pubsub.get_message(timeout=1.0), f"SUBSCRIBE to {CHANNEL}", refused)
    finally:
        await close_quietly(pubsub)
    return Report(
        version=str(server.get("valkey_version") or server.get("redis_version") or ""),
        eviction=str(memory.get("maxmemory_policy", "")),
        full=full,
        answer_s=answer_s,
        refused=tuple(dict.fromkeys(refused)),
    )


async def _try(question: Any, what: str, refused: list[str]) -> Any:
    try:
        return await question
    except RedisError as error:
        if "NOPERM" not in str(error) and not isinstance(error, NoPermissionError):
            raise
        refused.append(what)
        return None
