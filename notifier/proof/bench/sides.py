"""Who is measured: this service, the floor, and the peers with the best settings known for each."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

Kind = Literal["ours", "floor", "peer"]
Bodies = Literal["none", "ready", "rendered"]
Client = Literal["none", "session", "http_post"]

CLIENTS = {"session": "aiohttp session", "http_post": "http_post.py"}


@dataclass(frozen=True, slots=True)
class Drain:
    """One way in which a side drains. `number` jobs are enough for some seconds.

    `batch`: how many it takes at once. `slots`: how many calls it has in hand. `mails`: how many go in one call.
    `bodies`: whether a call's bytes are ready or each mail is rendered. `client`: what carries it.
    """

    number: int
    batch: int
    slots: int
    mails: int = 1
    bodies: Bodies = "none"
    client: Client = "none"

    @property
    def way(self) -> str:
        """What tells it from others."""
        many = "one a call" if self.mails == 1 else f"{self.mails} a call"
        if self.client == "none":
            return many
        return f"{self.bodies}, {CLIENTS[self.client]}, {many}"


@dataclass(frozen=True, slots=True)
class Side:
    """One side. `module` drives its worker; `enqueues` is the module that puts things in, and how many of them.

    `left` counts what is not done, in its own tables.
    """

    name: str
    title: str
    kind: Kind
    module: str
    noop: tuple[Drain, ...]
    http: tuple[Drain, ...]
    left: str = ""
    enqueues: str = ""
    enqueue_number: int = 0
    batches: tuple[Drain, ...] = ()

    def drains(self, job: str) -> tuple[Drain, ...]:
        """Give its ways to do a job: noop, http or batches."""
        return {"noop": self.noop, "http": self.http, "batches": self.batches}[job]


_CALLS = Drain(number=20_000, batch=100, slots=200, bodies="ready", client="http_post")
_LOTS = Drain(number=80_000, batch=1_000, slots=40, mails=100, bodies="ready", client="http_post")
_PGQUEUER = Drain(number=10_000, batch=100, slots=200, bodies="ready", client="session")
OURS = Side(
    name="ours",
    title="notifier",
    kind="ours",
    module="own.worker",
    noop=(Drain(number=80_000, batch=1_000, slots=40, mails=100), Drain(number=40_000, batch=1_000, slots=1_000)),
    http=(replace(_CALLS, client="session"), _CALLS, replace(_CALLS, bodies="rendered")),
    left="SELECT count(*) FROM deliveries",
    enqueues="own.ingest",
    enqueue_number=6_000,
    batches=(_LOTS, replace(_LOTS, bodies="rendered")),
)
FLOOR = Side(
    name="floor",
    title="floor",
    kind="floor",
    module="own.bare",
    noop=(),
    http=(replace(_CALLS, client="session"), _CALLS, replace(_CALLS, bodies="rendered")),
    enqueues="own.smallest",
    enqueue_number=20_000,
    batches=(_LOTS, replace(_LOTS, bodies="rendered")),
)
PEERS = (
    Side(
        name="pgqueuer",
        title="PgQueuer",
        kind="peer",
        module="peers.on_pgqueuer",
        noop=(Drain(number=60_000, batch=1_000, slots=2_000),),
        http=(_PGQUEUER,),
        batches=(_PGQUEUER, replace(_PGQUEUER, bodies="rendered")),  # one call a mail: it knows no batches
        left="SELECT count(*) FROM pgqueuer",
        enqueues="peers.on_pgqueuer",
        enqueue_number=2_000,
    ),
    Side(
        name="oban",
        title="Oban (Python)",
        kind="peer",
        module="peers.on_oban",
        noop=(Drain(number=8_000, batch=100, slots=100),),
        http=(Drain(number=3_000, batch=100, slots=100, bodies="ready", client="session"),),
        left="SELECT count(*) FROM oban_jobs WHERE state <> 'completed'",
        enqueues="peers.on_oban",
        enqueue_number=2_000,
    ),
    Side(
        name="procrastinate",
        title="Procrastinate",
        kind="peer",
        module="peers.on_procrastinate",
        noop=(Drain(number=2_000, batch=20, slots=20),),
        http=(Drain(number=1_500, batch=20, slots=20, bodies="ready", client="session"),),
        left="SELECT count(*) FROM procrastinate_jobs",
        enqueues="peers.on_procrastinate",
        enqueue_number=1_500,
    ),
    Side(
        name="dbos",
        title="DBOS",
        kind="peer",
        module="peers.on_dbos",
        noop=(Drain(number=3_000, batch=100, slots=100),),
        http=(Drain(number=1_000, batch=100, slots=100, bodies="ready", client="session"),),
        left="SELECT count(*) FROM dbos.workflow_status WHERE status <> 'SUCCESS'",
        enqueues="peers.on_dbos",
        enqueue_number=1_000,
    ),
)
ALL = (OURS, FLOOR, *PEERS)
BY_NAME = {side.name: side for side in ALL}
