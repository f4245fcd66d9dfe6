"""The bench's drivers and meters: what goes wrong is told, what has ended still counts, and nobody stays behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import psutil
import pytest

from notifier.domain.errors import NotReady
from notifier.proof.bench import peers_env
from notifier.proof.bench.meters import cpu_seconds
from notifier.proof.bench.processes import Broken, driver
from notifier.proof.bench.works.latency import arrived

BURN = "import time\nwhile time.process_time() < 0.3: pass"


async def test_a_driver_says_what_went_wrong_and_goes_on(tmp_path: Path) -> None:
    async with driver(tmp_path, "own.client") as client:
        with pytest.raises(Broken, match=r"client, asked to 'events': .*(Connection|refused|OSError)"):
            await client.ask("events", url="http://127.0.0.1:1", key="k", number=1, callers=1)
        with pytest.raises(Broken, match="AttributeError"):
            await client.ask("dance")
        assert (await client.ask("hello"))["version"] == "own"
    assert not psutil.pid_exists(client.pid)


async def test_a_driver_that_dies_is_no_silence(tmp_path: Path) -> None:
    async with driver(tmp_path, "own.client") as client:
        await client.ask("hello")
        os.kill(client.pid, signal.SIGKILL)
        with pytest.raises(Broken, match=r"client (ended|did not answer)"):
            await client.ask("hello")


async def test_a_mail_that_came_twice_is_no_result(tmp_path: Path) -> None:
    async with driver(tmp_path, "own.receiver") as receiver, aiohttp.ClientSession() as http:
        bench: Any = SimpleNamespace(stage=SimpleNamespace(receiver=receiver))
        url = (await receiver.ask("hello"))["url"]
        for key in ("k1", "k2"):
            async with http.post(f"{url}/emails", data=b"{}", headers={"Idempotency-Key": key}) as response:
                assert response.status == 200
        assert (await arrived(bench, 2))["calls"] == 2
        async with http.post(f"{url}/emails", data=b"{}", headers={"Idempotency-Key": "k2"}):
            pass
        with pytest.raises(Broken, match="3 mails under 2 keys instead of 3"):
            await arrived(bench, 3)
        with pytest.raises(Broken, match=r"3 of 4 mails in 0\.1 s"):
            await arrived(bench, 4, within_s=0.1)


def test_processor_time_of_children_counts_also_when_they_have_ended() -> None:
    own = [os.getpid()]
    before = cpu_seconds(own)
    subprocess.run([sys.executable, "-c", BURN], check=True)
    assert cpu_seconds(own) - before >= 0.25
    assert cpu_seconds([2**22 + 1]) == 0.0, "nobody has this id"


def test_without_a_lock_file_no_peers_and_a_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers_env, "LOCK", tmp_path / "none.lock")
    with pytest.raises(NotReady, match="--sides ours,floor"):
        peers_env.make(tmp_path, print)


def test_there_is_a_python_for_the_peers() -> None:
    python, version = peers_env.find_python()
    asked = "import sys; print(*sys.version_info[:2])"
    said = subprocess.run([python, "-c", asked], capture_output=True, text=True, check=True).stdout.split()
    assert tuple(map(int, said)) == version >= (3, 11)
