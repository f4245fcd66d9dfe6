"""The send lease: a worker whose call takes long says so, and others leave its row alone for a while.

A hint and no more: it may cause one turn to be skipped. It never allows a send and never keeps one back for longer
than one claim time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from uuid import UUID

from notifier import observe
from notifier.coordination.client import PREFIX, RedisClient

RENEW = """
local granted = 0
for i, key in ipairs(KEYS) do
    local owner = redis.pcall('GET', key)
    if owner == false or owner == ARGV[1] then
        redis.call('SET', key, ARGV[1], 'PX', ARGV[2])
        granted = granted + 1
    end
end
return granted
"""
HELD = """
local held = {}
for i, key in ipairs(KEYS) do
    if redis.pcall('GET', key) == ARGV[i] then held[i] = 1 else held[i] = 0 end
end
return held
"""
_RELEASE = """
for i, key in ipairs(KEYS) do
    if redis.pcall('GET', key) == ARGV[1] then redis.call('DEL', key) end
end
return 1
"""


class Leases:
    """Leases by notification id. One Lua call for any number of them."""

    def __init__(self, client: RedisClient) -> None:
        self._client = client

    async def renew(self, ids: Sequence[UUID], owner: str, ttl: timedelta) -> None:
        """Say that `owner` is still at these; a key that somebody else holds is left alone."""
        if not ids:
            return
        arguments = [*map(_key, ids), owner, int(ttl.total_seconds() * 1000)]
        granted = await self._client.ask("renew", lambda redis: redis.eval(RENEW, len(ids), *arguments))
        if isinstance(granted, int) and 0 <= granted <= len(ids):
            _count("granted", granted)
            _count("denied", len(ids) - granted)

    async def held(self, owners: Mapping[UUID, str]) -> set[UUID]:
        """Which of these claims their owners still renew; the empty set when Redis has no usable answer."""
        if not owners:
            return set()
        ids = list(owners)
        arguments = [*map(_key, ids), *owners.values()]
        answer = await self._client.ask("held", lambda redis: redis.eval(HELD, len(ids), *arguments))
        if not isinstance(answer, list) or len(answer) != len(ids):
            return set()
        held = {notification for notification, flag in zip(ids, answer, strict=True) if flag == 1}
        _count("denied", len(held))
        _count("granted", len(ids) - len(held))
        return held

    async def release(self, ids: Sequence[UUID], owner: str) -> None:
        """Drop our own leases early; they would run out by themselves."""
        if ids:
            await self._client.ask("release", lambda redis: redis.eval(_RELEASE, len(ids), *map(_key, ids), owner))


def _key(notification: UUID) -> str:
    return f"{PREFIX}lease:{notification}"


def _count(outcome: str, number: int) -> None:
    if number:
        observe.COORDINATION_ACQUIRE.labels("send_lease", outcome).inc(number)
