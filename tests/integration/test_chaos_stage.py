"""The rig's stage: every fault begins and ends on it, and it works again afterwards."""

from __future__ import annotations

import asyncio
import itertools
import signal
import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

import pytest

from notifier.proof.chaos.faults import clocks
from notifier.proof.chaos.pods import is_stopped
from notifier.proof.chaos.proxy import Cut
from notifier.proof.chaos.schedule import SCHEDULERS, WORKERS
from notifier.proof.chaos.stage import Stage, open_stage
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


async def signup(stage: Stage, api: str, user: str) -> None:
    """Sign up somebody whose follow-up is due at once; whatever the answer is."""
    then = datetime.now(UTC) - timedelta(days=3) + timedelta(seconds=0.5)
    event: dict[str, Any] = {"id": str(uuid.uuid4()), "type": "user.signed_up", "occurred_at": then.isoformat()}
    event["user"] = {"id": user, "email": f"{user}@example.com"}
    headers = {"Authorization": f"Bearer {stage.api_key}"}
    async with stage.scene.http.post(f"{api}/v1/events", json=event, headers=headers) as response:
        await response.read()


async def clock_of(stage: Stage, api: str) -> datetime:
    """The wall clock of an api, from the Date of its answer."""
    async with stage.scene.http.get(f"{api}/healthz") as response:
        return parsedate_to_datetime(response.headers["Date"])


async def has_mail(stage: Stage, user: str) -> bool:
    async with stage.scene.http.get(f"{stage.mock_url}/api/messages?q={user}") as response:
        return bool((await response.json())["messages"])


async def test_healing_mends_whatever_was_broken_and_a_provider_without_keys_stays_one() -> None:
    async with open_stage(Ear(), families=("kill", "clocks"), seed=1, has_keys=False) as stage:
        assert not stage.skipped
        apart_s = (await clock_of(stage, stage.api_urls[0]) - await clock_of(stage, stage.api_urls[1])).total_seconds()
        assert 595 <= apart_s <= 605
        async with stage.scene.http.get(f"{stage.mock_url}/api/faults") as response:
            assert (await response.json())["duplicate_mode"] == "none"
        assert all(pod.spec.settings["MOCK_FAMILY"] == "none" for pod in stage.scene.pods.values())
        await replace_one_that_is_just_starting(stage)
        await thaw_what_is_yet_to_freeze(stage)
        await break_everything(stage)
        await stage.heal()
        assert not any(is_stopped(pod.life.pid) for pod in stage.scene.pods.values() if pod.life)
        await signup(stage, stage.api_urls[1], "ada")
        await until(lambda: has_mail(stage, "ada"), "ada has her mail")
        async with stage.scene.http.get(f"{stage.mock_url}/api/faults") as response:
            faults = await response.json()
        assert (faults["fail_rate"], faults["duplicate_mode"]) == (0, "none")


async def replace_one_that_is_just_starting(stage: Stage) -> None:
    """It is the one that is given back that is armed, and no later one."""
    pod = stage.scene.pods["worker-3"]
    for pause_s in (0.0, 0.2):  # around the moment at which it is started again
        pod.signal(signal.SIGKILL)
        assert pod.life
        await pod.life.ended.wait()
        await asyncio.sleep(pause_s)
        life = await pod.replace(failpoints="worker.mid_send=kill*1")
        assert life.armed == "worker.mid_send=kill*1"
        assert life is pod.life
        again = await pod.replace()
        assert not again.armed


async def thaw_what_is_yet_to_freeze(stage: Stage) -> None:
    """A signal takes its time to be obeyed: whoever looks for what is frozen may look too soon."""
    pod, valkey = stage.scene.pods["worker-1"], stage.scene.valkey
    assert pod.life
    for _ in range(20):
        pod.signal(signal.SIGSTOP)
        await pod.heal()
        await valkey.signal("STOP")
        await valkey.thaw()
        await asyncio.sleep(0.01)
        assert not is_stopped(pod.life.pid)
        await valkey.command("PING")


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
