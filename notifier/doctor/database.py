"""The database: does it answer, is it ours, does it keep what it acknowledges, and who else works on it."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from datetime import timedelta

from notifier.doctor.finding import Finding, failed, ok, skipped, warning
from notifier.domain.errors import NotReady
from notifier.domain.journey import Journeys
from notifier.domain.message import Template
from notifier.settings import Settings
from notifier.store import counts, installation, migrate, server, switches, templates, workers
from notifier.store.database import RETRYABLE, UNAVAILABLE, Connection, open_database
from notifier.store.probe import address
from notifier.store.server import Server
from notifier.store.switches import Switch

SKEW_MAX_S = 2.0


async def check(
    settings: Settings,
    whose: str,
    journeys: Journeys | None,
    sources: Mapping[str, Template],
    live: set[str],
) -> AsyncIterator[Finding]:
    """Look at all of it; `live` is filled with the roles of processes that were heard of."""
    if not settings.database_url:
        yield failed(
            "database",
            f"NOTIFIER_DATABASE_URL is not set, and {whose} has kept none",
            "start `notifier run`, which brings one, or name a PostgreSQL (15 or newer)",
        )
        yield skipped("schema", "there is no database to look at")
        return
    where = address(settings.database_url) + (f" ({whose})" if whose else "")
    try:
        opened = await open_database(settings)
    except NotReady as error:
        if whose:
            yield failed("database", f"no PostgreSQL answers at {where}", "start `notifier run`")
        else:
            yield failed("database", str(error), "start it, or mend NOTIFIER_DATABASE_URL")
        yield skipped("schema", "the database does not answer")
        return
    try:
        async with opened.connection() as conn:
            async for finding in _look(conn, settings, where, journeys, sources, live):
                yield finding
    except (*RETRYABLE, *UNAVAILABLE) as error:
        yield failed("database", f"it went away meanwhile ({type(error).__name__})", "look at its log, and ask again")
    finally:
        await opened.close()


async def _look(
    conn: Connection,
    settings: Settings,
    where: str,
    journeys: Journeys | None,
    sources: Mapping[str, Template],
    live: set[str],
) -> AsyncIterator[Finding]:
    asked = time.time()
    found = await server.about(conn)
    here = (asked + time.time()) / 2
    for finding in (_version(found, where), durability(found), skew(found.now.timestamp() - here)):
        yield finding
    try:
        await migrate.require_current(conn)
    except NotReady as error:
        yield failed("schema", str(error), "processes wait until it fits")
        return
    yield ok("schema", f"at revision {migrate.head()}, which this build needs")
    alive = await workers.live(conn)
    yield business_time((await installation.read(conn)).clock_offset, settings.clock, anybody=bool(alive))
    for finding in _processes(alive, live):
        yield finding
    yield held_back(await switches.standing(conn))
    if sources and journeys:
        owed = await counts.owed_kinds(conn)
        known = await templates.known(conn, [template.hash for template in sources.values()])
        yield same_build(owed, journeys, {name for name, t in sources.items() if t.hash not in known}, bool(live))


def _version(found: Server, where: str) -> Finding:
    text = f"PostgreSQL {found.version} at {where}"
    if found.number < migrate.SERVER_VERSION_MIN:
        return failed("database", text, "15 is the oldest this build works with: upgrade it, or name another one")
    if found.is_standby:
        return failed("database", f"{text} is a standby, which takes no writes", "name the primary server")
    return ok("database", text)


def durability(found: Server) -> Finding:
    """Whether what was acknowledged is still there after a power cut."""
    off = [
        name
        for name, on in (
            ("fsync", found.fsync),
            ("full_page_writes", found.full_page_writes),
            ("synchronous_commit", found.synchronous_commit),
        )
        if not on
    ]
    if not off:
        return ok("durability", "fsync, full_page_writes and synchronous_commit are on")
    verb = "is" if len(off) == 1 else "are"
    return warning(
        "durability",
        f"{' and '.join(off)} {verb} off: after a crash of that machine, mails may be lost or sent twice",
        "turn it on in postgresql.conf, unless nobody misses what is in this database",
    )


def skew(ahead_s: float) -> Finding:
    """How far this machine's clock is from the database's; nothing is decided by ours, but logs carry it."""
    if abs(ahead_s) <= SKEW_MAX_S:
        return ok("clock", f"this machine and the database agree to {abs(ahead_s):.2f} s")
    words = "behind" if ahead_s > 0 else "ahead of"
    return warning(
        "clock",
        f"this machine is {abs(ahead_s):.1f} s {words} the database: no mail depends on it, but times in logs differ",
        "look at its time synchronisation (NTP)",
    )


def business_time(offset: timedelta, clock: str, *, anybody: bool = False) -> Finding:
    """Whether the clock the settings want is the one this database has. `anybody`: processes live, so they have it."""
    if not offset:
        return ok("business time", f"is real time; NOTIFIER_CLOCK={clock}")
    if clock == "virtual" or anybody:
        return warning("business time", f"is {offset} ahead of real time", "nothing, if this is for development")
    return failed(
        "business time",
        f"is {offset} ahead of real time, and NOTIFIER_CLOCK=real: no process starts on this database",
        "set NOTIFIER_CLOCK=virtual as it was when time was moved, or use another database",
    )


def _processes(found: list[workers.Process], live: set[str]) -> Iterator[Finding]:
    live.update(process.role for process in found)
    for role, without in (
        ("worker", "nothing is sent"),
        ("scheduler", "what waits for its date goes on waiting"),
        ("api", "no event is taken"),
    ):
        number = sum(process.role == role for process in found)
        if number:
            yield ok(f"{role}s", f"{number} heard of in the last 15 s")
        else:
            yield warning(f"{role}s", f"none has been heard of for 15 s: {without}", f"start `notifier {role}`")


def held_back(on: Sequence[Switch]) -> Finding:
    """Whether an operator holds something back, perhaps for longer than anybody remembers."""
    if not on:
        return ok("switches", "nothing is held back")
    names = ", ".join(f"{switch.name} (by {switch.owner} until {switch.expires_at:%Y-%m-%d %H:%M})" for switch in on)
    what = "no event is taken" if any(switch.name == "maintenance" for switch in on) else "some mails wait"
    return warning("switches", f"{what}: {names}", "if that is over: `notifier switch end NAME`")


def same_build(owed: list[str], journeys: Journeys, unknown: set[str], anybody: bool) -> Finding:
    """Whether what is owed, and what others started with, is what the settings here name."""
    strange = sorted(set(owed) - set(journeys.kinds))
    if strange:
        return warning(
            "same journeys",
            f"mails are owed of kinds that the journeys file here does not have: {', '.join(strange)}",
            "no worker takes them with these settings: name the journeys file that has them",
        )
    if unknown and anybody:
        return warning(
            "same journeys",
            f"no process has ever started with the templates here of: {', '.join(sorted(unknown))}",
            "start the others again to have them, or ask with NOTIFIER_TEMPLATES_DIR and NOTIFIER_MAIL_FROM as theirs",
        )
    return ok("same journeys", "what is owed, and the templates others have started with, fit the settings here")
