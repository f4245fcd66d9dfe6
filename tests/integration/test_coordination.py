"""Redis as we speak it: leases and nudges on a real Valkey, and what is left of them when it is slow, full or gone."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import time
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from notifier import embedded, observe
from notifier.coordination.client import BUDGET_S, PAUSE_S, RedisClient
from notifier.coordination.lease import Leases
from notifier.coordination.wakeup import CHANNEL, Wakeup
from notifier.runtime import background
from tests.support.stack import until

TTL = timedelta(seconds=30)
MARGIN_S = 0.15  # what this machine may take beyond a budget
BUDGET = "notifier.coordination.client.BUDGET_S"
PATIENT_S = 5.0  # for what is not about time: a busy machine may take longer than the service would wait
KEY_FORM = re.compile(r"nt:lease:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Any]:
    async with Redis.from_url(redis_url, decode_responses=True) as client:
        yield client


@pytest.fixture
async def client(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[RedisClient]:
    monkeypatch.setattr(BUDGET, PATIENT_S)
    async with a_client(redis_url) as opened:
        yield opened


@asynccontextmanager
async def a_client(url: str | None) -> AsyncIterator[RedisClient]:
    opened = RedisClient(url)
    try:
        yield opened
    finally:
        await opened.close()


@asynccontextmanager
async def a_valkey(tmp_path: Path) -> AsyncIterator[embedded.Server]:
    """A Valkey of the test's own, that it may stop and freeze."""
    server = await embedded.start_valkey(tmp_path / "own")
    try:
        yield server
    finally:
        if embedded.alive(server):
            os.kill(server.pid, signal.SIGCONT)
        await embedded.stop(server)


def fallbacks(reason: str) -> float:
    return observe.COORDINATION_FALLBACK.labels(reason)._value.get()


def answers(outcome: str) -> float:
    return observe.COORDINATION_ACQUIRE.labels("send_lease", outcome)._value.get()


def ids(number: int) -> list[uuid.UUID]:
    return [uuid.uuid4() for _ in range(number)]


def key(notification: uuid.UUID) -> str:
    return f"nt:lease:{notification}"


# ---------------------------------------------------------------------------------------------- leases


async def test_a_renewed_lease_is_held_by_its_owner_and_by_nobody_else(client: RedisClient) -> None:
    leases, (one, other, never) = Leases(client), ids(3)
    await leases.renew([one, other], "w1", TTL)
    assert await leases.held({one: "w1", other: "w1", never: "w1"}) == {one, other}
    assert await leases.held({one: "w2", other: "w1"}) == {other}


async def test_every_key_names_a_notification_and_runs_out(client: RedisClient, redis: Any) -> None:
    await Leases(client).renew(ids(20), "host-7-ab12", TTL)
    keys = await redis.keys("*")
    assert len(keys) == 20
    for name in keys:
        assert KEY_FORM.fullmatch(name), name
        assert 29_000 < await redis.pttl(name) <= 30_000


async def test_renewing_makes_it_last_longer(client: RedisClient, redis: Any) -> None:
    leases, [one] = Leases(client), ids(1)
    await leases.renew([one], "w1", timedelta(seconds=2))
    await leases.renew([one], "w1", TTL)
    assert await redis.pttl(key(one)) > 25_000


async def test_what_somebody_else_holds_is_left_alone(client: RedisClient, redis: Any) -> None:
    leases, (theirs, ours) = Leases(client), ids(2)
    await redis.set(key(theirs), "w2", px=5_000)
    granted, denied = answers("granted"), answers("denied")
    await leases.renew([theirs, ours], "w1", TTL)
    assert (answers("granted") - granted, answers("denied") - denied) == (1, 1)
    assert await redis.get(key(theirs)) == "w2"
    assert await redis.pttl(key(theirs)) <= 5_000
    await leases.release([theirs, ours], "w1")
    assert await redis.keys("*") == [key(theirs)]


async def test_a_lease_that_is_not_renewed_runs_out(client: RedisClient) -> None:
    leases, [one] = Leases(client), ids(1)
    await leases.renew([one], "w1", timedelta(milliseconds=200))
    assert await leases.held({one: "w1"}) == {one}

    async def gone() -> bool:
        return await leases.held({one: "w1"}) == set()

    await until(gone, "the lease has run out", deadline_s=5)


@pytest.mark.parametrize("kind", ["list", "hash", "set", "stream"])
async def test_something_else_under_our_key_is_nobodys_lease(client: RedisClient, redis: Any, kind: str) -> None:
    leases, (spoiled, fine) = Leases(client), ids(2)
    match kind:
        case "list":
            await redis.rpush(key(spoiled), "w1")
        case "hash":
            await redis.hset(key(spoiled), "w1", "w1")
        case "set":
            await redis.sadd(key(spoiled), "w1")
        case _:
            await redis.xadd(key(spoiled), {"w1": "w1"})
    for _ in range(2):
        await leases.renew([spoiled, fine], "w1", TTL)
        assert await leases.held({spoiled: "w1", fine: "w1"}) == {fine}
    assert await redis.type(key(spoiled)) == kind
    await leases.release([spoiled, fine], "w1")
    assert await redis.keys("*") == [key(spoiled)]
    assert client.is_well


