"""`notifier doctor --probe`: the whole way with a made-up user, and every link of it broken once."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from notifier.doctor import trip
from notifier.doctor.finding import Finding
from notifier.journeys import load_journeys
from notifier.runtime import HEARTBEAT_S
from notifier.settings import Settings
from tests.support.command import Command, Done
from tests.support.stack import KEY, Stack, open_stack, until

STATIONS = ("trip event", "trip mail", "trip inbox", "trip cancel", "trip erasure")
SHIPPED = Path(__file__).parents[2] / "notifier" / "journeys"


@pytest.fixture
async def stack(tmp_path: Path, database_url: str, redis_url: str) -> AsyncIterator[Stack]:
    async with open_stack(tmp_path, database_url, redis_url) as opened:
        yield opened


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """A doctor in this process that does not wait long for a mail that does not come."""
    monkeypatch.setattr(trip, "WAIT_S", 2.0)
    monkeypatch.setattr(trip, "HOPELESS_S", 0.2)


def given(stack: Stack, **settings: str) -> dict[str, str]:
    """The settings of a doctor beside the stack, without their prefix."""
    found = {name.removeprefix("NOTIFIER_"): value for name, value in stack.environ.items() if "NOTIFIER_" in name}
    del found["API_KEYS"]
    return {**found, "API_URL": stack["api"].url, "API_KEY": KEY, **settings}


async def probe(stack: Stack, *argv: str, **settings: str) -> tuple[Done, dict[str, dict[str, Any]]]:
    """Run the command beside the stack; what it found of the trip, by station."""
    folder = stack.folder / "elsewhere"
    folder.mkdir(exist_ok=True)
    done = await Command(folder, given(stack, **settings))("doctor", "--probe", "--json", *argv)
    return done, {one["about"]: one for one in done.json["findings"] if one["about"].startswith("trip")}


async def travel(
    stack: Stack, *, live: tuple[str, ...] = ("api", "worker", "scheduler"), to: str | None = None, **settings: str
) -> dict[str, Finding]:
    """Make the same trip in this process, which costs no start; what was found, by station."""
    made = Settings(**{name.lower(): value for name, value in given(stack, **settings).items()})
    way = trip.travel(made, load_journeys(made), set(live), stack["mock"].url, to)
    return {finding.about: finding async for finding in way}


async def no_trace(stack: Stack) -> None:
    """Nothing personal is left of any trip, and nothing is owed any more."""
    people = await stack.rows("SELECT email, name, erased_at FROM users")
    assert people
    for left in people:
        assert (left["email"], left["name"]) == (None, None)
        assert left["erased_at"] is not None
    states = await stack.states()
    assert states["scheduled"] == states["pending"] == 0, states


async def turn_on(stack: Stack, switch: str) -> None:
    body = {"owner": "ada", "reason": "a test", "ttl_s": 600}
    async with stack.http.put(
        f"{stack['api'].url}/v1/switches/{switch}", json=body, headers={"Authorization": f"Bearer {KEY}"}
    ) as answer:
        assert answer.status == 200


async def miss(stack: Stack, name: str) -> None:
    """Let 16 s pass in which a frozen process is not heard of."""
    silent = f"UPDATE workers SET heartbeat_at = now() - interval '16 s' WHERE pid = {stack[name].pid} RETURNING id"
    assert len(await stack.rows(silent)) == 1


async def test_where_all_is_well_the_mail_arrives_and_the_follow_up_is_stopped(stack: Stack) -> None:
    await stack.start_all()
    command = Command(stack.folder, {"API_URL": stack["api"].url, "API_KEY": KEY})
    assert "trip" not in (await command("doctor")).out
    assert await stack.rows("SELECT FROM events") == [], "without a probe nothing is done"
    done, found = await probe(stack)
    assert done.code == 0, done.out
    assert {station: found[station]["verdict"] for station in STATIONS} == dict.fromkeys(STATIONS, "ok"), found
    assert "onboarding pending, followup scheduled" in found["trip event"]["text"]
    assert "was called" in found["trip mail"]["text"]
    assert "user.logged_in stopped followup" in found["trip cancel"]["text"]
    assert dict(await stack.states()) == {"sent": 1, "canceled": 1}
    await no_trace(stack)
    # The same as a person sees it, and with an address of theirs.
    done, found = await probe(stack, "--probe-to", "ada@example.com")
    assert done.code == 0, done.out
    assert {mail["to"][0] for mail in await stack.messages()} == {"doctor@example.com", "ada@example.com"}


@pytest.mark.usefixtures("hasty")
async def test_a_switch_the_mock_away_and_no_worker_are_named(stack: Stack) -> None:
    await stack.start_all()
    await stack["mock"].stop()
    found = await travel(stack)
    assert found["trip mail"].verdict == "failed"
    assert "did not take it (retry_later" in found["trip mail"].text, found
    assert "does the mock provider answer" in found["trip mail"].todo

    # A call in hand at the erasure comes back as a retry; it is the claim after it that cancels.
    async def nothing_owed() -> bool:
        return not {"scheduled", "pending", "sending"} & set(await stack.states())

    await until(nothing_owed, "the erased user's mail is given up")
    await stack["worker-0"].stop()
    found = await travel(stack, live=("api", "scheduler"))
    assert found["trip mail"].verdict == "failed"
    assert "nothing claims onboarding: no worker has been heard of" in found["trip mail"].text
    assert "start `notifier worker`" in found["trip mail"].todo
    assert found["trip cancel"].verdict == found["trip erasure"].verdict == "ok", "the rest is tried all the same"

    for switch in ("pause:onboarding", "pause", "pause:provider:mock"):
        await turn_on(stack, switch)
        found = await travel(stack)
        assert found["trip mail"].verdict == "failed"
        assert f"held back by the switch {switch} (by ada)" in found["trip mail"].text
        assert f"notifier switch end {switch}" in found["trip mail"].todo
        await stack.rows("DELETE FROM switches RETURNING name")
    await no_trace(stack)


@pytest.mark.usefixtures("hasty")
async def test_a_frozen_worker_is_found_out_and_ctrl_c_leaves_nothing_behind(stack: Stack) -> None:
    await stack.start_all()
    stack["worker-0"].signal(signal.SIGSTOP)
    environ = {**stack.environ, "NOTIFIER_API_URL": stack["api"].url, "NOTIFIER_API_KEY": KEY}
    doctor = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "notifier", "doctor", "--probe"),
        env=environ,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )

    async def signed_up() -> bool:
        return bool(await stack.rows("SELECT FROM outbox"))

    await until(signed_up, "the made-up user signed up")
    doctor.send_signal(signal.SIGINT)  # while the mail is waited for
    assert await asyncio.wait_for(doctor.wait(), 30) != 0
    await no_trace(stack)

    await miss(stack, "worker-0")
    done, found = await probe(stack)
    assert (done.code, found["trip mail"]["verdict"]) == (1, "failed")
    assert "no worker has been heard of for 15 s" in found["trip mail"]["text"]
    assert "frozen" in found["trip mail"]["todo"]
    await no_trace(stack)

    await stack["worker-0"].stop()
    await stack.start("worker", "worker-1", FAILPOINTS="worker.after_claim=freeze", CLAIM_TTL_S="30")
    going = asyncio.create_task(travel(stack, CLAIM_TTL_S="30"))
    await until(lambda: stack["worker-1"].is_frozen, "it froze with the mail in hand")
    await miss(stack, "worker-1")
    mail = (await going)["trip mail"]
    assert mail.verdict == "failed"
    assert "was claimed by" in mail.text
    assert "that worker has not been heard of for 15 s" in mail.text
    assert await stack.rows("SELECT FROM users WHERE num_nonnulls(email, name) > 0 OR erased_at IS NULL") == []


def test_a_worker_that_froze_a_moment_ago_is_missed_before_the_doctor_gives_up() -> None:
    assert trip.WAIT_S + Settings().poll_s > 3 * HEARTBEAT_S + HEARTBEAT_S


async def test_the_api_away_or_closed_or_our_key_too_weak(stack: Stack) -> None:
    await stack.start("mock-provider", "mock")
    weak = '{"test-key": ["events", "read", "operate"], "k-events": ["events"], "k-no-events": ["read", "operate"]}'
    await stack.start("api", "api", API_KEYS=weak)
    for key, station, words in (
        ("wrong", "trip event", "does not know this key"),
        ("k-events", "trip event", "lacks the scope 'operate'"),
        ("k-no-events", "trip event", "lacks the scope 'events'"),
    ):
        found = await travel(stack, API_KEY=key)
        assert found[station].verdict == "failed", found
        assert words in found[station].text
        assert "events read operate" in found[station].todo
        assert "trip mail" not in found
    assert await stack.rows("SELECT FROM users") == []
    await turn_on(stack, "maintenance")
    found = await travel(stack)
    assert "maintenance" in found["trip event"].text, found
    assert "there was nobody to erase" in found["trip erasure"].text
    await stack["api"].stop()
    done, told = await probe(stack)
    assert (done.code, told["trip event"]["verdict"]) == (1, "failed")
    assert "no API answers" in told["trip event"]["text"]


async def test_an_address_that_is_not_allowed_and_a_cancel_that_comes_too_soon(stack: Stack) -> None:
    journeys = stack.folder / "journeys.toml"
    journeys.write_text((SHIPPED / "journeys.toml").read_text() + 'cancel_grace = "1h"\n')
    stack.environ |= {
        "NOTIFIER_ONLY_TO": "*@staging.example.com",
        "NOTIFIER_JOURNEYS_FILE": f"{journeys}",
        "NOTIFIER_TEMPLATES_DIR": f"{SHIPPED / 'templates'}",
    }
    await stack.start_all()
    done, found = await probe(stack)
    assert (done.code, found["trip mail"]["verdict"]) == (0, "warning")
    assert "skipped: not_allowed" in found["trip mail"]["text"]
    assert "--probe-to" in found["trip mail"]["todo"]
    assert found["trip cancel"]["verdict"] == "skipped"
    assert "cancel_grace" in found["trip cancel"]["text"]
    await no_trace(stack)
    there = await travel(stack, to="ada@staging.example.com")
    assert there["trip inbox"].verdict == "ok", there


async def test_over_smtp_nobody_is_mailed_who_was_not_named(stack: Stack) -> None:
    stack.environ |= {"NOTIFIER_PROVIDER": "smtp", "NOTIFIER_CLOCK": "real"}
    await stack.start_all()
    done, found = await probe(stack)
    assert list(found) == ["trip"]
    assert (found["trip"]["verdict"], "--probe-to ADDRESS" in found["trip"]["text"]) == ("skipped", True)
    assert await stack.rows("SELECT FROM users") == []
    done, found = await probe(stack, "--probe-to", "ada@example.com")
    assert (done.code, found["trip mail"]["verdict"]) == (0, "ok"), found
    assert "look whether it is in the mailbox" in found["trip mail"]["text"]
    assert len(await stack.messages()) == 1
