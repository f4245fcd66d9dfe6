"""An installation of the rig's own, opened, broken by plan, healed, and gone without a trace."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import secrets
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import get_args
from urllib.parse import urlsplit, urlunsplit

import aiohttp

from notifier.proof.chaos import faults, leftovers, offspring
from notifier.proof.chaos.faults import clocks
from notifier.proof.chaos.note import Note, Role
from notifier.proof.chaos.pods import Pod, PodSpec
from notifier.proof.chaos.proxy import Proxy, fixed_port
from notifier.proof.chaos.scene import Scene
from notifier.proof.chaos.schedule import APIS, FAMILIES, SCHEDULERS, WORKERS, Planned, turn_of
from notifier.proof.chaos.servers import Postgres, Valkey
from notifier.runtime import background
from notifier.settings import Scope
from notifier.store.migrate import migrate
from notifier.supervisor.children import clean_surroundings

__all__ = ["TIMINGS", "WINDOW_S", "Note", "Stage", "open_stage"]

WINDOW_S = 86_400.0

TIMINGS = {
    "CLAIM_TTL_S": "3",
    "PROVIDER_TIMEOUT_S": "1",
    "BACKOFF_MAX_S": "20",
    "POLL_S": "0.5",
    "STOP_GRACE_S": "3",
}


@dataclass(slots=True)
class Stage:
    """A running installation. The addresses are fixed and lead past every wire that can be cut.

    `skipped`: families this machine cannot do, and why. `failed`: what the rig itself could not do, in words.
    """

    folder: Path
    scene: Scene
    database_url: str
    api_urls: Sequence[str]
    mock_url: str
    api_key: str
    webhook_secret: str
    skipped: dict[str, str] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    _turns: dict[str, asyncio.Lock] = field(default_factory=lambda: defaultdict(asyncio.Lock))

    async def run_faults(self, planned: Sequence[Planned], started: float) -> None:
        """Begin each fault at its time after `started` (monotonic); returns when the last has healed."""
        async with asyncio.TaskGroup() as group:
            for fault in planned:
                if fault.family not in self.skipped:
                    group.create_task(self._run(fault, started))

    async def _run(self, planned: Planned, started: float) -> None:
        """One fault. What it could not do is written down and ends nothing else: others may have been in its way."""
        await asyncio.sleep(max(0.0, started + planned.at_s - time.monotonic()))
        lane = turn_of(planned.family)
        async with self._turns[lane] if lane else contextlib.nullcontext():
            await self._break(planned)

    async def _break(self, planned: Planned) -> None:
        detail = dict(planned.parameters)
        note = partial(
            self.scene.note.fault,
            n=planned.n,
            family=planned.family,
            name=planned.name,
            hides_answers=faults.hides_answers(planned),
        )
        note(phase="begin", detail=dict(detail))
        try:
            reached = await faults.find(planned)(self.scene, planned)
            if reached is not None:
                detail["reached"] = reached
        except Exception as error:  # noqa: BLE001 - the top of one fault
            detail["failed"] = f"{type(error).__name__}: {error}"
            self.failed.append(f"fault {planned.n} ({planned.family} {planned.name}): {detail['failed']}")
        finally:
            note(phase="end", detail=detail)

    async def heal(self) -> None:
        """Mend everything, whatever state it is in: up, unfrozen, unarmed, nothing cut, no knob turned."""
        scene = self.scene
        for wire in scene.wires:
            await wire.heal()
        await scene.valkey.thaw()
        await asyncio.gather(scene.postgres.start(), scene.valkey.start())
        await scene.redis.retarget(scene.valkey.port)
        await scene.valkey.restore_memory()
        await scene.postgres.answers()
        await scene.postgres.set_read_only(False)
        await asyncio.gather(*(pod.heal() for pod in scene.pods.values()))
        await scene.turn_back()
        await self.await_ready()

    async def await_ready(self) -> None:
        """Wait until every pod answers. Raises NotReady with what one of them said last, TimeoutError for an api."""
        await asyncio.gather(*(pod.up() for pod in self.scene.pods.values()))
        for url in self.api_urls:
            await _until_ready(self.scene.http, url)


async def _until_ready(http: aiohttp.ClientSession, url: str) -> None:
    async with asyncio.timeout(60):
        while True:
            with contextlib.suppress(aiohttp.ClientError, TimeoutError):
                async with http.get(f"{url}/readyz", timeout=aiohttp.ClientTimeout(total=5)) as response:
                    if response.status == 200:
                        return
            await asyncio.sleep(0.1)


@contextlib.asynccontextmanager
async def open_stage(
    note: Note,
    *,
    families: Collection[str],
    seed: int,
    has_keys: bool = True,
    window_s: float = WINDOW_S,
    batch_max: int = 1,
    keep: bool = False,
) -> AsyncIterator[Stage]:
    """Start an installation and give it once every pod answers. It ends with the block, whatever ended that.

    `families` matter to what must be there from the start (clocks); `seed` names the run in its directory.
    Raises NotReady with what to do.
    """
    if unknown := sorted(set(families) - set(FAMILIES)):
        raise ValueError(f"no such family of faults: {', '.join(unknown)}")
    folder = leftovers.make_folder()
    try:
        (folder / "seed").write_text(f"{seed}\n", encoding="ascii")
        async with contextlib.AsyncExitStack() as stack:
            provider = _provider(has_keys=has_keys, window_s=window_s, batch_max=batch_max)
            stage = await _set_up(stack, folder, note, families, provider)
            await stage.await_ready()
            yield stage
    finally:
        leftovers.clear(folder, keep=keep)  # what is left when the way down was cut short, too


async def _set_up(
    stack: contextlib.AsyncExitStack, folder: Path, note: Note, families: Collection[str], provider: Mapping[str, str]
) -> Stage:
    data = folder / leftovers.DATA
    postgres, valkey = Postgres(folder, data, note), Valkey(folder, data, note)
    for server in (postgres, valkey):
        stack.push_async_callback(server.stop)
    await asyncio.gather(postgres.start(), valkey.start())
    await asyncio.gather(postgres.recover_fast(), migrate(postgres.url))
    http = await stack.enter_async_context(aiohttp.ClientSession())
    scene = Scene(note, {}, postgres, valkey, {}, {}, Proxy(valkey.port), _local(fixed_port()), http)
    library = clocks.find_library() if "clocks" in families else None
    installation = _Installation(folder, note, scene, library, provider)
    await installation.wire(stack)
    await installation.start(stack)
    api_urls = [_local(int(scene.pods[name].spec.settings["API_PORT"])) for name in APIS]
    skipped = {"clocks": clocks.ABSENT} if "clocks" in families and library is None else {}
    keys = installation.api_key, installation.webhook_secret
    return Stage(folder, scene, postgres.url, api_urls, scene.mock_url, *keys, skipped)


def _provider(*, has_keys: bool, window_s: float, batch_max: int) -> Mapping[str, str]:
    """What the provider is, and what everybody takes it for."""
    family = "reject" if has_keys else "none"
    return {"MOCK_FAMILY": family, "MOCK_WINDOW_S": f"{window_s:g}", "BATCH_MAX": str(batch_max)}


class _Installation:
    """The pods and what they are told."""

    def __init__(
        self, folder: Path, note: Note, scene: Scene, library: Path | None, provider: Mapping[str, str]
    ) -> None:
        self.api_key = "nk_" + secrets.token_urlsafe(24)
        self.webhook_secret = "whsec_" + base64.b64encode(secrets.token_bytes(32)).decode("ascii")
        self._folder = folder
        self._note = note
        self._scene = scene
        self._library = library
        self._provider = provider

    async def wire(self, stack: contextlib.AsyncExitStack) -> None:
        """Lay the wires."""
        scene = self._scene
        scene.database = {name: Proxy(scene.postgres.port) for name in (*APIS, *SCHEDULERS, *WORKERS, "run")}
        scene.provider = {name: Proxy(int(scene.mock_url.rpartition(":")[2])) for name in (*WORKERS, "run")}
        for wire in scene.wires:
            await wire.open()
            stack.push_async_callback(wire.close)

    async def start(self, stack: contextlib.AsyncExitStack) -> None:
        """Start the pods, and keep them."""
        scene = self._scene
        parent_fd, our_end = os.pipe()
        for handle in (parent_fd, our_end):
            stack.callback(os.close, handle)
        pods = {
            spec.name: Pod(spec, folder=self._folder, parent_fd=parent_fd, note=self._note) for spec in self._specs()
        }
        scene.pods = pods
        stack.push_async_callback(_end, list(pods.values()))
        keepers = [pod.keep() for pod in pods.values()]
        await stack.enter_async_context(background(*keepers, offspring.follow(pods["run"], self._note)))

    def _specs(self) -> Iterator[PodSpec]:
        mock_port = self._scene.mock_url.rpartition(":")[2]
        yield self._spec("mock", "mock", "mock-provider", MOCK_PORT=mock_port)
        for name in APIS:
            yield self._spec(name, "api", "api", API_PORT=str(fixed_port()))
        for name in SCHEDULERS:
            yield self._spec(name, "scheduler", "scheduler")
        for name in WORKERS:
            yield self._spec(name, "worker", "worker")
        yield self._spec("run", "supervisor", "run", API_PORT="0", WORKERS="1")

    def _spec(self, name: str, role: Role, command: str, **own: str) -> PodSpec:
        scene = self._scene
        settings = {
            **TIMINGS,
            "API_KEYS": json.dumps({self.api_key: get_args(Scope)}),
            "LOGIN_WEBHOOK_SECRETS": self.webhook_secret,
            "DATA_DIR": str(self._folder / "pods" / name),
            **self._provider,
            "MOCK_SMTP_PORT": "0",
            "REDIS_URL": _through(scene.redis, scene.valkey.url),
        }
        if name in scene.database:
            settings["DATABASE_URL"] = _through(scene.database[name], scene.postgres.url)
        if name in scene.provider:
            settings["MOCK_URL"] = _local(scene.provider[name].port)
        around = {**clean_surroundings(), **clocks.environment(name, self._library)}
        return PodSpec(name, role, command, settings | own, around)


async def _end(pods: Sequence[Pod]) -> None:
    await asyncio.gather(*(pod.end() for pod in pods))


def _local(port: int) -> str:
    return f"http://127.0.0.1:{port}"


def _through(wire: Proxy, url: str) -> str:
    """The same server, by way of a wire."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=f"{parts.netloc.rpartition(':')[0]}:{wire.port}"))
