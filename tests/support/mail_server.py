"""A mail server inside a test, with TLS and a login, as aiosmtpd speaks it."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trustme
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

USER, PASSWORD = "ada", "a secret"


@dataclass
class Server:
    """What it took, in order; over how many connections, and after how many logins."""

    port: int = 0
    ca_file: Path | None = None
    taken: list[Envelope] = field(default_factory=list)
    connections: dict[object, asyncio.BaseTransport] = field(default_factory=dict)
    logins: int = 0
    introductions: list[str | None] = field(default_factory=list)
    refusals: dict[str, str] = field(default_factory=dict)  # step → what it is answered, once

    async def handle_MAIL(
        self, _server: SMTP, _session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        envelope.mail_from = address
        envelope.mail_options.extend(options)
        return self.refusals.pop("mail", "250 2.1.0 Ok")

    async def handle_RCPT(
        self, _server: SMTP, _session: Session, envelope: Envelope, address: str, _options: list[str]
    ) -> str:
        envelope.rcpt_tos.append(address)
        return self.refusals.pop("rcpt", "250 2.1.5 Ok")

    async def handle_DATA(self, _server: SMTP, _session: Session, envelope: Envelope) -> str:
        if refusal := self.refusals.pop("dot", None):
            return refusal
        self.taken.append(envelope)
        return f"250 2.0.0 Ok: queued as M{len(self.taken)}"

    def authenticate(self, _server: SMTP, _session: Any, _envelope: Any, _mechanism: str, auth: Any) -> AuthResult:
        assert isinstance(auth, LoginPassword)
        good = (auth.login, auth.password) == (USER.encode(), PASSWORD.encode())
        self.logins += good
        return AuthResult(success=good, handled=good)

    def hang_up(self) -> None:
        """Close every connection, as a server does with an idle client."""
        for connection in self.connections.values():
            connection.close()


class _Counted(SMTP):
    async def smtp_XNOTIFIER(self, arg: str | None) -> None:
        """Not announced: nobody has any business to say it."""
        self.event_handler.introductions.append(arg)
        await self.push("250 Ok")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.event_handler.connections[transport.get_extra_info("peername")] = transport  # STARTTLS comes here twice
        super().connection_made(transport)


@contextlib.asynccontextmanager
async def mail_server(
    folder: Path, *, protection: str = "none", login: bool = False, **options: Any
) -> AsyncIterator[Server]:
    server = Server()
    context: ssl.SSLContext | None = None
    if protection != "none":
        authority = trustme.CA()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("localhost").configure_cert(context)
        server.ca_file = folder / "ca.pem"
        authority.cert_pem.write_to_path(str(server.ca_file))
    starttls = context if protection == "starttls" else None
    if login:
        options |= {
            "authenticator": server.authenticate,
            "auth_required": True,
            "auth_require_tls": starttls is not None,
        }

    def session() -> SMTP:
        return _Counted(
            server, hostname="mail.test", tls_context=starttls, require_starttls=starttls is not None, **options
        )

    loop = asyncio.get_running_loop()
    listening = await loop.create_server(session, "127.0.0.1", 0, ssl=context if protection == "tls" else None)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listening.close()
        server.hang_up()
        await listening.wait_closed()
