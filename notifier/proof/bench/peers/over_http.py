"""The job that is one POST: the same request, by the same client library, for every side."""

from __future__ import annotations

import aiohttp


class Poster:
    """Posts ready bytes under a key, and fails loudly when they are not taken."""

    def __init__(self, url: str, body: str, connections: int) -> None:
        self._url = url + "/emails"
        self._body = body.encode()
        self._connections = connections
        self._session: aiohttp.ClientSession | None = None

    async def post(self, key: str) -> None:
        """Make one call, in the loop of the first one."""
        async with self._open().post(self._url, data=self._body, headers={"Idempotency-Key": key}) as response:
            await response.read()
            if response.status != 200:
                raise RuntimeError(f"the receiver answered {response.status}")

    async def close(self) -> None:
        """Let go of the connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=self._connections),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"Authorization": "Bearer re_bench", "Content-Type": "application/json"},
            )
        return self._session
