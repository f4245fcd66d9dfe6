"""The job that is one POST through aiohttp's session: the same request for every side."""

from __future__ import annotations

import aiohttp


class Poster:
    """Posts bytes under a key, and fails loudly when they are not taken. `body`: what is ready for every call."""

    def __init__(self, url: str, body: str, connections: int) -> None:
        self._url = url
        self._body = body.encode()
        self._connections = connections
        self._session: aiohttp.ClientSession | None = None

    async def post(self, key: str, path: str = "/emails", body: bytes | None = None) -> bytes:
        """Make one call, in the loop of the first one; gives the answer."""
        data = self._body if body is None else body
        async with self._open().post(self._url + path, data=data, headers={"Idempotency-Key": key}) as response:
            answer = await response.read()
            if response.status != 200:
                raise RuntimeError(f"the receiver answered {response.status}")
            return answer

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
