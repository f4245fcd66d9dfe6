"""The mock over SMTP: mails, keys, who sends them, faults at every stage, and clients that leave."""

from __future__ import annotations

import asyncio
import contextlib
import email.policy
import json
import logging
import smtplib
import socket
import sqlite3
import threading
import time
from collections.abc import AsyncIterator
from email.message import EmailMessage
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiosmtplib
import pytest

from providers.mock import letter, smtp, smtp_session
from providers.mock.desk import Desk
from providers.mock.faults import Dials, Faults
from providers.mock.ledger import Ledger
from providers.mock.stream import Hub
from tests.support.mock_server import Mock, running_mock, until
from tests.support.smtp_client import LETTER, Talk, talking
from tests.support.stack import open_stack

BODY = {"from": "a@example.com", "to": ["b@example.com"], "subject": "Hi", "html": "<p>Hi</p>", "text": "Hi"}
TAKEN = "250 2.0.0 Ok: queued as "


@pytest.fixture
async def mock(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> AsyncIterator[Mock]:
    """A mock that has nothing to complain of, whatever its clients do."""
    async with running_mock(tmp_path) as running:
        yield running
    assert [record for record in caplog.get_records("call") if record.levelno >= logging.WARNING] == []


@pytest.fixture
async def talk(mock: Mock) -> AsyncIterator[Talk]:
    """A client that has said hello."""
    async with talking(mock.smtp) as one:
        await one.hello()
        yield one


def a_mail(**headers: str) -> EmailMessage:
    mail = EmailMessage(policy=email.policy.SMTP)
    fields = {"From": "Nötifier <hello@example.com>", "To": "ada@example.com", "Subject": "Grüße, Ada", **headers}
    for name, value in fields.items():
        mail[name] = value
    mail.set_content("Grüße\n\n.\n..und Punkte\n")
    mail.add_alternative("<p>Grüße</p>\n", subtype="html")
    return mail


def keyed(key: str, letter: bytes = LETTER) -> bytes:
    return f"Resend-Idempotency-Key: {key}\r\n".encode() + letter


async def attempts(mock: Mock) -> list[dict[str, Any]]:
    """What became of each transaction, oldest first."""
    found: list[dict[str, Any]] = (await mock.get("/api/attempts"))["attempts"]
    return found[::-1]


async def outcomes(mock: Mock) -> list[tuple[str, int | None, bool]]:
    return [(attempt["verdict"], attempt["status"], attempt["answered"]) for attempt in await attempts(mock)]


async def raw(mock: Mock, message_id: str) -> bytes:
    async with mock.http.get(f"{mock.url}/api/messages/{message_id}/raw") as answer:
        return await answer.read()


# Mails


async def test_a_mail_of_two_parts_arrives_whole(mock: Mock) -> None:
    sent = a_mail(**{"X-Thing": "one"}).as_bytes()
    address = urlsplit(mock.smtp)

    def send() -> None:
        with smtplib.SMTP(str(address.hostname), int(address.port or 0), timeout=10) as client:
            client.login("anybody", "anything")
            client.sendmail("bounce@example.com", ["ada@example.com", "bob@example.com"], sent)

    await asyncio.to_thread(send)
    [line] = await mock.inbox()
    assert (line["from"], line["to"]) == ("Nötifier <hello@example.com>", ["ada@example.com", "bob@example.com"])
    assert (line["subject"], line["transport"], line["key"]) == ("Grüße, Ada", "smtp", None)
    detail = await mock.get(f"/api/messages/{line['id']}")
    assert detail["text"] == "Grüße\n\n.\n..und Punkte\n"
    assert detail["html"] == "<p>Grüße</p>\n"
    assert detail["headers"]["X-Thing"] == "one"
    assert await raw(mock, line["id"]) == sent
    [attempt] = await attempts(mock)
    assert (attempt["verdict"], attempt["status"], attempt["message_id"]) == ("accepted", 250, line["id"])
    assert attempt["to"] == line["to"]


async def test_bytes_beyond_ascii_stay_as_they_are(mock: Mock) -> None:
    mail = EmailMessage(policy=email.policy.SMTPUTF8)
    mail["From"], mail["To"], mail["Subject"] = "jürgen@exämple.com", "ada@exämple.com", "Grüße"
    mail.set_content("Grüße\n", cte="8bit")
    address = urlsplit(mock.smtp)
    async with aiosmtplib.SMTP(hostname=address.hostname, port=address.port, timeout=10) as client:
        assert client.supports_extension("smtputf8")
        await client.sendmail(
            "jürgen@exämple.com", ["ada@exämple.com"], mail.as_bytes(), mail_options=["SMTPUTF8", "BODY=8BITMIME"]
        )
    [line] = await mock.inbox()
    assert (line["from"], line["to"], line["subject"]) == ("jürgen@exämple.com", ["ada@exämple.com"], "Grüße")
    assert await raw(mock, line["id"]) == mail.as_bytes()
    assert (await mock.get("/api/messages", q="to:@exämple.com"))["total"] == 1


@pytest.mark.parametrize(
    "letter",
    [
        b"",
        b"\r\n",
        b"no header at all\r\n",
        b"Subject: x\r\nContent-Type: text/plain; charset=nobody-knows\r\n\r\n\xff\xfe\r\n",
        b"Subject: x\r\nContent-Type: multipart/mixed\r\n\r\nno boundary\r\n",
        b"Subject: \xff\x00 =?utf-8?b?!!!?=\r\nFrom: <<>>,,\r\nTo: (((\r\n\r\n\x00\r\n",
        b"Content-Transfer-Encoding: base64\r\n\r\n%%%\r\n",
        b"".join(b"Content-Type: multipart/mixed; boundary=b%d\r\n\r\n--b%d\r\n" % (n, n) for n in range(2_000)),
        b"Content-Type: text/plain" + b";\r\n a=b" * 30_000 + b"\r\n\r\nx\r\n",
    ],
)
async def test_a_mail_nobody_can_read_is_taken_and_shown(mock: Mock, talk: Talk, letter: bytes) -> None:
    answer = await talk.send(letter)
    assert answer.startswith(TAKEN)
    message_id = answer.removeprefix(TAKEN)
    assert await raw(mock, message_id) == letter
    assert (await mock.get(f"/api/messages/{message_id}"))["from"]
    async with mock.http.get(f"{mock.url}/messages/{message_id}") as page:
        assert page.status == 200


async def test_a_header_that_repeats_is_kept_each_time(mock: Mock, talk: Talk) -> None:
    answer = await talk.send(b"Received: one;\r\n folded\r\nreceived: two\r\n" + LETTER)
    headers = (await mock.get(f"/api/messages/{answer.removeprefix(TAKEN)}"))["headers"]
    assert headers["Received"] == "one; folded\ntwo"


async def test_several_mails_to_a_session_and_an_emptied_inbox(mock: Mock, talk: Talk, tmp_path: Path) -> None:
    ids = [(await talk.send()).removeprefix(TAKEN) for _ in range(3)]
    assert [line["id"] for line in await mock.inbox()] == ids[::-1]
    assert await mock.delete("/api/messages") == 200
    async with mock.http.get(f"{mock.url}/api/messages/{ids[0]}/raw") as answer:
        assert answer.status == 404
    with contextlib.closing(sqlite3.connect(tmp_path / "mock.sqlite3")) as file:
        assert file.execute("SELECT count(*) FROM sources").fetchone() == (0,)


async def test_a_mail_outlives_a_restart(tmp_path: Path) -> None:
    async with running_mock(tmp_path) as mock, talking(mock.smtp) as talk:
        await talk.hello()
        message_id = (await talk.send()).removeprefix(TAKEN)
    async with running_mock(tmp_path) as mock:
        assert await raw(mock, message_id) == LETTER


async def test_watchers_and_metrics_hear_of_it(mock: Mock) -> None:
    async with mock.http.get(f"{mock.url}/api/stream") as stream, talking(mock.smtp) as talk:
        assert await stream.content.readuntil(b"\n\n") == b": hello\n\n"
        await talk.hello()
        await talk.begin()
        await talk.say("RSET")
        await talk.send()
        assert b"event: attempt" in await stream.content.readuntil(b"\n\n")
        assert b'"transport":"smtp"' in await stream.content.readuntil(b"\n\n")
    async with mock.http.get(f"{mock.url}/metrics") as answer:
        metrics = await answer.text()
    assert 'mock_calls_total{verdict="accepted"} 1.0' in metrics
    assert 'mock_calls_total{verdict="reset"} 1.0' in metrics


# Commands


async def test_it_says_what_it_can(mock: Mock) -> None:
    async with talking(mock.smtp) as talk:
        lines = (await talk.hello()).splitlines()
    assert {line[4:] for line in lines[1:]} == {
        "SIZE 8388608",
        "8BITMIME",
        "SMTPUTF8",
        "ENHANCEDSTATUSCODES",
        "AUTH LOGIN PLAIN",
        "XNOTIFIER",
        "HELP",
    }


@pytest.mark.parametrize(
    ("said", "heard"),
    [
        ("NOOP", "250 2.0.0 "),
        ("RSET", "250 2.0.0 "),
        ("NONSENSE", "500 5.5.2 "),
        ("", "500 5.5.2 "),
        ("RCPT TO:<a@b.c>", "503 5.5.1 "),
        ("DATA", "503 5.5.1 "),
        ("MAIL FROM:<a@b.c> SIZE=9000000", "552 5.3.4 "),
        ("MAIL FROM:<a@b.c> SIZE=8000000", "250 2.1.0 "),
        ("MAIL FROM:<", "553 5.1.3 "),
        ("MAIL FROM:<a@b.c> NOPE=1", "555 5.5.4 "),
        ("VRFY a@b.c", "252 2.5.0 "),
        (b"VRFY \xff\r\n", "252 2.5.0 "),
        ("AUTH PLAIN AGEAYg==", "235 2.7.0 "),
        ("AUTH NTLM", "504 5.5.4 "),
        ("EHLO", "501 5.5.4 "),
        ("HELO again", "250 mock.invalid"),
        ("QUIT", "221 2.0.0 "),
        ("NOOP " + "x" * 10_000, "500 5.5.2 "),
    ],
)
async def test_answers_carry_codes(talk: Talk, said: str | bytes, heard: str) -> None:
    assert (await talk.say(said)).startswith(heard)


async def test_a_login_without_end_is_refused(talk: Talk) -> None:
    assert (await talk.say("AUTH PLAIN")).startswith("334 ")
    assert (await talk.say("x" * 10_000)).startswith("500 5.5.6 ")


async def test_too_much_is_refused_and_the_session_goes_on(mock: Mock, talk: Talk) -> None:
    assert (await talk.send(b"x" * 998 + b"\r\n")).startswith(TAKEN)
    assert (await talk.send(b"x" * 1_200 + b"\r\n")).startswith("500 5.5.2 ")
    assert (await talk.send(b"x" * 50_000 + b"\r\n")).startswith("500 5.5.2 ")
    assert (await talk.send((b"x" * 998 + b"\r\n") * 8_500)).startswith("552 5.3.4 ")
    await talk.say("MAIL FROM:<a@example.com>")
    for number in range(100):
        assert (await talk.say(f"RCPT TO:<u{number}@example.com>")).startswith("250 2.1.5 ")
    assert (await talk.say("RCPT TO:<one-too-many@example.com>")).startswith("452 4.5.3 ")
    await talk.say("DATA")
    assert (await talk.say(LETTER + b".\r\n")).startswith(TAKEN)
    assert [len(line["to"]) for line in await mock.inbox()] == [100, 1]
    assert [verdict for verdict, *_ in await outcomes(mock)] == ["accepted", *["rejected"] * 3, "accepted"]


async def test_only_so_many_sessions(mock: Mock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smtp, "SESSIONS_MAX", 1)
    async with talking(mock.smtp) as first:
        await first.hello()
        async with talking(mock.smtp) as second:
            assert (await second.hear()).startswith("421 4.3.2 ")
            assert await second.hear() == ""
        assert (await first.say("NOOP")).startswith("250 ")


async def test_an_idle_session_ends(mock: Mock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smtp_session, "IDLE_S", 0.2)
    async with talking(mock.smtp) as talk:
        await talk.hello()
        assert await talk.hear() == ""
        await mock.faults(latency_ms=[500, 500])
    async with talking(mock.smtp) as talk:
        await talk.hello()
        assert (await talk.send()).startswith(TAKEN)  # the mock's own slowness is not the client's


# Who sends it


async def test_a_client_says_who_sends_the_next_mail_only(mock: Mock, talk: Talk) -> None:
    introduction = "XNOTIFIER key=k%201 worker=w-1 generation=3 user=u%201%20%25%20%C3%BC kind=weekly@2026-W48"
    assert await talk.say(introduction) == "250 2.0.0 Ok"
    await talk.send()
    await talk.send()
    second, first = await mock.inbox()
    assert [first[name] for name in ("key", "worker", "generation", "user", "kind")] == [
        "k 1",
        "w-1",
        3,
        "u 1 % ü",
        "weekly@2026-W48",
    ]
    assert {second[name] for name in ("key", "worker", "generation", "user", "kind")} == {None}
    attempt = (await attempts(mock))[0]
    assert [attempt[name] for name in ("key", "worker", "generation", "user")] == ["k 1", "w-1", 3, "u 1 % ü"]
    assert await mock.verdicts("k 1") == ["accepted"]


async def test_its_key_is_none_to_compare_by(mock: Mock, talk: Talk) -> None:
    for _ in range(2):
        await talk.say("XNOTIFIER key=k")
        assert (await talk.send()).startswith(TAKEN)
    assert await mock.verdicts("k") == ["accepted", "accepted"]
    assert len(await mock.inbox()) == 2


@pytest.mark.parametrize("forgetting", ["RSET", "EHLO again", "HELO again"])
async def test_who_sends_it_is_forgotten(mock: Mock, talk: Talk, forgetting: str) -> None:
    await talk.say("XNOTIFIER user=u1")
    await talk.say(forgetting)
    await talk.send()
    [line] = await mock.inbox()
    assert line["user"] is None


async def test_the_longest_introduction_fits(mock: Mock, talk: Talk) -> None:
    user = "😀" * 255
    said = f"XNOTIFIER key={'k' * 256} user={'%F0%9F%98%80' * 255} worker={'w' * 64} kind={'k' * 64} generation=7"
    assert await talk.say(said) == "250 2.0.0 Ok"
    await talk.send()
    [line] = await mock.inbox()
    assert line["user"] == user


@pytest.mark.parametrize(
    "said", ["", "user", "user=", "user=%zz", "user=a user=b", "name=a", "generation=x", "user=a  kind=b", "user=ü"]
)
async def test_an_introduction_that_makes_no_sense(talk: Talk, said: str) -> None:
    assert (await talk.say(f"XNOTIFIER {said}")).startswith("501 5.5.4 ")


async def test_an_introduction_out_of_place(mock: Mock, talk: Talk) -> None:
    await talk.begin()
    assert (await talk.say("XNOTIFIER user=u1")).startswith("503 5.5.1 ")
    async with talking(mock.smtp) as early:
        await early.hear()
        assert (await early.say("XNOTIFIER user=u1")).startswith("503 5.5.1 ")


# Keys


@pytest.mark.parametrize(("mode", "verdict"), [("reject", "duplicate"), ("replay", "replayed"), ("drop", "dropped")])
async def test_a_key_is_taken_once(mock: Mock, talk: Talk, mode: str, verdict: str) -> None:
    await mock.faults(duplicate_mode=mode)
    answers = [await talk.send(keyed("k")), await talk.send(keyed("k", LETTER.replace(b"<1@", b"<2@")))]
    assert all(answer.startswith(TAKEN) for answer in answers)
    assert (answers[0] == answers[1]) == (mode != "drop")
    assert [line["key"] for line in await mock.inbox()] == ["k"]
    assert [(seen[0], seen[1]) for seen in await outcomes(mock)] == [("accepted", 250), (verdict, 250)]
    assert [attempt["message_id"] for attempt in await attempts(mock)] == [a.removeprefix(TAKEN) for a in answers]


async def test_keys_do_not_count_in_mode_none_and_are_forgotten_in_time(mock: Mock, talk: Talk) -> None:
    await mock.faults(duplicate_mode="none")
    for _ in range(2):
        await talk.send(keyed("k"))
    await mock.faults(duplicate_mode="reject")
    for _ in range(2):
        await talk.send(keyed("k"))
    await mock.faults(key_ttl_s=0)
    await talk.send(keyed("k"))
    assert await mock.verdicts("k") == ["accepted", "accepted", "accepted", "duplicate", "accepted"]


@pytest.mark.parametrize("change", [(b"Hi Ada", b"Hi Bob"), (b"Subject: Hi", b"Subject: Ho")])
async def test_another_mail_under_a_key_is_refused(mock: Mock, talk: Talk, change: tuple[bytes, bytes]) -> None:
    await talk.send(keyed("k"))
    assert (await talk.send(keyed("k", LETTER.replace(*change)))).startswith("554 5.6.0 ")
    assert await outcomes(mock) == [("accepted", 250, True), ("body_mismatch", 554, True)]


async def test_a_key_is_the_same_whatever_makes_the_boundary(mock: Mock, talk: Talk) -> None:
    for _ in range(2):
        assert (await talk.send(keyed("k", a_mail().as_bytes()))).startswith(TAKEN)
    assert await mock.verdicts("k") == ["accepted", "duplicate"]


async def test_a_key_that_is_none_is_refused(mock: Mock, talk: Talk) -> None:
    assert (await talk.send(keyed("a b"))).startswith("550 5.5.4 ")
    assert (await talk.send(keyed("k", keyed("k")))).startswith("550 5.5.4 ")
    assert await outcomes(mock) == [("rejected", 550, True)] * 2


async def test_a_key_in_flight_is_in_flight_on_both_sides(mock: Mock, talk: Talk) -> None:
    await mock.faults(smtp_at="dot", smtp_does="silence", smtp_times=1)
    async with talking(mock.smtp) as first:
        await first.hello()
        await first.begin()
        await first.say("DATA")
        first.writer.write(keyed("k") + b".\r\n")
        await until(lambda: mock.verdicts("k"))
        assert (await talk.send(keyed("k"))).startswith("451 4.5.0 ")
        assert (await mock.post("/emails", BODY, "k"))[1]["name"] == "concurrent_idempotent_requests"
        assert await mock.verdicts("k") == ["hung", "in_flight", "in_flight"]

    async def free() -> bool:
        return (await talk.send(keyed("k"))).startswith(TAKEN)

    await until(free)  # as soon as it is seen that the first has left


# Faults


VERDICT = {"reply": ("failed", 451, True), "cut": ("reset", None, False), "silence": ("hung", None, False)}


async def come_to(talk: Talk, stage: str) -> str | None:
    """Go up to the stage and do what meets the fault; None where nothing is heard."""
    steps: dict[str, str | bytes] = {
        "connect": b"",
        "ehlo": "EHLO client",
        "mail": "MAIL FROM:<a@example.com>",
        "rcpt": "RCPT TO:<ada@example.com>",
        "data": "DATA",
        "dot": LETTER + b".\r\n",
    }
    last = {"body": "data", "after_dot": "dot"}.get(stage, stage)
    for name, said in steps.items():
        talk.writer.write(said if isinstance(said, bytes) else f"{said}\r\n".encode())
        if name == last:
            if stage == "body":
                assert (await talk.hear()).startswith("354 ")
            return None if await talk.is_silent() else await talk.hear()
        assert await talk.hear() != ""
    raise AssertionError(stage)


@pytest.mark.parametrize("does", ["cut", "silence"])
@pytest.mark.parametrize("stage", ["connect", "ehlo", "mail", "rcpt", "data", "body", "dot", "after_dot"])
async def test_a_session_is_cut_or_hears_nothing(mock: Mock, stage: str, does: str) -> None:
    await mock.faults(smtp_at=stage, smtp_does=does)
    async with talking(mock.smtp) as talk:
        heard = await come_to(talk, stage)
        assert heard == ("" if does == "cut" else None)
        taken = 1 if stage == "after_dot" else 0
        assert len(await mock.inbox()) == taken
        if stage in ("connect", "ehlo"):
            assert await attempts(mock) == []
        else:
            expected = ("accepted", None, False) if taken else VERDICT[does]
            assert await until(lambda: outcomes(mock)) == [expected]
    if stage in ("rcpt", "data", "body", "dot"):
        assert (await attempts(mock))[0]["to"] == ["ada@example.com"]


@pytest.mark.parametrize("stage", ["connect", "ehlo", "mail", "rcpt", "data", "dot", "after_dot"])
async def test_a_session_is_told_what_was_asked_for(mock: Mock, stage: str) -> None:
    await mock.faults(smtp_at=stage, smtp_does="reply", smtp_reply="451 later, perhaps")
    async with talking(mock.smtp) as talk:
        for name in ("", "EHLO client", "MAIL FROM:<a@example.com>", "RCPT TO:<ada@example.com>", "DATA", "."):
            if name:
                talk.writer.write(LETTER + b".\r\n" if name == "." else f"{name}\r\n".encode())
            if (heard := await talk.hear()).startswith("451"):
                break
        assert heard == "451 later, perhaps"
        assert (await talk.say("QUIT")).startswith("" if stage == "connect" else "221 2.0.0 ")
        assert await talk.hear() == ""
    assert len(await mock.inbox()) == (1 if stage == "after_dot" else 0)
    expected = [] if stage in ("connect", "ehlo") else [VERDICT["reply"]]
    if stage == "after_dot":
        expected = [("accepted", 451, True)]
    assert await outcomes(mock) == expected


async def test_a_session_goes_on_after_a_reply(mock: Mock, talk: Talk) -> None:
    for stage in ("mail", "rcpt", "data", "dot"):
        await mock.faults(smtp_at=stage, smtp_does="reply", smtp_reply="451 4.3.0 no", smtp_times=1)
        for said in ("MAIL FROM:<a@example.com>", "RCPT TO:<ada@example.com>", "DATA", LETTER + b".\r\n"):
            if (await talk.say(said)).startswith("451"):
                break
        await talk.say("RSET")
        assert (await talk.send()).startswith(TAKEN)
    assert await outcomes(mock) == [("failed", 451, True), ("accepted", 250, True)] * 4


async def test_421_closes_the_session(mock: Mock, talk: Talk) -> None:
    await mock.faults(smtp_at="mail", smtp_does="reply", smtp_reply="421 4.3.2 going away")
    assert await talk.say("MAIL FROM:<a@example.com>") == "421 4.3.2 going away"
    assert await talk.hear() == ""


async def test_a_fault_only_so_many_times(mock: Mock) -> None:
    async def heard() -> list[bool]:
        answers = []
        for _ in range(4):
            async with talking(mock.smtp) as talk:
                answers.append(bool(await talk.hear()))
        return answers

    await mock.faults(smtp_at="connect", smtp_times=2)
    assert await heard() == [False, False, True, True]
    await mock.faults(smtp_at="connect")
    assert await heard() == [False, False, True, True]
    await mock.faults(smtp_times=1)
    assert await heard() == [False, True, True, True]
    await mock.faults(smtp_rate=0.5, smtp_times=None, seed=3)
    assert len({tuple(await heard()) for _ in range(4)}) > 1
    await mock.delete("/api/faults")
    assert await heard() == [True] * 4


async def test_after_the_dot_a_repeat_under_the_key_is_known(mock: Mock) -> None:
    await mock.faults(smtp_at="after_dot")
    async with talking(mock.smtp) as talk:
        await talk.hello()
        assert await talk.send(keyed("k")) == ""
    async with talking(mock.smtp) as talk:
        await talk.hello()
        assert (await talk.send(keyed("k"))).startswith(TAKEN)
    assert await mock.verdicts("k") == ["accepted", "duplicate"]
    assert len(await mock.inbox()) == 1


async def test_a_repeat_does_not_use_up_what_is_meant_for_those_taken(mock: Mock, talk: Talk) -> None:
    await talk.send(keyed("k"))
    await mock.faults(smtp_at="after_dot", smtp_times=1)
    assert (await talk.send(keyed("k"))).startswith(TAKEN)
    assert await talk.send() == ""


async def test_an_address_is_turned_away_and_the_others_are_not(mock: Mock, talk: Talk) -> None:
    await mock.faults(reject_to=["*@bad.example"])
    await talk.say("MAIL FROM:<a@example.com>")
    assert (await talk.say("RCPT TO:<eve@bad.example>")).startswith("550 5.1.1 ")
    assert (await talk.say("DATA")).startswith("503 5.5.1 ")
    await talk.say("RSET")
    await talk.say("MAIL FROM:<a@example.com>")
    await talk.say("RCPT TO:<eve@bad.example>")
    await talk.say("RCPT TO:<ada@example.com>")
    await talk.say("DATA")
    assert (await talk.say(LETTER + b".\r\n")).startswith(TAKEN)
    first, second = await attempts(mock)
    assert (first["verdict"], first["status"], first["to"]) == ("rejected", 550, ["eve@bad.example"])
    assert (second["verdict"], second["status"], second["to"]) == ("accepted", 250, ["ada@example.com"])


async def test_latency_is_before_the_answer_to_the_dot(mock: Mock, talk: Talk) -> None:
    await mock.faults(latency_ms=[300, 300])
    await talk.begin()
    await talk.say("DATA")
    started = time.monotonic()
    assert (await talk.say(LETTER + b".\r\n")).startswith(TAKEN)
    assert time.monotonic() - started >= 0.3


# Clients that leave, and the end


@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize("steps", range(6))
async def test_who_leaves_before_the_dot_leaves_nothing(mock: Mock, steps: int, *, reset: bool) -> None:
    says = ["EHLO client", "MAIL FROM:<a@example.com>", "RCPT TO:<ada@example.com>", "DATA"]
    async with talking(mock.smtp) as talk:
        await talk.hear()
        for said in says[:steps]:
            await talk.say(said)
        if steps == 5:
            talk.writer.write(LETTER)
            await talk.writer.drain()
        await talk.hang_up(reset=reset)
    if steps >= 2:
        await until(lambda: attempts(mock))
        assert await outcomes(mock) == [("reset", None, False)]
    assert await mock.inbox() == []


async def test_who_leaves_after_the_dot_has_sent_it(mock: Mock, talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    come, read = threading.Event(), letter.read

    def seen(*args: Any) -> letter.Letter:
        come.set()
        return read(*args)

    monkeypatch.setattr(letter, "read", seen)
    await mock.faults(latency_ms=[200, 200])
    await talk.begin()
    await talk.say("DATA")
    talk.writer.write(LETTER + b".\r\n")
    await talk.writer.drain()
    assert await asyncio.to_thread(come.wait, 10)  # the dot has come, and the answer has not gone
    await talk.hang_up()
    await until(mock.inbox)
    assert await outcomes(mock) == [("accepted", 250, True)]


@pytest.mark.parametrize("said", ["RSET", "QUIT", "EHLO again"])
async def test_a_transaction_given_up_is_noted(mock: Mock, talk: Talk, said: str) -> None:
    await talk.begin()
    await talk.say(said)
    assert await outcomes(mock) == [("reset", 250, True)]


@pytest.mark.parametrize("faults", [{}, {"smtp_at": "dot", "smtp_does": "silence"}, {"latency_ms": [60_000, 60_000]}])
async def test_it_stops_under_open_sessions(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, faults: dict[str, object]
) -> None:
    async with contextlib.AsyncExitStack() as stack:
        async with running_mock(tmp_path) as mock:
            await mock.faults(**faults)
            idle, busy = [await stack.enter_async_context(talking(mock.smtp)) for _ in range(2)]
            await idle.hello()
            await busy.hello()
            await busy.begin()
            await busy.say("DATA")
            if faults:
                busy.writer.write(keyed("k") + b".\r\n")
                await busy.is_silent()
            started = time.monotonic()
        assert time.monotonic() - started < 2
        assert await idle.hear() == await busy.hear() == ""
    assert caplog.records == []
    async with running_mock(tmp_path) as mock:
        assert await mock.inbox() == []
        assert [attempt["verdict"] for attempt in await attempts(mock)] in (["reset"], ["hung"])


async def test_its_end_waits_for_what_is_being_noted(tmp_path: Path) -> None:
    ledger, verdicts = Ledger(tmp_path), list[str]()
    async with contextlib.AsyncExitStack() as stack:
        async with smtp.listening("127.0.0.1", 0, Desk(ledger, Hub(), verdicts.append), Dials(Faults())) as address:
            talk = await stack.enter_async_context(talking(f"smtp://127.0.0.1:{address[1]}"))
            await talk.hello()
            await talk.begin()
        assert verdicts == ["reset"]
    ledger.close()


async def test_a_taken_port_is_refused(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=f"{port}.*address already in use"):
            async with running_mock(tmp_path, smtp_port=port):
                pass


async def test_the_process_says_where_and_stops_under_an_open_session(tmp_path: Path) -> None:
    async with open_stack(tmp_path, "", "") as stack:
        process = await stack.start("mock-provider")
        url = json.loads(process.ready_file.read_text())["smtp"]
        assert url.startswith("smtp://127.0.0.1:")
        async with talking(url) as talk:
            await talk.hello()
            await talk.begin()
            started = time.monotonic()
            assert await process.stop() == 0
            assert time.monotonic() - started < 2
            assert await talk.hear() == ""
        assert process.log.read_text() == ""
