"""The way out over SMTP against a mail server with TLS, logins, and manners of its own."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from providers.base import Accepted, Ambiguous, ConfigError, Family, Rejected, RetryLater
from providers.mail_server import MailServer
from providers.smtp import SmtpProvider
from tests.support.mail_server import PASSWORD, USER, Server, mail_server
from tests.support.mock_server import CONTEXT, MAIL

pytestmark = pytest.mark.filterwarnings(
    "ignore:Requiring AUTH while not requiring TLS:UserWarning", "ignore:.*login_data.*:DeprecationWarning"
)


@contextlib.asynccontextmanager
async def a_way_out(server: Server, timeout_s: float = 3, **options: Any) -> AsyncIterator[SmtpProvider]:
    provider = SmtpProvider(
        MailServer("localhost", server.port, **{"protection": "none", "ca_file": server.ca_file, **options}),
        timeout_s=timeout_s,
    )
    try:
        yield provider
    finally:
        await provider.close()


@pytest.mark.parametrize("protection", ["none", "starttls", "tls"])
@pytest.mark.parametrize("login", [False, True])
async def test_mails_go_over_one_kept_connection(tmp_path: Path, protection: str, login: bool) -> None:
    who = {"username": USER, "password": PASSWORD} if login else {}
    async with (
        mail_server(tmp_path, protection=protection, login=login) as server,
        a_way_out(server, protection=protection, **who) as provider,
    ):
        assert [await provider.send(MAIL, f"k{number}", CONTEXT) for number in range(3)] == [
            Accepted("M1"),
            Accepted("M2"),
            Accepted("M3"),
        ]
        assert (len(server.connections), server.logins) == (1, login)
        assert [envelope.rcpt_tos for envelope in server.taken] == [["ada@example.com"]] * 3


async def test_each_call_has_a_connection_of_its_own(tmp_path: Path) -> None:
    async with mail_server(tmp_path) as server, a_way_out(server) as provider:
        outcomes = await asyncio.gather(*(provider.send(MAIL, f"k{number}", CONTEXT) for number in range(8)))
        assert all(isinstance(outcome, Accepted) for outcome in outcomes)
        assert len(server.connections) == 8


async def test_a_repeat_is_the_same_mail_byte_for_byte(tmp_path: Path) -> None:
    async with mail_server(tmp_path) as server, a_way_out(server) as provider, a_way_out(server) as another:
        await provider.send(MAIL, "k1", CONTEXT)
        await another.send(MAIL, "k1", {**CONTEXT, "generation": "4"})
        first, second = (envelope.original_content for envelope in server.taken)
        assert first == second
        assert b"Message-ID: <k1@example.com>" in first


async def test_a_kept_connection_that_was_closed_meanwhile_costs_nothing(tmp_path: Path) -> None:
    async with mail_server(tmp_path) as server, a_way_out(server) as provider:
        assert isinstance(await provider.send(MAIL, "k1", CONTEXT), Accepted)
        server.hang_up()
        assert isinstance(await provider.send(MAIL, "k2", CONTEXT), Accepted)
        assert len(server.connections) == 2


async def test_a_wrong_password_is_for_the_operator(tmp_path: Path) -> None:
    async with (
        mail_server(tmp_path, login=True) as server,
        a_way_out(server, username=USER, password="wrong") as provider,
    ):
        assert await provider.send(MAIL, "k1", CONTEXT) == ConfigError("smtp_login_535_5.7.8")
        assert server.taken == []


async def test_a_missing_login_is_for_the_operator(tmp_path: Path) -> None:
    async with mail_server(tmp_path, login=True) as server, a_way_out(server) as provider:
        assert await provider.send(MAIL, "k1", CONTEXT) == ConfigError("smtp_mail_530_5.7.0")


async def test_nothing_is_sent_in_clear_to_a_server_without_starttls(tmp_path: Path) -> None:
    async with mail_server(tmp_path) as server, a_way_out(server, protection="starttls") as provider:
        assert await provider.send(MAIL, "k1", CONTEXT) == ConfigError("smtp_starttls_unsupported")
        assert server.taken == []


@pytest.mark.parametrize("protection", ["starttls", "tls"])
async def test_a_certificate_nobody_vouches_for_is_not_spoken_to(tmp_path: Path, protection: str) -> None:
    async with (
        mail_server(tmp_path, protection=protection) as server,
        a_way_out(server, protection=protection, ca_file=None) as provider,
    ):
        assert await provider.send(MAIL, "k1", CONTEXT) == RetryLater("tls_failed", answered=False)


async def test_a_server_can_be_tried_out_without_a_mail(tmp_path: Path) -> None:
    async with mail_server(tmp_path, protection="starttls", login=True) as server:
        who = {"protection": "starttls", "username": USER}
        async with a_way_out(server, password=PASSWORD, **who) as provider:
            assert await provider.try_out() is None
        async with a_way_out(server, password="wrong", **who) as provider:
            assert await provider.try_out() == ConfigError("smtp_login_535_5.7.8")
        assert server.taken == []


async def test_a_server_that_is_away_was_not_reached() -> None:
    provider = SmtpProvider(MailServer("127.0.0.1", 1, "none"), timeout_s=1)
    assert await provider.send(MAIL, "k1", CONTEXT) == RetryLater("connect_failed", answered=False)


async def test_a_foreign_local_part_needs_smtputf8(tmp_path: Path) -> None:
    foreign = MAIL._replace(to="zoë@example.com")
    async with mail_server(tmp_path) as server, a_way_out(server) as provider:
        assert await provider.send(foreign, "k1", CONTEXT) == Rejected("smtputf8_unsupported")
    async with mail_server(tmp_path, enable_SMTPUTF8=True) as server, a_way_out(server) as provider:
        assert isinstance(await provider.send(foreign, "k1", CONTEXT), Accepted)
        assert server.taken[0].rcpt_tos == ["zoë@example.com"]


async def test_a_sender_no_server_takes_is_for_the_operator(tmp_path: Path) -> None:
    ours = MAIL._replace(sender="Zoë <zoë@example.com>")
    async with mail_server(tmp_path) as server, a_way_out(server) as provider:
        assert await provider.send(ours, "k1", CONTEXT) == ConfigError("smtputf8_unsupported")


@pytest.mark.parametrize("step", ["mail", "rcpt", "dot"])
async def test_a_server_that_says_good_bye_is_asked_again_later(tmp_path: Path, step: str) -> None:
    async with mail_server(tmp_path) as server, a_way_out(server) as provider:
        server.refusals[step] = "421 4.3.2 shutting down"
        assert await provider.send(MAIL, "k1", CONTEXT) == RetryLater(f"smtp_{step}_421_4.3.2")
        assert await provider.send(MAIL, "k1", CONTEXT) == Accepted("M1")
        assert len(server.connections) == 2


async def test_a_kept_connection_that_says_good_bye_costs_nothing(tmp_path: Path) -> None:
    async with mail_server(tmp_path) as server, a_way_out(server) as provider:
        assert await provider.send(MAIL, "k1", CONTEXT) == Accepted("M1")
        server.refusals["mail"] = "421 4.4.2 you were idle"
        assert await provider.send(MAIL, "k2", CONTEXT) == Accepted("M2")


async def test_a_recipient_refused_leaves_the_connection_good(tmp_path: Path) -> None:
    async with mail_server(tmp_path) as server, a_way_out(server) as provider:
        server.refusals["rcpt"] = "550 5.1.1 nobody of that name"
        assert await provider.send(MAIL, "k1", CONTEXT) == Rejected("smtp_rcpt_550_5.1.1")
        assert await provider.send(MAIL, "k2", CONTEXT) == Accepted("M1")
        assert len(server.connections) == 1
        assert [envelope.rcpt_tos for envelope in server.taken] == [["ada@example.com"]]


async def test_nobody_but_the_mock_is_told_who_sends_what(tmp_path: Path) -> None:
    async with mail_server(tmp_path) as server, a_way_out(server) as provider:
        assert isinstance(await provider.send(MAIL, "k1", CONTEXT), Accepted)
        assert server.introductions == []
        assert b"onboarding" not in (server.taken[0].original_content or b"")


async def test_after_close_nothing_is_sent(tmp_path: Path) -> None:
    async with mail_server(tmp_path) as server, a_way_out(server) as provider:
        await provider.send(MAIL, "k1", CONTEXT)
        await provider.close()
        assert await provider.send(MAIL, "k2", CONTEXT) == RetryLater("client_closed", answered=False)
        assert len(server.taken) == 1


async def test_a_name_no_command_can_carry_is_for_the_operator(tmp_path: Path) -> None:
    async with mail_server(tmp_path) as server, a_way_out(server, hello_name="not a name") as provider:
        assert await provider.send(MAIL, "k1", CONTEXT) == ConfigError("smtp_settings_unusable")


async def test_a_mail_that_is_too_big_is_refused_and_the_next_goes(tmp_path: Path) -> None:
    async with mail_server(tmp_path, data_size_limit=10_000) as server, a_way_out(server) as provider:
        big = MAIL._replace(text="x" * 20_000)
        assert await provider.send(big, "k1", CONTEXT) == Rejected("smtp_mail_552"), "said before it is sent"
        assert isinstance(await provider.send(MAIL, "k2", CONTEXT), Accepted)


async def test_the_hand_over_comes_before_the_dot_and_after_the_rest(tmp_path: Path) -> None:
    """Whoever says no at that moment has sent nothing, however much was said before."""
    asked = []

    async def no() -> bool:
        asked.append(len(server.connections))
        return False

    async with mail_server(tmp_path) as server, a_way_out(server) as provider:
        assert await provider.send(MAIL, "k1", CONTEXT, no) is None
        assert asked == [1]
        assert isinstance(await provider.send(MAIL, "k2", CONTEXT), Accepted)
        assert [envelope.original_content.count(b"<k2@") for envelope in server.taken] == [1]


async def test_what_the_hooks_raise_is_the_callers(tmp_path: Path) -> None:
    async def broken() -> bool:
        raise ConnectionResetError("the database")

    async def broken_too() -> None:
        raise TimeoutError("the failpoint")

    async with mail_server(tmp_path) as server, a_way_out(server) as provider:
        with pytest.raises(ConnectionResetError, match="the database"):
            await provider.send(MAIL, "k1", CONTEXT, broken)
        with pytest.raises(TimeoutError, match="the failpoint"):
            await provider.send(MAIL, "k2", CONTEXT, written=broken_too)


async def test_a_connection_lost_while_we_begin_is_lost_before_the_dot(tmp_path: Path) -> None:
    async def slow() -> bool:
        server.hang_up()
        for _ in range(50):  # our own loop has to hear of it
            await asyncio.sleep(0)
        return True

    async with mail_server(tmp_path) as server, a_way_out(server) as provider:
        assert await provider.send(MAIL, "k1", CONTEXT, slow) == RetryLater("disconnected_at_dot", answered=False)
        assert server.taken == []


async def test_hand_overs_come_one_by_one(tmp_path: Path) -> None:
    """A process that dies between begin and dot leaves one mail in doubt, not as many as it has connections."""
    inside, most = 0, 0

    async def begin() -> bool:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        await asyncio.sleep(0.02)
        return True

    async def written() -> None:
        nonlocal inside
        inside -= 1

    async with mail_server(tmp_path) as server, a_way_out(server) as provider:
        await asyncio.gather(*(provider.send(MAIL, f"k{number}", CONTEXT, begin, written) for number in range(6)))
        assert len(server.taken) == 6
    assert most == 1


async def test_a_pause_after_the_dot_loses_no_answer(tmp_path: Path) -> None:
    async def written() -> None:
        await asyncio.sleep(0.3)  # the answer is there long before it is read

    async with mail_server(tmp_path) as server, a_way_out(server) as provider:
        assert await provider.send(MAIL, "k1", CONTEXT, written=written) == Accepted("M1")
        assert len(server.taken) == 1


async def test_a_slow_begin_does_not_eat_the_time_for_the_answer(tmp_path: Path) -> None:
    async def begin() -> bool:
        await asyncio.sleep(0.7)
        return True

    async def written() -> None:
        await asyncio.sleep(0.7)

    async with mail_server(tmp_path) as server, a_way_out(server, timeout_s=1) as provider:
        assert await provider.send(MAIL, "k1", CONTEXT, begin, written) == Accepted("M1")


async def test_silence_after_the_dot_is_a_doubt(tmp_path: Path) -> None:
    async with mail_server(tmp_path) as server, a_way_out(server, timeout_s=1.2) as provider:

        async def nothing(*_: Any) -> str:
            await asyncio.sleep(5)
            return "250 too late"

        server.handle_DATA = nothing
        assert await provider.send(MAIL, "k1", CONTEXT) == Ambiguous("timeout")


def test_an_account_is_a_server_and_a_login_and_whether_it_knows_keys() -> None:
    def account(**options: Any) -> str:
        return MailServer(**{"host": "mail.example", "port": 587, **options}).traits.account

    assert account() == account(password="another", host="Mail.Example")
    assert len({account(), account(port=25), account(host="other.example"), account(username="ada")}) == 4
    keyed = {"key_header": "Resend-Idempotency-Key", "key_window": timedelta(hours=1)}
    assert len({account(), account(**keyed), account(**{**keyed, "key_header": "X-EE-Idempotency-Key"})}) == 3
    assert account(key_header="X-Shown") == account(), "what is only shown is relied on by nobody"
    assert "secret" not in repr(MailServer("h", 25, password="secret"))


def test_a_key_that_is_only_shown_is_no_key_to_rely_on() -> None:
    assert MailServer("h", 25, key_header="X-Key").traits.family is Family.NONE
    traits = MailServer("h", 25, key_header="X-Key", key_window=timedelta(hours=1)).traits
    assert (traits.family, traits.window) == (Family.DROP, timedelta(hours=1))