async def test_a_lease_is_no_more_than_a_key(client: RedisClient, redis: Any) -> None:
    leases, mine = Leases(client), ids(10)
    await leases.renew(mine, "w1", TTL)
    await redis.flushall()
    assert await leases.held(dict.fromkeys(mine, "w1")) == set()
    await leases.renew(mine, "w1", TTL)
    assert await leases.held(dict.fromkeys(mine, "w1")) == set(mine)


async def test_a_thousand_are_one_question(client: RedisClient, redis: Any) -> None:
    leases, many = Leases(client), ids(1_000)
    before = int((await redis.info("commandstats")).get("cmdstat_eval", {"calls": 0})["calls"])
    await leases.renew(many, "w1", TTL)
    assert await leases.held(dict.fromkeys(many, "w1")) == set(many)
    await leases.release(many, "w1")
    assert int((await redis.info("commandstats"))["cmdstat_eval"]["calls"]) - before == 3


async def test_nothing_to_ask_asks_nothing(tmp_path: Path) -> None:
    async with a_client("redis://127.0.0.1:1/0") as nowhere:
        leases = Leases(nowhere)
        await leases.renew([], "w1", TTL)
        await leases.release([], "w1")
        assert await leases.held({}) == set()
        assert nowhere.is_well


# ---------------------------------------------------------------------------------------------- nudges


@asynccontextmanager
async def listening(url: str) -> AsyncIterator[list[float]]:
    """When nudges were heard; the first entry is the subscription itself."""
    heard: list[float] = []
    async with a_client(url) as client:
        wakeup = Wakeup(client, url)
        async with background(wakeup.listen(lambda: heard.append(time.monotonic()))):
            await until(lambda: bool(heard), "somebody listens", deadline_s=10)
            yield heard


async def published(redis: Any) -> int:
    return int((await redis.info("commandstats")).get("cmdstat_publish", {"calls": 0})["calls"])


async def test_a_nudge_is_heard_soon_by_everybody(redis_url: str, client: RedisClient) -> None:
    async with listening(redis_url) as one, listening(redis_url) as other:
        before = time.monotonic()
        Wakeup(client, redis_url).nudge()
        await until(lambda: len(one) == len(other) == 2, "both heard it", deadline_s=5)
        assert max(one[1], other[1]) - before < 1


async def test_many_nudges_are_few_messages_and_the_last_one_counts(
    redis_url: str, client: RedisClient, redis: Any
) -> None:
    async with listening(redis_url) as heard:
        wakeup, before = Wakeup(client, redis_url), await published(redis)
        started = time.monotonic()
        while time.monotonic() - started < 0.1:
            for _ in range(50):
                wakeup.nudge()
            await asyncio.sleep(0)
        last = time.monotonic()
        await wakeup.flush()
        sent = await published(redis) - before
        assert 1 <= sent <= 0.1 / 0.01 + 3
        await until(lambda: len(heard) == 1 + sent, "all were heard", deadline_s=5)
        assert heard[-1] >= last, "work that came last is told of as well"


async def test_a_nudge_is_heard_although_the_connection_of_the_last_one_is_gone(
    redis_url: str, client: RedisClient, redis: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BUDGET, PATIENT_S)  # to connect anew may take long here
    async with listening(redis_url) as heard:
        wakeup = Wakeup(client, redis_url)
        for number in (2, 3):
            wakeup.nudge()
            await wakeup.flush()
            await until(lambda number=number: len(heard) == number, "it is heard", deadline_s=5)
            await redis.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        assert client.is_well


async def test_without_redis_a_nudge_is_nothing(client: RedisClient) -> None:
    async with a_client(None) as none:
        wakeup = Wakeup(none, None)
        wakeup.nudge()
        await wakeup.flush()
        await asyncio.wait_for(wakeup.listen(lambda: None), 1)
        assert await none.ping() is False
        assert not none.is_well


async def test_what_others_say_on_the_channel_does_no_harm(redis_url: str, redis: Any) -> None:
    async with listening(redis_url) as heard:
        for junk in ("", "x" * 100_000, "\x00"):
            await redis.publish(CHANNEL, junk)
        await until(lambda: len(heard) == 4, "a nudge is a nudge whatever it says", deadline_s=5)


async def test_the_listener_comes_back_after_a_restart(tmp_path: Path) -> None:
    async with a_valkey(tmp_path) as server, listening(server.url) as heard:
        await embedded.stop(server)
        again = await embedded.start_valkey(tmp_path / "own")
        try:
            assert again.url == server.url
            await until(lambda: len(heard) >= 2, "it subscribed anew", deadline_s=15)
            number = len(heard)
            async with a_client(again.url) as speaker:
                Wakeup(speaker, again.url).nudge()
                await until(lambda: len(heard) > number, "and hears", deadline_s=5)
        finally:
            await embedded.stop(again)


