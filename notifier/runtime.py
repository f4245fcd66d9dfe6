"""What the processes share: opened in order, closed in reverse."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal
from uuid import UUID

import providers
from notifier import observe
from notifier.coordination.client import RedisClient
from notifier.coordination.lease import Leases
from notifier.coordination.wakeup import Wakeup
from notifier.domain.errors import NotReady, SettingsError
from notifier.domain.journey import Journeys
from notifier.domain.message import Template
from notifier.ids import new_id
from notifier.journeys import load_journeys, load_templates
from notifier.settings import Settings
from notifier.store import installation, migrate, templates, workers
from notifier.store.database import RETRYABLE, UNAVAILABLE, Database, open_database
from providers.base import Provider
from providers.mail_server import MailServer

HEARTBEAT_S = 5.0

Role = Literal["api", "worker", "scheduler"]


@dataclass(frozen=True, slots=True)
class Runtime:
    """The resources of one process start. `process_id` is unique per start: it is what a claim names."""

    settings: Settings
    role: Role
    process_id: str
    database: Database
    redis: RedisClient
    leases: Leases
    wakeup: Wakeup
    journeys: Journeys
    templates: Mapping[str, Template]
    namespace: UUID


@asynccontextmanager
async def open_runtime(settings: Settings, role: Role) -> AsyncIterator[Runtime]:
    """Open everything a process needs; raises SettingsError or NotReady with advice."""
    journeys = load_journeys(settings)
    sources = load_templates(settings, journeys)
    database = await open_database(settings)
    try:
        redis = RedisClient(settings.redis_url or None)
    except ValueError:  # what the library says may quote the password
        await database.close()
        raise SettingsError("NOTIFIER_REDIS_URL cannot be read: write redis://[user:password@]host[:port]") from None
    try:
        runtime = Runtime(
            settings=settings,
            role=role,
            process_id=f"{socket.gethostname()}-{os.getpid()}-{new_id().hex[-12:]}",
            database=database,
            redis=redis,
            leases=Leases(redis),
            wakeup=Wakeup(redis, settings.redis_url or None),
            journeys=journeys,
            templates=sources,
            namespace=await _prepare(settings, database, sources),
        )
        async with background(_beat(runtime)):
            yield runtime
        await runtime.wakeup.flush()
        await _leave(runtime)
    finally:
        await redis.close()
        await database.close()


def way_out(settings: Settings) -> Provider:
    """Make the provider the settings name; it opens nothing before its first call. Raises SettingsError."""
    if settings.provider == "smtp":
        return providers.smtp_provider(mail_server(settings), timeout_s=settings.provider_timeout_s)
    return providers.mock_provider(
        base_url=settings.mock_address,
        api_key=settings.mock_api_key.get_secret_value(),
        family=settings.mock_family,
        window=timedelta(seconds=settings.mock_window_s),
        timeout_s=settings.provider_timeout_s,
        concurrency=settings.worker_concurrency,
    )


def mail_server(settings: Settings) -> MailServer:
    """Give the server PROVIDER=smtp sends through; raises SettingsError."""
    if settings.smtp_host is None:
        raise SettingsError("NOTIFIER_SMTP_HOST is not set: NOTIFIER_PROVIDER=smtp needs a mail server to talk to")
    if settings.smtp_ca_file is not None and not settings.smtp_ca_file.is_file():
        raise SettingsError(f"NOTIFIER_SMTP_CA_FILE: there is no file {settings.smtp_ca_file}")
    protection = settings.smtp_protection
    return MailServer(
        host=settings.smtp_host.strip("[]"),
        port=settings.smtp_port or {"starttls": 587, "tls": 465, "none": 25}[protection],
        protection=protection,
        ca_file=settings.smtp_ca_file,
        username=settings.smtp_username,
        password=settings.smtp_password.get_secret_value() if settings.smtp_password else None,
        hello_name=settings.smtp_hello_name,
        key_header=settings.smtp_key_header,
        key_window=timedelta(seconds=settings.smtp_key_window_s),
    )


async def _prepare(settings: Settings, database: Database, sources: Mapping[str, Template]) -> UUID:
    try:
        async with database.connection() as conn:
            await migrate.require_current(conn)
            here = await installation.read(conn)
            if settings.clock == "real" and here.clock_offset:
                raise SettingsError(
                    f"NOTIFIER_CLOCK=real, but this database's business time is {here.clock_offset} ahead: it was "
                    "moved under NOTIFIER_CLOCK=virtual. Set that again, or use another database: for `notifier run` "
                    "another NOTIFIER_DATA_DIR, or remove the present one"
                )
            await templates.keep(conn, list(sources.values()))
    except (*RETRYABLE, *UNAVAILABLE) as error:
        raise NotReady(
            f"PostgreSQL at NOTIFIER_DATABASE_URL is there, but cannot be used now ({type(error).__name__}: {error}): "
            "start again when it takes writes"
        ) from error
    return here.namespace


async def _beat(runtime: Runtime) -> None:
    while True:
        try:
            async with runtime.database.connection() as conn:
                await workers.beat(conn, runtime.process_id, runtime.role, socket.gethostname(), os.getpid())
                await workers.sweep(conn)
        except (*RETRYABLE, *UNAVAILABLE) as error:
            observe.log().warning("heartbeat_failed", error=type(error).__name__)
        await asyncio.sleep(HEARTBEAT_S)


async def _leave(runtime: Runtime) -> None:
    try:
        async with runtime.database.connection() as conn:
            await workers.leave(conn, runtime.process_id)
    except (*RETRYABLE, *UNAVAILABLE) as error:
        observe.log().warning("leaving_failed", error=type(error).__name__)


@asynccontextmanager
async def background(*loops: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run endless loops beside the block. One that ends with an error ends the block with that error."""
    owner = asyncio.current_task()
    assert owner is not None
    tasks = [asyncio.create_task(loop) for loop in loops]
    failed: list[BaseException] = []

    def notice(task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            failed.append(error)
            owner.cancel()

    for task in tasks:
        task.add_done_callback(notice)
    try:
        yield
    except asyncio.CancelledError:
        if failed:
            owner.uncancel()
            raise failed[0] from None
        raise
    finally:
        left = set(tasks)
        while left:  # a library may swallow one cancel; the end of a process must not depend on it
            for task in left:
                task.cancel()
            _, left = await asyncio.wait(left, timeout=0.5)
