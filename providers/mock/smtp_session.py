"""One client's SMTP session, from greeting to QUIT, with the faults on the way and an extension of our own.

The library reads the commands and answers most of them; here is what it leaves open. XNOTIFIER, announced by EHLO, says
before MAIL who sends the next mail, as the X-Notifier headers do over HTTP: `XNOTIFIER worker=w-1 user=u%201`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from aiosmtpd import smtp

from providers.mock.faults import Dials, SmtpFault
from providers.mock.records import AttemptRecord, Caller, timestamp
from providers.mock.wire import storable, unquoted

if TYPE_CHECKING:
    from providers.mock.smtp import Post

HOSTNAME = "mock.invalid"
MESSAGE_BYTES_MAX = 8 * 1024 * 1024
LINE_BYTES_MAX = 1_001  # RFC 5321: 1000 with the line end, and a dot that is doubled
COMMAND_BYTES_MAX = 4_096  # XNOTIFIER may name a user in 255 characters of 12 bytes each
RECIPIENTS_MAX = 100
IDLE_S = 300.0
SILENCE_S = 600.0
INTRODUCTION = re.compile(r"(key|worker|generation|user|kind)=((?:[!-$&-~]|%[0-9A-Fa-f]{2})+)")
ENHANCED = re.compile(r"\d{3} \d\.\d{1,3}\.\d{1,3}( |$)")
# RFC 3463, for answers of the library that come without
CODES = {500: "5.5.2", 501: "5.5.4", 502: "5.5.1", 503: "5.5.1", 504: "5.5.4", 552: "5.3.4", 553: "5.1.3", 555: "5.5.4"}
WITHOUT_CODE = {220, 334, 354}
VERDICTS = {"reply": "failed", "cut": "reset", "silence": "hung"}

log = logging.getLogger(__name__)
logging.getLogger("mail.log").disabled = True  # the library's: it writes addresses down


class Transaction(smtp.Envelope):
    """What is said from MAIL to the dot, and before MAIL by XNOTIFIER. `attempt` is there while it goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.key: str | None = None
        self.caller = Caller()
        self.asked: list[str] = []  # every recipient asked for, taken or not
        self.attempt: AttemptRecord | None = None

    def begin(self) -> None:
        """MAIL was said; until something better is known the transaction was cut off."""
        self.attempt = AttemptRecord(self.key, self.caller, (), timestamp(), "reset", None, answered=False)

    def conclude(self) -> AttemptRecord:
        """End it: the record as it stands now."""
        assert self.attempt is not None
        attempt, self.attempt = self.attempt, None
        return replace(attempt, to=tuple(map(storable, self.asked)))


def marked(attempt: AttemptRecord, fault: SmtpFault) -> AttemptRecord:
    """The record of a transaction that met a fault."""
    answered = fault.does == "reply"
    status = int(fault.reply[:3]) if answered else None
    return replace(attempt, verdict=VERDICTS[fault.does], status=status, answered=answered)


