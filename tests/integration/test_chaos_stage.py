"""The rig's stage: every fault begins and ends on it, and it works again afterwards."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import time
import uuid
from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from standardwebhooks import Webhook

from notifier.failpoints import Point
from notifier.proof.chaos.faults import clocks
from notifier.proof.chaos.pods import is_stopped
from notifier.proof.chaos.proxy import Cut
from notifier.proof.chaos.schedule import CATALOG, FAMILIES, SCHEDULERS, WORKERS, Kind, Planned
from notifier.proof.chaos.stage import Stage, open_stage
from tests.support.chaos import data_of
from tests.support.stack import until

pytestmark = [pytest.mark.database, pytest.mark.timeout(300)]

PAUSE_S = 0.15  # between two events of the traffic that failpoints wait for


@dataclass
class Ear:
    """Everything the stage said of itself."""

    signals: list[dict[str, Any]] = field(default_factory=list)
    faults: list[dict[str, Any]] = field(default_factory=list)
    forgotten: int = 0

    def signal(self, **line: Any) -> None:
        self.signals.append(line)

    def fault(self, **line: Any) -> None:
        self.faults.append(line)

    def keys_forgotten(self) -> None:
        self.forgotten += 1

    def points(self, signal_: str) -> set[str]:
        """The failpoints at which a process sent itself this signal."""
        return {
            line["by"].partition(" ")[2]
            for line in self.signals
            if line["signal"] == signal_ and line.get("by", "").startswith("failpoint ")
        }


async def signup(stage: Stage, api: str, user: str) -> None:
    """Sign up somebody whose follow-up is due at once; whatever the answer is."""
    then = datetime.now(UTC) - timedelta(days=3) + timedelta(seconds=0.5)
    event = {"id": str(uuid.uuid4()), "type": "user.signed_up", "occurred_at": then.isoformat()}
    event["user"] = {"id": user, "email": f"{user}@example.com"}
    headers = {"Authorization": f"Bearer {stage.api_key}"}
    async with stage.scene.http.post(f"{api}/v1/events", json=event, headers=headers) as response:
        await response.read()


async def login(stage: Stage, api: str, user: str) -> None:
    raw, now, name = json.dumps({"type": "user.logged_in", "data": {"user_id": user}}), datetime.now(UTC), "msg_" + user
    headers = {
        "webhook-id": name,
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": Webhook(stage.webhook_secret).sign(name, now, raw),
        "Content-Type": "application/json",
    }
    async with stage.scene.http.post(f"{api}/v1/webhooks/login", data=raw, headers=headers) as response:
        await response.read()


@asynccontextmanager
async def traffic(stage: Stage) -> Any:
    """People who sign up at either api, half of whom log in, so that every step of the service is come to."""

    async def one(number: int) -> None:
        api, user = stage.api_urls[number % 2], f"passer-by-{number}"
        try:
            async with asyncio.timeout(8):
                await signup(stage, api, user)
                if number % 4 < 2:
                    await login(stage, api, user)
        except (aiohttp.ClientError, TimeoutError):
            pass  # that is what faults are for

    async def flow() -> None:
        async with asyncio.TaskGroup() as group:
            for number in itertools.count():
                group.create_task(one(number))
                await asyncio.sleep(PAUSE_S)

    flowing = asyncio.create_task(flow())
    try:
        yield
    finally:
        flowing.cancel()
        await asyncio.gather(flowing, return_exceptions=True)


async def clock_of(stage: Stage, api: str) -> datetime:
    """The wall clock of an api, from the Date of its answer."""
    async with stage.scene.http.get(f"{api}/healthz") as response:
        return parsedate_to_datetime(response.headers["Date"])


async def has_mail(stage: Stage, user: str) -> bool:
    async with stage.scene.http.get(f"{stage.mock_url}/api/messages?q={user}") as response:
        return bool((await response.json())["messages"])


def numbered(faults: list[tuple[str, Kind, float, dict[str, Any]]]) -> list[Planned]:
    return [
        Planned(n, family, kind.name, 0, for_s, {name: values[0] for name, values in kind.draws.items()} | own)
        for n, (family, kind, for_s, own) in enumerate(faults, start=1)
    ]


def faults_of_pods() -> list[Planned]:
    """All of them begin at once; those of one pod wait for each other. Each lasts until the pod has come to it."""
    turn = itertools.count()
    found = []
    for family in ("kill", "freeze", "processes"):
        for kind in CATALOG[family]:
            pods = kind.draws["pod"]
            own = {"pod": pods[next(turn) % len(pods)]} | ({"frozen_s": 1} if "frozen_s" in kind.draws else {})
            found.append((family, kind, 0.5 if kind.draws.keys() == {"pod"} and "." not in kind.name else 60, own))
    return numbered(found)


def faults_around_pods() -> list[list[Planned]]:
    """One list a lane, to be run one after the other."""
    everything = numbered(
        [
            (family, kind, 90 if family == "rolling" else 0.5, {})
            for family in FAMILIES
            if family not in ("kill", "freeze", "processes")
            for kind in CATALOG[family]
        ]
    )
    return [list(lane) for _, lane in itertools.groupby(everything, lambda planned: planned.family)]


async def test_every_fault_begins_and_ends_and_afterwards_a_signup_gets_its_mail() -> None:
    ear = Ear()
    async with open_stage(ear, families=FAMILIES, seed=1) as stage:
        assert not stage.skipped
        apart_s = (await clock_of(stage, stage.api_urls[0]) - await clock_of(stage, stage.api_urls[1])).total_seconds()
        assert 595 <= apart_s <= 605
        pods = faults_of_pods()
        async with traffic(stage):
            await stage.run_faults(pods, time.monotonic())
            lanes = faults_around_pods()

            async def one_by_one(lane: list[Planned]) -> None:
                for planned in lane:
                    await stage.run_faults([planned], time.monotonic())

            await asyncio.gather(*(one_by_one(lane) for lane in lanes))
        await stage.heal()
        await signup(stage, stage.api_urls[0], "ada")
        await until(lambda: has_mail(stage, "ada"), "ada has her mail")
        assert stage.failed == []
        assert ear.points("KILL") == set(Point)
        assert ear.points("STOP") == {kind.name for kind in CATALOG["freeze"] if kind.name in set(Point)}
        everything = {(planned.family, planned.name) for planned in [*pods, *itertools.chain(*lanes)]}
        assert everything == {(family, kind.name) for family in FAMILIES for kind in CATALOG[family]}
        for phase in ("begin", "end"):
            assert {(line["family"], line["name"]) for line in ear.faults if line["phase"] == phase} == everything
        assert ear.forgotten == 1
        armed = Counter(line["by"] for line in ear.signals if line["signal"] == "START" and line.get("by"))
        assert set(armed.values()) == {1}, "a process that is started again has nothing armed"
        assert_signals_tell_who_it_was(ear)
        folder, root = stage.folder, data_of(stage.folder)
    assert_gone(folder, root, ear)


def assert_signals_tell_who_it_was(ear: Ear) -> None:
    """Whoever died or froze at a step of a worker had said its id, by which the provider's record has it."""
    struck = [line for line in ear.signals if line.get("by", "").startswith("failpoint worker.")]
    assert struck
    assert all(f"-{line['pid']}-" in line["worker"] for line in struck if line["worker"])
    assert all(line["worker"] for line in struck if line["signal"] == "STOP")
    offspring = [line["process"] for line in ear.signals if line["role"] == "worker" and line["signal"] == "START"]
    assert offspring.count("run/worker-1") >= 2  # at first, and after the kill
    assert set(offspring) == {*WORKERS, "run/worker-1"}