async def test_a_listener_that_was_cut_off_subscribes_anew(redis_url: str, redis: Any) -> None:
    async with listening(redis_url) as heard:
        await redis.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
        await until(lambda: len(heard) >= 2, "it subscribed anew", deadline_s=10)
        number = len(heard)
        await redis.publish(CHANNEL, "1")
        await until(lambda: len(heard) > number, "and hears", deadline_s=5)


# ---------------------------------------------------------------------------------------------- slow, full, gone


async def timed(ask: Callable[[], Any]) -> tuple[Any, float]:
    started = time.monotonic()
    return await ask(), time.monotonic() - started


async def test_a_frozen_redis_costs_one_budget_and_then_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BUDGET, PATIENT_S)
    async with a_valkey(tmp_path) as server, a_client(server.url) as client:
        leases, mine = Leases(client), ids(3)
        await leases.renew(mine, "w1", TTL)
        slow, paused = fallbacks("redis_slow"), fallbacks("paused")
        monkeypatch.setattr(BUDGET, BUDGET_S)
        os.kill(server.pid, signal.SIGSTOP)
        held, took_s = await timed(lambda: leases.held(dict.fromkeys(mine, "w1")))
        assert held == set()
        assert took_s < BUDGET_S + MARGIN_S
        assert not client.is_well
        for ask in (lambda: leases.renew(mine, "w1", TTL), lambda: leases.release(mine, "w1"), client.ping):
            answer, took_s = await timed(ask)
            assert not answer
            assert took_s < 0.02, "while it is paused nobody asks"
        assert (fallbacks("redis_slow") - slow, fallbacks("paused") - paused) == (1, 3)

        monkeypatch.setattr(BUDGET, PATIENT_S)
        os.kill(server.pid, signal.SIGCONT)
        await until(lambda: client.is_well, "the pause is over", deadline_s=PAUSE_S + 1)
        # an answer that came late must not be taken for the answer to a later question
        assert await leases.held({mine[0]: "w1", mine[1]: "w2"}) == {mine[0]}
        assert await client.ping()


async def test_a_connection_that_nobody_answers_costs_one_budget_too() -> None:
    """Connected, accepted by the kernel, and silent for ever: a firewall, or a process that never reads."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        async with a_client(f"redis://127.0.0.1:{silent.getsockname()[1]}/0") as client:
            answer, took_s = await timed(client.ping)
            assert answer is False
            assert took_s < BUDGET_S + MARGIN_S


async def test_a_redis_that_is_gone_is_asked_once_a_second() -> None:
    async with a_client("redis://127.0.0.1:1/0") as client:
        gone, paused = fallbacks("redis_unavailable"), fallbacks("paused")
        for _ in range(5):
            assert await client.ping() is False
        assert (fallbacks("redis_unavailable") - gone, fallbacks("paused") - paused) == (1, 4)


async def test_a_full_redis_refuses_and_we_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BUDGET, PATIENT_S)
    async with (
        a_valkey(tmp_path) as server,
        a_client(server.url) as client,
        Redis.from_url(server.url) as redis,
    ):
        leases, (before, after) = Leases(client), ids(2)
        await leases.renew([before], "w1", TTL)
        await redis.config_set("maxmemory-policy", "noeviction")
        await redis.config_set("maxmemory", 1)
        errors = fallbacks("redis_error")
        _, took_s = await timed(lambda: leases.renew([after], "w1", TTL))
        assert took_s < BUDGET_S + MARGIN_S
        assert fallbacks("redis_error") - errors == 1
        assert await leases.held({after: "w1"}) == set()
        wakeup = Wakeup(client, server.url)
        wakeup.nudge()
        await wakeup.flush()

        await redis.config_set("maxmemory", 0)
        await until(lambda: client.is_well, "the pause is over", deadline_s=PAUSE_S + 1)
        await leases.renew([after], "w1", TTL)
        assert await leases.held({before: "w1", after: "w1"}) == {before, after}


async def test_a_wrong_password_is_as_if_there_were_none(redis_url: str) -> None:
    async with a_client(redis_url.replace("://:", "://:no")) as client:
        assert await client.ping() is False
        assert await Leases(client).held({uuid.uuid4(): "w1"}) == set()


async def test_fifty_questions_at_once_are_all_answered(client: RedisClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """More than there are connections: they wait for one instead of failing, however long that takes here."""
    monkeypatch.setattr(BUDGET, PATIENT_S)
    leases, many = Leases(client), ids(50)
    await leases.renew(many, "w1", TTL)
    found = await asyncio.gather(*(leases.held({one: "w1"}) for one in many))
    assert sum(len(one) for one in found) == 50
