"""The way out over SMTP, walked step by step: lost before the final dot is certain, after it a doubt."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import cast
from urllib.parse import quote

from aiosmtplib import SMTP, SMTPException, SMTPResponseException, SMTPServerDisconnected

from providers.base import Ambiguous, ConfigError, HandOver, Message, Outcome, Rejected, RetryLater, Traits, Written
from providers.mail_server import MailServer
from providers.smtp_ear import Ear, Garbled
from providers.smtp_mail import Mail, Unsendable, build
from providers.smtp_replies import Step, classify

IDLE_S = 10.0  # an unused connection older than this is not trusted again
CLOSE_S = 1.0
PIECE_BYTES = 65_536
HOST_NAME = re.compile(r"(?:[A-Za-z0-9_-]{1,63}\.)*[A-Za-z0-9_-]{1,63}")


class SmtpProvider:
    """A client of one mail server. Connections are opened as calls need them, kept, and used by one call at a time."""

    def __init__(self, server: MailServer, *, timeout_s: float) -> None:
        self._server = server
        self._timeout_s = timeout_s
        self._idle: list[_Session] = []
        self._tls: ssl.SSLContext | None = None
        self._closed = False
        # From begin to the final dot one mail at a time: a process that dies there leaves one doubt, not a handful.
        self._handing_over = asyncio.Lock()

    @property
    def traits(self) -> Traits:
        """What may be assumed; constant for the life of the object."""
        return self._server.traits

    async def send(
        self,
        message: Message,
        key: str,
        context: Mapping[str, str],
        hand_over: HandOver | None = None,
        written: Written | None = None,
    ) -> Outcome | None:
        """Make one call; raises nothing but what `hand_over` and `written` themselves raise, and CancelledError.

        The time-out holds twice: once up to the final dot, once for the answer to it.
        """
        if self._closed:
            return RetryLater("client_closed", answered=False)
        try:
            mail = build(message, key, self._server.key_header)
        except Unsendable as error:
            return Rejected(error.reason)
        call = _Call(mail, {"key": key, **context}, hand_over, written)
        return await self._outcome(call, self._make)

    async def try_out(self) -> Outcome | None:
        """Connect, protect and log in, and send nothing. None: it works; else what every call would come to."""
        return await self._outcome(_Call(Mail("", "", b"", b""), {}, None, None), self._greet)

    async def _outcome(
        self, call: _Call, work: Callable[[_Call, asyncio.Timeout], Awaitable[Outcome | None]]
    ) -> Outcome | None:
        """What the work comes to, whatever goes wrong in it."""
        try:
            async with asyncio.timeout(self._timeout_s) as limit:
                return await work(call, limit)
        except _FromCaller as wrapped:
            raise wrapped.error from None
        except _Unfit as unfit:
            return unfit.outcome
        except TimeoutError:
            if call.waits_for_caller:
                return None  # the server did what it should; nothing was handed over
            return call.verdict_after_all() or call.broken("timeout")
        except Garbled:
            return call.broken("unreadable_answer")
        except SMTPResponseException as error:
            return classify(call.step, error.code, error.message)
        except (SMTPException, OSError) as error:
            return call.broken("tls_failed" if _is_tls(error) else "disconnected")
        except ValueError:  # an address or a name of ours that no command can carry
            return call.unspeakable()
        finally:
            if call.session is not None:
                call.session.drop()

    async def close(self) -> None:
        """Let go of connections; a call still under way ends as if the server had cut it."""
        self._closed = True
        idle, self._idle = self._idle, []
        await asyncio.gather(*(session.leave() for session in idle))

    async def _greet(self, call: _Call, _limit: asyncio.Timeout) -> None:
        call.session = _Session(self._client())
        await call.session.open(call, self._server)
        await call.session.leave()

    async def _make(self, call: _Call, limit: asyncio.Timeout) -> Outcome | None:
        await self._open_envelope(call)
        session = call.session
        assert session is not None
        ear = await session.send_content(call)
        call.waits_for_caller = True
        async with self._handing_over:
            if not await call.ask():
                return None  # the connection is dropped with the mail half told: nothing is taken
            call.waits_for_caller = False
            limit.reschedule(asyncio.get_running_loop().time() + self._timeout_s)
            await session.send_dot(call, ear)
        code, text = await ear.reply()
        outcome = classify(Step.DOT, code, text)
        if ear.give_back() and code != 421 and not isinstance(outcome, Ambiguous):
            self._keep(call)
        return outcome

    async def _open_envelope(self, call: _Call) -> None:
        """Have MAIL and RCPT accepted, on a kept connection if there is one that still works."""
        while (session := self._take()) is not None:
            call.session = session
            try:
                await session.announce(call)
                await session.mail(call)
            except (SMTPServerDisconnected, SMTPResponseException) as error:
                if isinstance(error, SMTPResponseException) and error.code != 421:  # it left while nobody looked
                    raise
                session.drop()
            else:
                break
        else:
            call.step = Step.CONNECT
            call.session = session = _Session(self._client())
            await session.open(call, self._server)
            await session.announce(call)
            await session.mail(call)
        try:
            await session.rcpt(call)
        except SMTPResponseException as error:
            if error.code != 421 and await session.reset():
                self._keep(call)  # this recipient was refused, the next need not be
            raise

    def _take(self) -> _Session | None:
        while self._idle:
            session = self._idle.pop()
            if session.works and time.monotonic() - session.used_at < IDLE_S:
                return session
            session.drop()
        return None

    def _keep(self, call: _Call) -> None:
        session, call.session = call.session, None
        if session is not None and session.works and not self._closed:
            session.used_at = time.monotonic()
            self._idle.append(session)
        elif session is not None:
            session.drop()

    def _client(self) -> SMTP:
        server = self._server
        if server.protection != "none" and self._tls is None:
            self._tls = ssl.create_default_context(cafile=server.ca_file)
        return SMTP(
            hostname=server.host,
            port=server.port,
            use_tls=server.protection == "tls",
            start_tls=False,  # we ask for it ourselves, and go without for nobody
            tls_context=self._tls,
            local_hostname=server.hello_name or _own_name(),
            timeout=self._timeout_s,
        )


@dataclass(slots=True)
class _Call:
    """One mail on its way, and how far it has come."""

    mail: Mail
    context: Mapping[str, str]
    hand_over: HandOver | None
    written: Written | None
    step: Step = Step.CONNECT
    handed_over: bool = False
    waits_for_caller: bool = False
    session: _Session | None = None
    ear: Ear | None = None

    async def ask(self) -> bool:
        """Whether to hand over; what goes wrong in there is the caller's."""
        try:
            return self.hand_over is None or await self.hand_over()
        except Exception as error:
            raise _FromCaller(error) from error

    async def tell(self) -> None:
        """The dot is out."""
        try:
            if self.written is not None:
                await self.written()
        except Exception as error:
            raise _FromCaller(error) from error

    def verdict_after_all(self) -> Outcome | None:
        """What was said by the time we gave up: a process that stood still hears answer and alarm in one moment."""
        if not self.handed_over or self.ear is None:
            return None
        try:
            found = self.ear.heard()
        except Garbled:
            return None
        return None if found is None else classify(Step.DOT, *found)

    def broken(self, how: str) -> Outcome:
        """The outcome of a call that ended without an answer."""
        if self.handed_over:
            return Ambiguous(how)
        if how != "tls_failed":
            how = "connect_failed" if self.step is Step.CONNECT else f"{how}_at_{self.step}"
        return RetryLater(how, answered=False)

    def unspeakable(self) -> Outcome:
        """The outcome of a command that could not be written."""
        if self.handed_over:
            return Ambiguous("unreadable_answer")
        if self.step is Step.RCPT:
            return Rejected("address_unsendable")
        return ConfigError("smtp_settings_unusable")


