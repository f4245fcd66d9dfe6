"""`notifier doctor --probe`: the whole way with a made-up user, and every link of it broken once."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import Command, Done
from tests.support.stack import KEY, Stack, open_stack, until

STATIONS = ("trip event", "trip mail", "trip inbox", "trip cancel", "trip erasure")


@pytest.fixture
async def stack(tmp_path: Path, database_url: str, redis_url: str) -> AsyncIterator[Stack]:
    async with open_stack(tmp_path, database_url, redis_url) as opened:
        yield opened


async def probe(stack: Stack, *argv: str, **settings: str) -> tuple[Done, dict[str, dict[str, Any]]]:
    """Run it beside the stack; what it found of the trip, by station."""
    given = {name.removeprefix("NOTIFIER_"): value for name, value in stack.environ.items() if "NOTIFIER_" in name}
    del given["API_KEYS"]
    folder = stack.folder / "elsewhere"
    folder.mkdir(exist_ok=True)
    command = Command(folder, {**given, "API_URL": stack["api"].url, "API_KEY": KEY, **settings})
    done = await command("doctor", "--probe", "--json", *argv)
    return done, {one["about"]: one for one in done.json["findings"] if one["about"].startswith("trip")}


async def no_trace(stack: Stack) -> None:
    """Nothing personal is left of it, and nothing is owed any more."""
    [left] = await stack.rows("SELECT email, name, erased_at FROM users")
    assert (left["email"], left["name"]) == (None, None)
    assert left["erased_at"] is not None
    states = await stack.states()
    assert states["scheduled"] == states["pending"] == 0, states


async def test_where_all_is_well_the_mail_arrives_and_the_follow_up_is_stopped(stack: Stack) -> None:
    await stack.start_all()
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


async def test_without_a_probe_nothing_is_done(stack: Stack) -> None:
    await stack.start_all(workers=0)
    command = Command(stack.folder, {"API_URL": stack["api"].url, "API_KEY": KEY})
    assert "trip" not in (await command("doctor")).out
    assert await stack.rows("SELECT FROM events") == []


async def test_no_worker(stack: Stack) -> None:
    await stack.start_all(workers=0)
    done, found = await probe(stack)
    assert (done.code, found["trip mail"]["verdict"]) == (1, "failed")
    assert "nothing claims onboarding: no worker has been heard of" in found["trip mail"]["text"]
    assert "start `notifier worker`" in found["trip mail"]["todo"]
    assert found["trip cancel"]["verdict"] == found["trip erasure"]["verdict"] == "ok", "the rest is tried all the same"
    await no_trace(stack)


async def test_a_frozen_worker_is_found_out(stack: Stack) -> None:
    await stack.start_all()
    stack["worker-0"].signal(signal.SIGSTOP)
    done, found = await probe(stack)
    assert (done.code, found["trip mail"]["verdict"]) == (1, "failed")
    assert "no worker has been heard of for 15 s" in found["trip mail"]["text"]
    assert "frozen" in found["trip mail"]["todo"]
    await no_trace(stack)


@pytest.mark.parametrize("switch", ["pause:onboarding", "pause", "pause:provider:mock"])
async def test_what_a_switch_holds_is_named(stack: Stack, switch: str) -> None:
    await stack.start_all()
    body = {"owner": "ada", "reason": "a test", "ttl_s": 600}
    async with stack.http.put(
        f"{stack['api'].url}/v1/switches/{switch}", json=body, headers={"Authorization": f"Bearer {KEY}"}
    ) as answer:
        assert answer.status == 200
    done, found = await probe(stack)
    assert (done.code, found["trip mail"]["verdict"]) == (1, "failed")
    assert f"held back by the switch {switch} (by ada)" in found["trip mail"]["text"]
    assert f"notifier switch end {switch}" in found["trip mail"]["todo"]
    await no_trace(stack)


async def test_the_mock_away(stack: Stack) -> None:
    await stack.start_all()
    await stack["mock"].stop()
    done, found = await probe(stack)
    assert (done.code, found["trip mail"]["verdict"]) == (1, "failed")
    assert "did not take it (retry_later" in found["trip mail"]["text"], found
    assert "does the mock provider answer" in found["trip mail"]["todo"]
    await no_trace(stack)


async def test_the_api_away_or_closed_or_our_key_too_weak(stack: Stack) -> None:
    await stack.start("mock-provider", "mock")
    weak = '{"test-key": ["events", "read", "operate"], "k-events": ["events"], "k-no-events": ["read", "operate"]}'
    await stack.start("api", "api", API_KEYS=weak)
    for key, station, words in (
        ("wrong", "trip event", "does not know this key"),
        ("k-events", "trip event", "lacks the scope 'operate'"),
        ("k-no-events", "trip event", "lacks the scope 'events'"),
    ):
        done, found = await probe(stack, API_KEY=key)
        assert (done.code, found[station]["verdict"]) == (1, "failed"), found
        assert words in found[station]["text"]
        assert "events read operate" in found[station]["todo"]
        assert "trip mail" not in found
    assert await stack.rows("SELECT FROM users") == []
    async with stack.http.put(
        f"{stack['api'].url}/v1/switches/maintenance",
        json={"owner": "ada", "reason": "a test", "ttl_s": 600},
        headers={"Authorization": f"Bearer {KEY}"},
    ) as answer:
        assert answer.status == 200
    done, found = await probe(stack)
    assert (done.code, "maintenance" in found["trip event"]["text"]) == (1, True), found
    assert "there was nobody to erase" in found["trip erasure"]["text"]
    await stack["api"].stop()
    done, found = await probe(stack)
    assert (done.code, found["trip event"]["verdict"]) == (1, "failed")
    assert "no API answers" in found["trip event"]["text"]


async def test_an_address_that_is_not_allowed(stack: Stack) -> None:
    await stack.start_all(ONLY_TO="*@staging.example.com")
    done, found = await probe(stack, ONLY_TO="*@staging.example.com")
    assert (done.code, found["trip mail"]["verdict"]) == (0, "warning")
    assert "skipped: not_allowed" in found["trip mail"]["text"]
    assert "--probe-to" in found["trip mail"]["todo"]
    await no_trace(stack)
    done, found = await probe(stack, "--probe-to", "ada@staging.example.com", ONLY_TO="*@staging.example.com")
    assert (done.code, found["trip inbox"]["verdict"]) == (0, "ok"), found


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


async def test_a_doctor_who_is_interrupted_erases_as_well(stack: Stack) -> None:
    """Ctrl-C while the mail is waited for."""
    import asyncio
    import sys

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
    doctor.send_signal(signal.SIGINT)
    assert await asyncio.wait_for(doctor.wait(), 30) != 0
    await no_trace(stack)


async def test_a_worker_that_froze_with_the_mail_in_hand_is_named(stack: Stack) -> None:
    await stack.start_all(FAILPOINTS="worker.after_claim=freeze", CLAIM_TTL_S="30")
    done, found = await probe(stack, CLAIM_TTL_S="30")
    assert (done.code, found["trip mail"]["verdict"]) == (1, "failed")
    assert "was claimed by" in found["trip mail"]["text"]
    assert "that worker has not been heard of for 15 s" in found["trip mail"]["text"]
    [left] = await stack.rows("SELECT email, name, erased_at IS NOT NULL AS erased FROM users")
    assert (left["email"], left["name"], left["erased"]) == (None, None, True)
