"""Who is measured: this service, the floor, and the peers with the best settings known for each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["ours", "floor", "peer"]


@dataclass(frozen=True, slots=True)
class Drain:
    """How a side drains. `number` jobs are enough for some seconds.

    `batch`: how many it takes at once. `slots`: how many calls it has in hand. `mails`: how many go in one call.
    """

    number: int
    batch: int
    slots: int
    mails: int = 1


@dataclass(frozen=True, slots=True)
class Side:
    """One side. `module` drives its worker; `enqueues` is the module that puts things in, and how many of them.

    `left` counts what is not done, in its own tables.
    """

    name: str
    title: str
    kind: Kind
    module: str
    noop: Drain | None
    http: Drain
    left: str = ""
    enqueues: str = ""
    enqueue_number: int = 0
    batches: Drain | None = None


OURS = Side(
    name="ours",
    title="notifier",
    kind="ours",
    module="own.worker",
    noop=Drain(number=60_000, batch=500, slots=20, mails=100),
    http=Drain(number=8_000, batch=100, slots=100),
    left="SELECT count(*) FROM deliveries",
    enqueues="own.ingest",
    enqueue_number=6_000,
    batches=Drain(number=40_000, batch=500, slots=20, mails=100),
)
FLOOR = Side(
    name="floor",
    title="floor",
    kind="floor",
    module="own.bare",
    noop=None,
    http=Drain(number=8_000, batch=100, slots=100),
    enqueues="own.smallest",
    enqueue_number=20_000,
    batches=Drain(number=40_000, batch=500, slots=20, mails=100),
)
PEERS = (
    Side(
        name="pgqueuer",
        title="PgQueuer",
        kind="peer",
        module="peers.on_pgqueuer",
        noop=Drain(number=40_000, batch=1_000, slots=2_000),
        http=Drain(number=6_000, batch=100, slots=200),
        left="SELECT count(*) FROM pgqueuer",
        enqueues="peers.on_pgqueuer",
        enqueue_number=2_000,
    ),
    Side(
        name="oban",
        title="Oban (Python)",
        kind="peer",
        module="peers.on_oban",
        noop=Drain(number=8_000, batch=100, slots=100),
        http=Drain(number=3_000, batch=100, slots=100),
        left="SELECT count(*) FROM oban_jobs WHERE state <> 'completed'",
        enqueues="peers.on_oban",
        enqueue_number=2_000,
    ),
    Side(
        name="procrastinate",
        title="Procrastinate",
        kind="peer",
        module="peers.on_procrastinate",
        noop=Drain(number=2_000, batch=20, slots=20),
        http=Drain(number=1_500, batch=20, slots=20),
        left="SELECT count(*) FROM procrastinate_jobs",
        enqueues="peers.on_procrastinate",
        enqueue_number=1_500,
    ),
    Side(
        name="dbos",
        title="DBOS",
        kind="peer",
        module="peers.on_dbos",
        noop=Drain(number=3_000, batch=100, slots=100),
        http=Drain(number=1_000, batch=100, slots=100),
        left="SELECT count(*) FROM dbos.workflow_status WHERE status <> 'SUCCESS'",
        enqueues="peers.on_dbos",
        enqueue_number=1_000,
    ),
)
ALL = (OURS, FLOOR, *PEERS)
BY_NAME = {side.name: side for side in ALL}
