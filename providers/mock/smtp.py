"""The mock's SMTP side: where it listens, and what becomes of a mail once its dot has come."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Coroutine
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from providers.mock import letter, wire
from providers.mock.desk import Desk, verdict_on_repeat
from providers.mock.faults import Dials, DuplicateMode, SmtpFault
from providers.mock.letter import Letter
from providers.mock.records import AttemptRecord, MessageRecord, timestamp
from providers.mock.smtp_session import Session, Transaction, marked
from providers.mock.tables import KeyRecord

SESSIONS_MAX = 1_000

T = TypeVar("T")


@contextlib.asynccontextmanager
async def listening(host: str, port: int, desk: Desk, dials: Dials) -> AsyncIterator[tuple[str, int]]:
    """Take mails until the end; gives the address it listens on. Raises OSError when that is not to be had."""
    post = Post(desk, dials)
    server = await asyncio.get_running_loop().create_server(lambda: Session(post, dials), host, port)
    try:
        yield server.sockets[0].getsockname()[:2]
    finally:
        server.close()
        await post.stop()


class Post:
    """What the sessions have in common, and the end of their transactions."""

    def __init__(self, desk: Desk, dials: Dials) -> None:
        self._desk = desk
        self._dials = dials
        self._sessions: set[Session] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._stopping = asyncio.Event()

    @property
    def is_full(self) -> bool:
        """Whether the newest session is one too many."""
        return len(self._sessions) > SESSIONS_MAX

    def enter(self, session: Session, task: asyncio.Task[None]) -> None:
        """A client has come, whom `task` serves."""
        self._sessions.add(session)
        self._keep(task)

    def leave(self, session: Session) -> None:
        """A client has gone."""
        self._sessions.discard(session)

    def note(self, attempt: AttemptRecord) -> asyncio.Task[None]:
        """Write down how a transaction ended that brought nothing; goes on when the client leaves."""
        return self._start(self._desk.note(attempt))

    def take(self, session: Session, mail: Transaction) -> asyncio.Task[str | SmtpFault]:
        """Work on a mail that has come whole: from here on the client may leave, and nothing changes.

        What comes of it is the answer, or what happens instead of one.
        """
        to = tuple(map(wire.storable, mail.rcpt_tos))
        attempt = replace(mail.conclude(), to=to, verdict="rejected", answered=True)
        source, sender = mail.original_content or b"", wire.storable(mail.mail_from or "")
        return self._start(self._call(session, source, sender, attempt))

    async def stop(self) -> None:
        """Close every session; a mail that is just being taken is taken."""
        self._stopping.set()
        for session in list(self._sessions):
            session.abort()
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(work)
        self._keep(task)
        return task

    def _keep(self, task: asyncio.Task[Any]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _call(self, session: Session, source: bytes, sender: str, attempt: AttemptRecord) -> str | SmtpFault:
        with self._desk.calling():
            return await self._take(session, source, sender, attempt)

    async def _take(self, session: Session, source: bytes, sender: str, attempt: AttemptRecord) -> str | SmtpFault:
        read = await asyncio.to_thread(letter.read, source, attempt.to)
        header, mode = read.header(letter.KEY_HEADER), self._dials.faults.duplicate_mode
        attempt = replace(attempt, key=header or attempt.key)
        call = _Call(read, source, sender, None if mode == "none" else header, mode, attempt)
        if call.key is not None and (refusal := wire.check_key(call.key)):
            return await self._answer(attempt, f"550 5.5.4 Resend-{refusal.message}")
        if self._desk.is_busy(call.key):
            busy = "451 4.5.0 The first mail with this key is still being taken"
            return await self._answer(replace(attempt, verdict="in_flight"), busy)
        with self._desk.holding(call.key):
            if not await self._pause(session):
                await self._desk.note(marked(attempt, SmtpFault("cut")))
                return SmtpFault("cut")
            if fault := self._dials.smtp_fault("dot"):
                await self._desk.note(marked(attempt, fault))
                if fault.does == "silence":
                    await session.say_nothing()  # here, so that the key is in flight until the client leaves
                return fault
            return await self._accept(call)

    async def _accept(self, call: _Call) -> str | SmtpFault:
        ttl_s = self._dials.faults.key_ttl_s
        if known := await self._desk.known(call.key, ttl_s):
            return await self._repeat(call, known)
        message, fault = call.message(), self._dials.smtp_fault("after_dot")
        attempt = replace(call.attempt, status=250)
        if fault:
            attempt = marked(attempt, fault)
        attempt = replace(attempt, verdict="accepted", message_ids=(message.id,))
        if known := await self._desk.take(call.key, call.read.fingerprint, ttl_s, [message], attempt):
            return await self._repeat(call, known)
        return fault or f"250 2.0.0 Ok: queued as {message.id}"

    async def _repeat(self, call: _Call, known: KeyRecord) -> str:
        """Answer the second mail under a remembered key: it is not delivered, and refused only if it is another."""
        verdict = verdict_on_repeat(known, call.read.fingerprint, call.mode)
        message_ids = (str(uuid.uuid4()),) if verdict == "dropped" else known.message_ids
        attempt = replace(call.attempt, verdict=verdict, message_ids=message_ids)
        if verdict == "body_mismatch":
            return await self._answer(attempt, "554 5.6.0 This key was used before, with another mail")
        return await self._answer(attempt, f"250 2.0.0 Ok: queued as {message_ids[0]}")

    async def _answer(self, attempt: AttemptRecord, reply: str) -> str:
        await self._desk.note(replace(attempt, status=int(reply[:3])))
        return reply

    async def _pause(self, session: Session) -> bool:
        """Wait as latency_ms says; whether the mock is still running then."""
        seconds = self._dials.smtp_latency_s()
        session.be_patient(seconds)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)
        return not self._stopping.is_set()


@dataclass(frozen=True, slots=True)
class _Call:
    """A mail that may be accepted. `key` is None where none counts; the attempt may have one all the same."""

    read: Letter
    source: bytes
    sender: str
    key: str | None
    mode: DuplicateMode
    attempt: AttemptRecord

    def message(self) -> MessageRecord:
        return MessageRecord(
            id=str(uuid.uuid4()),
            key=self.attempt.key,
            sender=self.read.sender or self.sender,
            to=self.attempt.to,
            subject=self.read.subject,
            html=self.read.html,
            text=self.read.text,
            headers=self.read.headers,
            body={},
            caller=self.attempt.caller,
            created_at=timestamp(),
            transport="smtp",
            source=self.source,
        )
