"""The database is lost and comes back from a base backup: with `notifier restored` nobody gets a mail twice."""

from __future__ import annotations

import asyncio
import json
import sys
import uuid
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from notifier import embedded
from notifier.store.migrate import migrate
from tests.support.backup import back_up, now_of
from tests.support.servers import remove_data
from tests.support.stack import Stack, open_stack, until, users

DAY_S = 86_400
LOST_S = 2 * DAY_S  # business time that passes after the backup
WINDOW_S = 5  # how long the provider knows a key, where that is to be over


@dataclass(slots=True)
class World:
    """A stack on a server that will be lost, and what senders remember of it."""

    stack: Stack
    server: embedded.Server
    backups: list[Path]  # of the same moment: each is used once
    at: str = ""
    sent: list[dict[str, Any]] = field(default_factory=list)
    people: dict[str, list[str]] = field(default_factory=dict)

    async def event(self, type_: str, person: str, *, ago: timedelta = timedelta(0), ahead_s: float = 0) -> None:
        """Send one event, and remember it as its sender would."""
        occurred_at = datetime.now(UTC) - ago + timedelta(seconds=ahead_s)
        event = {"type_": type_, "person": person, "id_": str(uuid.uuid4()), "occurred_at": occurred_at.isoformat()}
        await self.stack.event(**event)
        self.sent.append(event)

    async def sign_up(self, group: str, number: int = 3, **times: Any) -> None:
        self.people[group] = users(number, group)
        await asyncio.gather(*(self.event("user.signed_up", person, **times) for person in self.people[group]))

    async def log_in(self, group: str, **times: Any) -> None:
        await asyncio.gather(*(self.event("user.logged_in", person, **times) for person in self.people[group]))

    async def repeat(self) -> None:
        """Let the senders repeat everything since the backup, each event in its own time."""
        for event in self.sent:
            await self.stack.event(**event)

    async def states(self, group: str, kind: str) -> Counter[str]:
        """Where the notifications of a group stand, with the reason where there is one."""
        rows = await self.stack.rows("SELECT user_id, kind, state, reason FROM notifications")
        return Counter(
            f"{row['state']}: {row['reason']}" if row["reason"] else row["state"]
            for row in rows
            if row["user_id"] in self.people[group] and row["kind"] == kind
        )

    async def command(self, *arguments: str) -> tuple[int, str]:
        """Run `notifier restored`, after the 15 s for which it hears of processes that the backup remembers."""
        await self.stack.rows("UPDATE workers SET heartbeat_at = heartbeat_at - interval '15 s' RETURNING id")
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "notifier", "restored", *arguments),
            env=self.stack.environ,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said, _ = await process.communicate()
        return process.returncode or 0, said.decode()


@asynccontextmanager
async def a_world(folder: Path, redis_url: str) -> AsyncIterator[World]:
    lost, kept = folder / "lost", [folder / "kept", folder / "kept-too"]
    server = await embedded.start_postgres(lost, durable=False)
    world = None
    try:
        await migrate(server.url)
        async with open_stack(folder, server.url, redis_url) as stack:
            world = World(stack, server, list(kept))
            yield world
    finally:
        await embedded.stop(world.server if world else server)
        for data in (lost, *kept):
            remove_data(data)


async def live_until_the_loss(world: World) -> None:
    """Live a life with a backup in its middle; at the end everything stops, and only the provider's inbox is left."""
    stack = world.stack
    await stack.start_all(workers=1)
    await world.sign_up("due", ago=timedelta(days=2))  # their follow-up is due, and sent, in the lost time
    await world.sign_up("quit_due", ago=timedelta(days=2))
    await world.sign_up("waits")  # theirs is due after it
    await world.sign_up("quit_waits")
    await world.sign_up("gone")
    await stack.until_mails(15)
    await world.log_in("gone")
    await asyncio.gather(
        stack["worker-0"].stop(), stack.start("worker", "frozen", FAILPOINTS="worker.mid_send=freeze*1")
    )
    await world.sign_up("claimed", 1)
    await until(lambda: stack["frozen"].is_frozen, "the worker is frozen in its call")
    await world.sign_up("open")
    await stack.until_states(sending=1, pending=3, canceled=3, sent=15)

    world.at, world.sent = await now_of(world.server), []
    for backup in world.backups:
        await back_up(world.server, backup)

    stack["frozen"].handle.kill()
    await stack.start("worker", "worker-1")
    await stack.until_mails(19)
    await world.sign_up("late")
    await world.sign_up("behind", ago=timedelta(minutes=10))  # it occurred before the backup and is taken after it
    await world.log_in("quit_waits")
    await world.log_in("quit_due")
    await stack.until_mails(25)
    await stack.advance(LOST_S)
    await world.sign_up("moved", ahead_s=LOST_S)
    await stack.until_mails(31)
    assert set((await stack.mails()).values()) == {1}