class Session(smtp.SMTP):
    """The library's protocol, with our limits."""

    command_size_limit = COMMAND_BYTES_MAX
    line_length_limit = COMMAND_BYTES_MAX + 2  # for the reader, which reads commands and mails alike

    def __init__(self, post: Post, dials: Dials) -> None:
        # of its own: the library's is shared by all sessions, and each new one empties it
        self.command_size_limits = defaultdict(lambda: COMMAND_BYTES_MAX)
        super().__init__(
            _Hooks(),
            data_size_limit=MESSAGE_BYTES_MAX,
            enable_SMTPUTF8=True,
            hostname=HOSTNAME,
            ident="notifier mock",
            timeout=IDLE_S,
            auth_require_tls=False,
            authenticator=_anybody,
            loop=asyncio.get_running_loop(),
        )
        self.line_length_limit = LINE_BYTES_MAX
        self.post = post
        self.dials = dials
        self.mail = Transaction()  # the one under way, or the next
        self._last_code = 0

    async def hit(self, fault: SmtpFault) -> str:
        """Mark the transaction, and end it where the fault does."""
        assert self.mail.attempt is not None
        self.mail.attempt = marked(self.mail.attempt, fault)
        if fault.does != "reply":
            await self.note(self.mail.conclude())
        return await self.suffer(fault)

    async def suffer(self, fault: SmtpFault) -> str:
        """Give what a fault answers; one that does not answer ends with the session."""
        if fault.does == "reply":
            return fault.reply
        if fault.does == "cut" and self.transport is not None:
            self.transport.close()  # after what was written before
        await self.say_nothing()
        raise ConnectionAbortedError

    async def say_nothing(self) -> None:
        """Until the client leaves or SILENCE_S are over. Reads on, for else it would not be seen leaving."""
        self.be_patient(SILENCE_S - IDLE_S)
        with contextlib.suppress(ConnectionError):
            while await self._reader.read(65_536):
                pass

    def be_patient(self, seconds: float) -> None:
        """Let it be idle for so much longer, once."""
        if self.transport is not None:
            self._reset_timeout(IDLE_S + seconds)

    def abort(self) -> None:
        """End it from our side."""
        if self.transport is not None:
            cast(asyncio.WriteTransport, self.transport).abort()

    async def note(self, attempt: AttemptRecord) -> None:
        """Write down a transaction that brought nothing."""
        await asyncio.shield(self.post.note(attempt))

    # The connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        super().connection_made(transport)
        assert self._handler_coroutine is not None
        self.post.enter(self, self._handler_coroutine)

    def connection_lost(self, error: Exception | None) -> None:
        """End, perhaps in the middle of a transaction."""
        super().connection_lost(error)
        self.post.leave(self)
        if self.mail.attempt:
            self.post.note(self.mail.conclude())

    async def _handle_client(self) -> None:
        try:
            if self.post.is_full:
                await self.push("421 4.3.2 Too many sessions, try later")
            elif fault := self.dials.smtp_fault("connect"):
                await self.push(await self.suffer(fault))
            else:
                await super()._handle_client()
        except ConnectionError:
            pass  # the client left in the middle of an answer, or we did
        finally:
            self._writer.close()

    async def push(self, status: str | bytes) -> None:
        """Answer. This is where the body begins, too: right behind 354."""
        reply = status if isinstance(status, str) else status.decode()
        self._last_code = int(reply[:3])
        if self._last_code == 354 and (fault := self.dials.smtp_fault("body")):
            await self._begin_and_end(reply, fault)
        await super().push(reply if reply == self.dials.faults.smtp_reply else _with_code(reply))
        if self._last_code == 421 and self.transport is not None:
            self.transport.close()

    async def _begin_and_end(self, reply: str, fault: SmtpFault) -> None:
        """Ask for the mail and read none of it."""
        self._writer.write(f"{reply}\r\n".encode())
        if fault.does == "cut":
            self._writer.write_eof()  # with nothing in between: a quick client must not get as far as the dot
        await self.note(marked(self.mail.conclude(), fault))
        await self.suffer(fault)

    def _getaddr(self, arg: str) -> tuple[str | None, str | None]:
        try:
            return super()._getaddr(arg)
        except Exception:  # noqa: BLE001 - the email package's many ways to meet half an address
            return None, None

    def _create_envelope(self) -> Transaction:
        self.mail = Transaction()
        return self.mail

    # Commands

    async def smtp_EHLO(self, hostname: str) -> None:
        """Say what we can do."""
        if fault := self.dials.smtp_fault("ehlo"):
            await self.push(await self.suffer(fault))
        elif await self._greeted(hostname, extended=True):
            can = ["8BITMIME", "SMTPUTF8", "ENHANCEDSTATUSCODES", "AUTH LOGIN PLAIN", "XNOTIFIER", "HELP"]
            lines = [HOSTNAME, f"SIZE {MESSAGE_BYTES_MAX}", *can]
            await super().push("\r\n".join([*(f"250-{line}" for line in lines[:-1]), f"250 {lines[-1]}"]))

    async def smtp_HELO(self, hostname: str) -> None:
        """Greet a client of old."""
        if await self._greeted(hostname, extended=False):
            await super().push(f"250 {HOSTNAME}")

    async def smtp_XNOTIFIER(self, arg: str | None) -> None:
        """Hear who sends the next mail."""
        assert self.session is not None
        pairs = [found.groups() for word in (arg or "").split(" ") if (found := INTRODUCTION.fullmatch(word))]
        said = {name: unquoted(value) for name, value in pairs}
        generation = said.get("generation", "0")
        if not self.session.extended_smtp or self.mail.mail_from:
            await self.push("503 5.5.1 XNOTIFIER comes after EHLO and before MAIL")
        elif len(said) != len((arg or "").split(" ")) or not re.fullmatch(r"[0-9]{1,18}", generation):
            await self.push(
                "501 5.5.4 XNOTIFIER [key=] [worker=] [generation=] [user=] [kind=], values percent-encoded"
            )
        else:
            self.mail.key = said.get("key")
            number = int(generation) if "generation" in said else None
            self.mail.caller = Caller(said.get("worker"), number, said.get("user"), said.get("kind"))
            await self.push("250 2.0.0 Ok")

    async def smtp_AUTH(self, arg: str) -> None:
        """Let anybody in."""
        try:
            await super().smtp_AUTH(arg)
        except ValueError:  # the reader, at a line beyond its limit
            await self.push("500 5.5.6 Line too long")

    async def smtp_DATA(self, arg: str) -> None:
        """Read the mail; what comes of it is _Hooks.handle_DATA's."""
        mail = self.mail
        if mail.attempt and (fault := self.dials.smtp_fault("data")):
            await self.push(await self.hit(fault))
            return
        await super().smtp_DATA(arg)
        if mail.attempt and mail is not self.mail:  # too long, and refused by the library
            refused = replace(mail.conclude(), verdict="rejected", status=self._last_code, answered=True)
            await self.note(refused)

    async def smtp_RSET(self, arg: str) -> None:
        """Forget the transaction."""
        if not arg:
            await self._abandon()
        await super().smtp_RSET(arg)

    async def smtp_QUIT(self, arg: str) -> None:
        """Say good-bye."""
        if not arg:
            await self._abandon()
        await super().smtp_QUIT(arg)

    async def smtp_VRFY(self, arg: str) -> None:
        """Verify nothing."""
        await self.push("252 2.5.0 Send a mail and see")

    async def _greeted(self, hostname: str, *, extended: bool) -> bool:
        assert self.session is not None
        if not hostname:
            await self.push("501 5.5.4 Say who you are")
            return False
        await self._abandon()
        self.envelope = self._create_envelope()
        self.session.extended_smtp = extended
        self.session.host_name = hostname
        return True

    async def _abandon(self) -> None:
        """The client gives a transaction up, in good order."""
        if self.mail.attempt:
            attempt = self.mail.conclude()
            if attempt.status is None:
                attempt = replace(attempt, status=self._last_code, answered=True)
            await self.note(attempt)