@dataclass(slots=True)
class _Session:
    """One connection to the server."""

    client: SMTP
    used_at: float = 0.0

    @property
    def transport(self) -> asyncio.Transport | None:
        """What bytes go through. Nobody may ask for its class: uvloop's are none of asyncio's."""
        return cast(asyncio.Transport | None, self.client.transport)

    @property
    def works(self) -> bool:
        """Whether it was not closed, as far as we heard."""
        return self.client.is_connected

    async def open(self, call: _Call, server: MailServer) -> None:
        """Connect, greet, protect, log in."""
        await self.client.connect()
        call.step = Step.HELLO
        await self.client.ehlo()
        if server.protection == "starttls":
            if not self.client.supports_extension("starttls"):
                raise _Unfit(ConfigError("smtp_starttls_unsupported"))
            await self.client.starttls()
            await self.client.ehlo()
        if server.username is not None:
            call.step = Step.LOGIN
            if not self.client.supports_extension("auth"):
                raise _Unfit(ConfigError("smtp_auth_unsupported"))
            await self.client.login(server.username, server.password or "")

    async def announce(self, call: _Call) -> None:
        """Tell the mock, and nobody else, who sends what."""
        if self.client.supports_extension("xnotifier"):
            words = [f"{name}={quote(value, safe='')}" for name, value in call.context.items()]
            await self.client.execute_command(b"XNOTIFIER", *(word.encode() for word in words))

    async def mail(self, call: _Call) -> None:
        """MAIL FROM."""
        call.step = Step.MAIL
        if call.mail.needs_utf8 and not self.client.supports_extension("smtputf8"):
            ours = not call.mail.sender.isascii()  # then it is so for every mail, and no mail's fault
            raise _Unfit((ConfigError if ours else Rejected)("smtputf8_unsupported"))
        options = [f"SIZE={len(call.mail.content)}"] if self.client.supports_extension("size") else []
        if call.mail.needs_utf8:
            options.append("SMTPUTF8")
        await self.client.mail(call.mail.sender, options=options, encoding="utf-8")

    async def rcpt(self, call: _Call) -> None:
        """RCPT TO: one mail, one recipient."""
        call.step = Step.RCPT
        await self.client.rcpt(call.mail.recipient, encoding="utf-8")

    async def send_content(self, call: _Call) -> Ear:
        """DATA and everything but the final dot, until the kernel has it.

        Over TLS the end of a large mail may still wait in this process: if it is cut there, that counts as a doubt.
        """
        call.step = Step.DATA
        if not self.works or self.transport is None:
            raise SMTPServerDisconnected("connection lost")
        if getattr(self.client.protocol, "_buffer", b""):  # more was said than asked for: its replies are out of step
            raise SMTPServerDisconnected("out of step")
        call.ear = ear = Ear(self.transport)
        ear.write(b"DATA\r\n")
        code, text = await ear.reply()
        if code != 354:
            raise SMTPResponseException(code, text)
        for start in range(0, len(call.mail.wire), PIECE_BYTES):
            ear.write(call.mail.wire[start : start + PIECE_BYTES])
            await ear.flushed()
            _hear_out(ear)
        return ear

    async def send_dot(self, call: _Call, ear: Ear) -> None:
        """The one line that makes the server take the mail. What is known to have gone wrong went wrong before it."""
        await asyncio.sleep(0)
        _hear_out(ear)
        call.step = Step.DOT
        ear.write(b".\r\n")
        call.handed_over = True
        if call.written is not None:
            await ear.flushed()
            await call.tell()

    async def reset(self) -> bool:
        """Forget the envelope; False: the connection is of no more use."""
        try:
            async with asyncio.timeout(CLOSE_S):
                reply = await self.client.execute_command(b"RSET")
        except (SMTPException, OSError, TimeoutError):
            return False
        return reply.code == 250

    async def leave(self) -> None:
        """QUIT, shortly."""
        with contextlib.suppress(SMTPException, OSError, TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await self.client.quit()
        self.drop()

    def drop(self) -> None:
        """Close at once: a mail whose dot is missing is not taken."""
        transport = self.transport
        self.client.close()
        if transport is not None:
            transport.abort()


def _hear_out(ear: Ear) -> None:
    """Raise what was said before the mail was told: it is no verdict on it, and whatever it says, no dot goes out."""
    if ear.unasked:
        if (found := ear.heard()) is None:
            raise Garbled
        raise SMTPResponseException(*found)


class _FromCaller(Exception):
    """What a hook of the caller raised, on its way out past our own handling."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class _Unfit(Exception):
    """The server lacks what this call needs; known before anything was handed over."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(str(outcome))
        self.outcome = outcome


def _is_tls(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, ssl.SSLError):
            return True
        error = error.__cause__ or error.__context__
    return False


def _own_name() -> str:
    """What this host calls itself, without asking DNS, which may take its time."""
    name = socket.gethostname()
    return name if HOST_NAME.fullmatch(name) else "localhost"