def assert_gone(folder: Path, root: Path, ear: Ear) -> None:
    assert not folder.exists()
    assert not root.exists()
    assert not [line for line in ear.signals if birth_of_ours(line["pid"], folder)]
    assert not [path for path in Path("/dev/shm").glob("*faketime_*") if shared_by(path, ear)]


def shared_by(path: Path, ear: Ear) -> bool:
    return int(path.name.rpartition("_")[2]) in {line["pid"] for line in ear.signals}


def birth_of_ours(pid: int, folder: Path) -> bool:
    """Whether this process still works below the folder of a run."""
    try:
        return folder in Path(os.readlink(f"/proc/{pid}/cwd").removesuffix(" (deleted)")).parents
    except OSError:
        return False


async def test_healing_mends_whatever_was_broken_and_a_provider_without_keys_stays_one() -> None:
    async with open_stage(Ear(), families=("kill",), seed=1, has_keys=False) as stage:
        async with stage.scene.http.get(f"{stage.mock_url}/api/faults") as response:
            assert (await response.json())["duplicate_mode"] == "none"
        assert all(pod.spec.settings["MOCK_FAMILY"] == "none" for pod in stage.scene.pods.values())
        assert not any("FAKETIME" in pod.spec.around for pod in stage.scene.pods.values())
        await break_everything(stage)
        await stage.heal()
        assert not any(is_stopped(pod.life.pid) for pod in stage.scene.pods.values() if pod.life)
        await signup(stage, stage.api_urls[1], "ada")
        await until(lambda: has_mail(stage, "ada"), "ada has her mail")
        async with stage.scene.http.get(f"{stage.mock_url}/api/faults") as response:
            faults = await response.json()
        assert (faults["fail_rate"], faults["duplicate_mode"]) == (0, "none")


async def break_everything(stage: Stage) -> None:
    """At once, and without mending any of it."""
    scene = stage.scene
    await scene.turn(fail_rate=1, duplicate_mode="drop")
    for name in (*WORKERS, *SCHEDULERS):
        scene.pods[name].signal(signal.SIGSTOP)
    scene.pods["mock"].signal(signal.SIGKILL)
    for wire, how in zip(scene.wires, itertools.cycle(Cut), strict=False):
        await wire.cut(how)
    await scene.redis.retarget(1)
    await scene.postgres.set_read_only(True)
    await scene.postgres.signal("KILL")
    await scene.valkey.command("CONFIG", "SET", "maxmemory-policy", "noeviction", "maxmemory", "1")
    await scene.valkey.signal("STOP")


def test_without_the_library_the_clocks_are_left_out_and_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clocks, "PLACES", ("/nowhere/*",))
    assert clocks.find_library() is None
    assert clocks.environment("worker-2", None) == {}