class _Hooks:
    """What the library asks once a command has proved well formed and in its place."""

    async def handle_MAIL(
        self, session: Session, _client: smtp.Session, mail: Transaction, address: str, options: Sequence[str]
    ) -> str:
        mail.begin()
        if fault := session.dials.smtp_fault("mail"):
            await session.note(marked(mail.conclude(), fault))
            return await session.suffer(fault)
        mail.mail_from = address
        mail.mail_options.extend(options)
        return "250 2.1.0 Ok"

    async def handle_RCPT(
        self, session: Session, _client: smtp.Session, mail: Transaction, address: str, options: Sequence[str]
    ) -> str:
        if len(mail.rcpt_tos) == RECIPIENTS_MAX:
            return f"452 4.5.3 At most {RECIPIENTS_MAX} recipients"
        mail.asked.append(address)
        if fault := session.dials.smtp_fault("rcpt"):
            return await session.hit(fault)
        if session.dials.faults.rejects([address]):
            assert mail.attempt is not None
            mail.attempt = replace(mail.attempt, verdict="rejected", status=550, answered=True)
            return "550 5.1.1 This recipient is turned away"
        mail.rcpt_tos.append(address)
        return "250 2.1.5 Ok"

    async def handle_DATA(self, session: Session, _client: smtp.Session, mail: Transaction) -> str:
        ending = await asyncio.shield(session.post.take(session, mail))
        return ending if isinstance(ending, str) else await session.suffer(ending)

    async def handle_exception(self, error: Exception) -> str:
        log.error("an SMTP session met a defect", exc_info=error)
        return "451 4.3.0 Something broke here, and nothing was taken"


def _anybody(_server: object, _session: object, _envelope: object, _how: str, _login: object) -> smtp.AuthResult:
    return smtp.AuthResult(success=True)


def _with_code(reply: str) -> str:
    code = int(reply[:3])
    if code in WITHOUT_CODE or ENHANCED.match(reply):
        return reply
    return f"{code} {CODES.get(code, f'{code // 100}.0.0')} {reply[4:]}"
