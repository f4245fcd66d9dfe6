"""`notifier status`: what is owed, what is stuck, and who is working on it."""

from __future__ import annotations

import asyncio
import json as json_text
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from typing import Any

from rich.console import Console

from notifier.console import Columns, console, moment, span, state_text
from notifier.domain.errors import NotReady
from notifier.domain.restore import Restore
from notifier.settings import Settings
from notifier.store import counts, installation, invariants, migrate, restores, switches, workers
from notifier.store.database import RETRYABLE, UNAVAILABLE, Connection, open_database


@dataclass(frozen=True, slots=True)
class Status:
    """What was found. `troubles`: what an operator should look at, in words; empty when all is well."""

    open: Mapping[str, int]
    oldest_pending_s: float
    settled: Mapping[str, int]
    settled_capped_at: int
    processes: Sequence[workers.Process]
    switches: Sequence[switches.Switch]
    clock_offset_s: float
    restores: Sequence[Restore]
    troubles: Sequence[str] = field(default_factory=tuple)


def show(settings: Settings, *, json: bool, whose: str = "") -> int:
    """Print the status. Returns 0 when all is well, 1 when something is wrong or the database does not answer.

    `whose`: the run whose database it is, where the settings name none.
    """
    try:
        found = asyncio.run(_read(settings, whose))
    except NotReady as error:
        if not json:
            raise
        print(json_text.dumps({"ok": False, "troubles": [str(error)]}))  # noqa: T201 - the answer
        return 1
    if json:
        print(json_text.dumps({"ok": not found.troubles, **asdict(found)}, default=_plain))  # noqa: T201 - the answer
    else:
        _print(found, console())
    return 1 if found.troubles else 0


async def _read(settings: Settings, whose: str) -> Status:
    try:
        database = await open_database(settings)
    except NotReady as error:
        if whose:
            raise NotReady(f"the PostgreSQL of {whose} does not answer: start `notifier run`") from error
        raise
    try:
        async with database.connection() as conn:
            await migrate.require_current(conn)
            return await _status(conn, settings)
    except (*RETRYABLE, *UNAVAILABLE) as error:
        raise NotReady(f"the database went away while it was asked ({type(error).__name__}: {error})") from error
    finally:
        await database.close()


async def _status(conn: Connection, settings: Settings) -> Status:
    owed = await counts.open_states(conn)
    oldest_s = await counts.oldest_pending_s(conn)
    processes = await workers.live(conn)
    on = await switches.standing(conn)
    doubled_or_lost = await invariants.doubled_or_lost(conn)
    overdue = len((await invariants.overdue_claims(conn, invariants.patience(settings), None)).rows)
    return Status(
        open=owed,
        oldest_pending_s=round(oldest_s, 3),
        settled=await counts.settled(conn),
        settled_capped_at=counts.SETTLED_CAP,
        processes=processes,
        switches=on,
        clock_offset_s=(await installation.read(conn)).clock_offset.total_seconds(),
        restores=await restores.read(conn),
        troubles=troubles(
            owed, {process.role for process in processes}, {switch.name for switch in on}, doubled_or_lost, overdue
        ),
    )


def troubles(
    owed: Mapping[str, int], roles: set[str], on: set[str], doubled_or_lost: int, overdue: int
) -> tuple[str, ...]:
    """What is wrong, each with what to do about it."""
    found = []
    if owed["pending"] + owed["sending"] and "worker" not in roles and "pause" not in on:
        found.append(f"{owed['pending'] + owed['sending']} are owed and no worker lives: start `notifier worker`")
    if owed["scheduled"] and "scheduler" not in roles:
        found.append(f"{owed['scheduled']} are scheduled and no scheduler lives: start `notifier scheduler`")
    if owed["uncertain"]:
        found.append(f"{owed['uncertain']} uncertain: `notifier notifications list --state uncertain` says which")
    if overdue:
        found.append(f"{overdue} claims ran out and nobody took them over: look at the workers' logs")
    if doubled_or_lost:
        found.append(f"{doubled_or_lost} notifications are in two places or in none: a bug; keep the database")
    return tuple(found)


def _print(found: Status, to: Console) -> None:
    _title(to, "Where notifications stand")
    states = Columns(to, "state", "notifications")
    capped = {
        state: f"{number}+" if number >= found.settled_capped_at else f"{number}"
        for state, number in found.settled.items()
    }
    states.add([(state_text(state), str(number)) for state, number in (*found.open.items(), *capped.items())])
    if found.open["pending"]:
        to.print(f"The oldest pending has been due for {span(found.oldest_pending_s)}.")
    if found.clock_offset_s:
        to.print(f"Business time is {timedelta(seconds=found.clock_offset_s)} ahead of real time.")
    for one in found.restores:
        to.print(f"Restored at {moment(one.made_at)} from a backup of {moment(one.at)}.")
    to.print()
    _title(to, "Heard of lately")
    if not found.processes:
        to.print("Nobody is alive: no process has been heard of for 15 s.")
    processes = Columns(to, "role", "host", "pid", "last heard of")
    processes.add([(one.role, one.host, f"{one.pid}", f"{one.silent_s:.1f} s ago") for one in found.processes])
    if found.switches:
        to.print()
        _title(to, "What is held back")
        held = Columns(to, "switch", "until", "owner", "reason")
        held.add([(one.name, moment(one.expires_at), one.owner, one.reason) for one in found.switches])
    if found.troubles:
        to.print()
    for trouble in found.troubles:
        to.print(f"! {trouble}", style="bold red")


def _title(to: Console, text: str) -> None:
    to.print(text, style="bold underline")


def _plain(value: Any) -> str:
    assert isinstance(value, datetime)
    return value.isoformat()
