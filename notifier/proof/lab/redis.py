"""A Redis in memory: each command is atomic, keys run out, and now and then it forgets."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from notifier.proof.lab.loop import Loop, nap


@dataclass(frozen=True, slots=True)
class _Value:
    text: str
    written_at: float
    until: float


class Redis:
    """One server. Times are seconds."""

    def __init__(self, loop: Loop, draw: Random) -> None:
        self._loop, self._draw = loop, draw
        self._values: dict[str, _Value] = {}

    async def get(self, key: str) -> str | None:
        """GET."""
        await self._way()
        found = self._find(key)
        await self._way()
        return found

    async def set(self, key: str, text: str, *, ex: float, nx: bool = False) -> bool:
        """SET key text EX ex [NX]; whether it was written."""
        await self._way()
        written = not nx or self._find(key) is None
        if written:
            self._values[key] = _Value(text, self._loop.now, self._loop.now + ex)
        await self._way()
        return written

    async def expire(self, key: str, token: str, ex: float) -> bool:
        """Renew a key if it still holds our token, as one script; whether it did."""
        await self._way()
        held = self._find(key) == token
        if held:
            self._values[key] = _Value(token, self._loop.now, self._loop.now + ex)
        await self._way()
        return held

    async def delete(self, key: str, token: str) -> None:
        """Delete a key if it still holds our token, as one script."""
        await self._way()
        if self._find(key) == token:
            del self._values[key]
        await self._way()

    def forget(self, newer_than: float = float("-inf")) -> None:
        """Lose what was written after this moment, or everything."""
        self._values = {key: value for key, value in self._values.items() if value.written_at <= newer_than}

    def _find(self, key: str) -> str | None:
        value = self._values.get(key)
        return value.text if value is not None and value.until > self._loop.now else None

    async def _way(self) -> None:
        await nap(self._draw.uniform(0.0002, 0.002))