async def lose_and_restore(world: World) -> None:
    ending = [process for process in world.stack.processes if process.name != "mock"]
    await asyncio.gather(*(one.stop() if one.is_alive else one.ended() for one in ending))
    await embedded.stop(world.server)
    world.server = await embedded.start_postgres(world.backups.pop(), durable=False)
    world.stack.environ["NOTIFIER_DATABASE_URL"] = world.server.url


async def forget_keys(world: World) -> None:
    """Let the provider forget, and the service know that it may have."""
    last = max(datetime.fromisoformat(mail["created_at"]) for mail in await world.stack.messages())
    await world.stack.faults(key_ttl_s=WINDOW_S)
    world.stack.environ["NOTIFIER_MOCK_WINDOW_S"] = str(WINDOW_S)
    await until(lambda: datetime.now(UTC) > last + timedelta(seconds=WINDOW_S), "the keys are forgotten")


async def start_again(world: World) -> None:
    """As the command says: first an api and the events, then those who send."""
    await world.stack.start("api", "api")
    await world.repeat()
    await asyncio.gather(world.stack.start("worker", "worker-2"), world.stack.start("scheduler", "scheduler"))


async def until_quiet(world: World) -> None:
    async def quiet() -> bool:
        rows = await world.stack.rows(
            "SELECT (SELECT count(*) FROM deliveries) + (SELECT count(*) FROM scheduled_sends"
            " WHERE due_at <= notifier.now()) AS number"
        )
        return bool(rows[0]["number"] == 0)

    await until(quiet, "nothing is open")


@pytest.mark.parametrize("window", ["inside", "outside"])
async def test_nobody_gets_a_mail_twice(window: str, tmp_path: Path, redis_url: str) -> None:
    async with a_world(tmp_path, redis_url) as world:
        await live_until_the_loss(world)
        if window == "outside":
            await forget_keys(world)
        await lose_and_restore(world)
        forgotten = tmp_path / "forgotten.json"
        code, said = await world.command("--at", world.at, "--advance-s", f"{LOST_S}", "--json", f"{forgotten}")
        assert code == 0, said
        document = json.loads(forgotten.read_text())
        assert (document["opened"], document["due"]) == (4, 6), said
        listed = {row["user_id"]: row["is_scheduled"] for row in document["may_have_been_canceled"]}
        waiting = [person for group in ("waits", "quit_waits", "claimed", "open") for person in world.people[group]]
        due = [person for group in ("due", "quit_due") for person in world.people[group]]
        assert listed == dict.fromkeys(waiting, True) | dict.fromkeys(due, False)
        assert all(person in said for person in due), said

        await start_again(world)
        await until_quiet(world)
        mails = await world.stack.mails()
        assert set(mails.values()) == {1}, mails
        assert sum(mails.values()) == 31
        again = "sent" if window == "inside" else "uncertain: restored"
        for group in ("open", "claimed", "late", "behind", "moved"):
            assert set(await world.states(group, "onboarding")) == {again}, group
        assert set(await world.states("due", "followup")) == {again}
        assert set(await world.states("quit_due", "followup")) <= {"uncertain: login", "uncertain: restored"}
        assert set(await world.states("quit_waits", "followup")) == {"canceled: login"}
        assert set(await world.states("waits", "onboarding")) == {"sent"}

        await world.stack.advance(4 * DAY_S)  # what was never sent goes out, once
        await until_quiet(world)
        mails = await world.stack.mails()
        assert set(mails.values()) == {1}, mails
        expected = ("waits", "claimed", "open", "late", "behind", "moved", "due")
        assert {person for person, kind in mails if kind == "followup"} == {
            person for group in expected for person in world.people[group]
        }

        if window == "outside":
            await without_the_command_people_get_mails_twice(world)


async def without_the_command_people_get_mails_twice(world: World) -> None:
    """The same loss again, and the provider has forgotten all keys of the lost time."""
    await lose_and_restore(world)
    await world.stack.start("api", "api")
    await world.stack.advance(LOST_S)
    await world.repeat()
    await asyncio.gather(world.stack.start("worker", "worker-2"), world.stack.start("scheduler", "scheduler"))
    await until_quiet(world)
    mails = await world.stack.mails()
    twice = [(group, "onboarding") for group in ("open", "late", "behind", "moved")] + [("due", "followup")]
    for group, kind in twice:
        assert [mails[person, kind] for person in world.people[group]] == [2, 2, 2], group
