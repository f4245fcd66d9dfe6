"""Over SMTP, where no receiver knows our keys: nobody gets two mails, and only what was in hand is uncertain."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from notifier.embedded.process import free_port
from tests.support.postfix import WHY_NOT, a_postfix, is_here
from tests.support.stack import Stack, open_stack, until, users

CUT = ["connect", "ehlo", "mail", "rcpt", "data", "body", "dot", "after_dot"]  # in the order of a call
IN_DOUBT = {"dot", "after_dot"}


@asynccontextmanager
async def a_stack(folder: Path, database_url: str, redis_url: str, **settings: str) -> AsyncIterator[Stack]:
    """Everything but workers; the mock listens for SMTP. A provider that is no mock has real time only."""
    smtp = {"PROVIDER": "smtp", "CLOCK": "real", "SMTP_POOL_SIZE": "4", **settings}
    async with open_stack(folder, database_url, redis_url, **smtp) as stack:
        await stack.start_all(workers=0)
        yield stack


async def test_a_connection_cut_at_each_step_makes_no_second_mail(
    tmp_path: Path, database_url: str, redis_url: str
) -> None:
    """Cut before the dot is repeated until it is taken; cut after it is uncertain, whether it was taken or not."""
    async with a_stack(tmp_path, database_url, redis_url) as stack:
        worker = await stack.start("worker", "worker-1")
        sent, uncertain, taken = 0, 0, 0
        for step in CUT:
            if step == "body":  # a dot that is out before the cut is heard of is in doubt, so it waits for that here
                worker.signal(signal.SIGTERM)
                assert await worker.ended() == 0
                await stack.start("worker", "worker-2", FAILPOINTS="worker.before_send=pause:0.3*13")
            await stack.faults(smtp_at=step, smtp_does="cut", smtp_times=3)
            people = users(10, prefix=f"{step}-")
            await stack.signups(people)
            doubts = 3 if step in IN_DOUBT else 0
            sent, uncertain = sent + 10 - doubts, uncertain + doubts
            taken += 7 if step == "dot" else 10
            await stack.until_states(sent=sent, uncertain=uncertain)
            mails = await stack.mails()
            assert len(mails) == taken, step
            assert set(mails.values()) == {1}, step
        cuts = Counter(attempt["answered"] for attempt in await stack.attempts())
        assert cuts[False] >= 3 * len(CUT[2:]), "the mock did not cut what it was asked to"


@pytest.mark.parametrize("step", ["worker.after_begin", "worker.before_send", "worker.mid_send", "worker.after_send"])
async def test_a_worker_killed_around_the_dot_leaves_one_doubt(
    tmp_path: Path, database_url: str, redis_url: str, step: str
) -> None:
    async with a_stack(tmp_path, database_url, redis_url) as stack:
        # Several connections, but one at a time comes to the dot; once that is out, what waits for an answer counts.
        pool_size = "1" if step == "worker.after_send" else "4"
        victim = await stack.start("worker", "victim", FAILPOINTS=f"{step}=kill*1", SMTP_POOL_SIZE=pool_size)
        people = users(20)
        await stack.signups(people)
        assert await victim.ended() == -signal.SIGKILL
        await stack.start("worker", "good")
        await stack.until_states(sent=19, uncertain=1, scheduled=20)
        mails = await stack.mails()
        assert max(mails.values()) == 1
        assert len(mails) == (20 if step in ("worker.mid_send", "worker.after_send") else 19)
        [row] = await stack.rows("SELECT reason FROM settlements WHERE state = 'uncertain'")
        assert row["reason"] == "no_provider_key"


@pytest.mark.parametrize("step", ["worker.after_claim"])
async def test_a_worker_killed_before_begin_leaves_no_doubt(
    tmp_path: Path, database_url: str, redis_url: str, step: str
) -> None:
    async with a_stack(tmp_path, database_url, redis_url) as stack:
        victim = await stack.start("worker", "victim", FAILPOINTS=f"{step}=kill*1")
        good = await stack.start("worker", "good")
        good.signal(signal.SIGSTOP)  # until the other has fallen, for else it may take everything
        await stack.signups(users(20))
        assert await victim.ended() == -signal.SIGKILL
        good.signal(signal.SIGCONT)
        await stack.until_states(sent=20, scheduled=20)
        assert set((await stack.mails()).values()) == {1}


@pytest.mark.parametrize("step", ["worker.after_begin", "worker.before_send"])
async def test_a_frozen_worker_that_wakes_at_the_dot_makes_no_second_mail(
    tmp_path: Path, database_url: str, redis_url: str, step: str
) -> None:
    """Frozen before the last look it sends nothing any more; after it, it sends what nobody else may send."""
    async with a_stack(tmp_path, database_url, redis_url) as stack:
        sleeper = await stack.start("worker", "sleeper", FAILPOINTS=f"{step}=freeze*1")
        [person] = users(1)
        await stack.signup(person)
        await until(lambda: sleeper.is_frozen, "frozen")
        await stack.start("worker", "good")
        await stack.until_states(uncertain=1)
        sleeper.signal(signal.SIGCONT)
        await stack.signup(users(1)[0])
        if step == "worker.before_send":
            await stack.until_states(sent=2, uncertain=0)  # its late but certain answer is evidence
        else:
            await stack.until_states(sent=1, uncertain=1)
        assert (await stack.mails())[person, "onboarding"] == (step == "worker.before_send")


async def test_a_relay_that_knows_our_keys_is_asked_again(tmp_path: Path, database_url: str, redis_url: str) -> None:
    keyed = {"SMTP_KEY_HEADER": "Resend-Idempotency-Key", "SMTP_KEY_WINDOW_S": "3600"}
    async with a_stack(tmp_path, database_url, redis_url, **keyed) as stack:
        await stack.start("worker", "worker-1")
        await stack.faults(smtp_at="after_dot", smtp_does="cut", smtp_times=3)
        await stack.signups(users(10))
        await stack.until_states(sent=10)
        mails = await stack.mails()
        assert (len(mails), set(mails.values())) == (10, {1})
        assert sum(attempt["verdict"] == "duplicate" for attempt in await stack.attempts()) == 3


@pytest.mark.as_root
@pytest.mark.skipif(not is_here(), reason=WHY_NOT)
async def test_a_real_mail_server_gets_each_mail_once_and_whole(
    tmp_path: Path, database_url: str, redis_url: str
) -> None:
    async with (
        a_postfix(free_port()) as postfix,
        a_stack(tmp_path, database_url, redis_url, SMTP_HOST="127.0.0.1", SMTP_PORT=str(postfix.port)) as stack,
    ):
        await stack.start("worker", "worker-1")
        people = users(50)
        await stack.signups(people)
        await stack.until_states(sent=50, scheduled=50)
        await until(lambda: len(postfix.mails()) >= 50, "50 mails delivered")
        mails = postfix.mails()
        assert Counter(mail["To"] for mail in mails) == Counter(f"{person}@example.com" for person in people)
        assert len({mail["Message-ID"] for mail in mails}) == 50
        for mail in mails:
            assert mail["From"] == "Notifier <hello@example.com>"
            assert mail["Auto-Submitted"] == "auto-generated"
            assert [part.get_content_type() for part in mail.iter_parts()] == ["text/plain", "text/html"]
        rows = await stack.rows("SELECT provider_message_id AS id FROM settlements WHERE state = 'sent'")
        assert all(row["id"] for row in rows), "Postfix says how it calls each mail"
