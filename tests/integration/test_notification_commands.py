"""`notifier notifications`: read and acted on through a real API, by the real command line."""

from __future__ import annotations

import asyncio
import os
import pty
import re
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from aiohttp import web

from notifier import cli
from tests.support.api import Api
from tests.support.command import Command, beside, in_front_of, url_of

EARLIER = timedelta(minutes=10, seconds=30)  # half a minute from where its distance would be told otherwise


@pytest.fixture
def notifier(api: Api, tmp_path: Path) -> Command:
    return beside(api, tmp_path)


async def test_a_listing_has_filters_pages_and_words_for_people(api: Api, notifier: Command) -> None:
    for number in range(3):
        await api.signup(f"u_{number}", ago=EARLIER)
    await api.login("u_1")
    of_user, canceled, kind, some, every, none = await asyncio.gather(
        notifier("notifications", "list", "--user", "u_1", "--json"),
        notifier("notifications", "list", "--state", "canceled", "--json"),
        notifier("notifications", "list", "--kind", "followup"),
        notifier("notifications", "list", "--limit", "4"),
        notifier("notifications", "list", "--all", "--json"),
        notifier("notifications", "list", "--user", "nobody"),
    )
    assert {(row["user_id"], row["kind"]) for row in of_user.lines} == {("u_1", "onboarding"), ("u_1", "followup")}
    [row] = canceled.lines
    assert (row["user_id"], row["reason"]) == ("u_1", "login")
    head, *rows = kind.out.splitlines()
    assert head.split() == ["state", "kind", "when", "user", "reason", "id"]
    assert [line.split()[0] for line in rows] == ["scheduled", "canceled", "scheduled"]
    assert "due in 2 d 23 h" in rows[0]
    assert len(some.out.splitlines()) == 1 + 4
    assert "--all shows them" in some.err
    everything = (await api.get("/v1/notifications")).body["notifications"]
    assert every.lines == everything
    assert [line.split()[-1] for line in some.out.splitlines()[1:]] == [row["id"] for row in everything[:4]]
    assert (none.code, none.out, none.err) == (0, "", "There are none.\n")


async def test_pages_are_followed_and_a_reader_may_have_enough(api: Api, notifier: Command) -> None:
    batch = [
        {"id": f"e{number}", "type": "user.signed_up", "user": {"id": f"u_{number}", "email": "ada@example.com"}}
        for number in range(600)
    ]
    assert (await api.ask("POST", "/v1/events/batch", json={"events": batch})).status == 207
    told = await notifier("notifications", "list", "--all", "--json")
    assert len({row["id"] for row in told.lines}) == len(told.lines) == 1_200
    argv = [sys.executable, "-m", "notifier", "notifications", "list", "--all"]
    script = '"$@" | head -n 2; echo "code ${PIPESTATUS[0]}"'
    process = await asyncio.create_subprocess_exec(
        "bash",
        "-c",
        script,
        "bash",
        *argv,
        cwd=notifier.folder,
        env=notifier.environ(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert len(out.splitlines()) == 3
    assert out.splitlines()[-1] == b"code 1"
    assert err == b""


async def test_nobody_reads_and_nothing_is_said(api: Api, notifier: Command) -> None:
    onboarding = (await api.signup())["onboarding"]
    for argv in (["show", onboarding, "--json"], ["list"]):
        unread, ours = os.pipe()
        os.close(unread)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "notifier", "notifications", *argv),
            cwd=notifier.folder,
            env=notifier.environ(),
            stdout=ours,
            stderr=subprocess.PIPE,
        )
        os.close(ours)
        _, err = await process.communicate()
        assert err == b""


async def test_distances_are_those_of_business_time(api: Api, notifier: Command) -> None:
    await api.signup(ago=EARLIER)
    await api.conn.execute("UPDATE installation SET clock_offset = interval '2 days'")
    await api.ask("PUT", "/v1/switches/pause", json={"owner": "ada", "reason": "a test", "ttl_s": 7_290})
    listed, shown, switches = await asyncio.gather(
        notifier("notifications", "list", "--kind", "followup"),
        notifier("notifications", "show", "--user", "u_1", "--kind", "followup"),
        notifier("switch", "list"),
    )
    assert "due in 23 h 49 min" in listed.out
    assert "(in 23 h 49 min)" in shown.out
    assert "in 2 h 1 min" in switches.out


async def test_one_is_shown_whole_with_what_to_do_next(api: Api, notifier: Command) -> None:
    uncertain = await api.bring_to("uncertain")
    await api.ask("PUT", "/v1/switches/pause:followup", json={"owner": "ada", "reason": "a typo", "ttl_s": 60})
    by_id, by_kind, document, nothing = await asyncio.gather(
        notifier("notifications", "show", uncertain),
        notifier("notifications", "show", "--user", "u_1", "--kind", "followup", "--timeline"),
        notifier("notifications", "show", "--user", "u_1", "--kind", "onboarding", "--timeline", "--json"),
        notifier("notifications", "show", "--user", "u_2", "--kind", "onboarding"),
    )
    key = (await api.read(uncertain)).body["provider_key"]
    for words in (
        "onboarding for user u_1: uncertain (timeout)",
        "ambiguous",
        f"Look for key {key} at the provider",
        f"notifier notifications resolve {uncertain} --sent --reason ",
    ):
        assert words in by_id.out
    for words in (
        "Held back by pause:followup",
        "(ada: a typo)",
        "notifier switch end pause:followup",
        "user.signed_up",
    ):
        assert words in by_kind.out
    timeline = document.json.pop("timeline")
    assert {entry["what"] for entry in timeline} >= {"event", "decision", "claim", "attempt"}
    assert document.json["id"] == uncertain
    assert nothing.code == 1
    assert "user 'u_2' has no notification of kind 'onboarding'" in nothing.err


async def test_cancel_and_retry_act_on_what_was_read(api: Api, notifier: Command) -> None:
    followup = (await api.signup())["followup"]
    canceled = await notifier("notifications", "cancel", "--user", "u_1", "--kind", "followup", "--reason", "asked to")
    assert canceled.code == 0
    assert canceled.out.startswith("Canceled: followup for user u_1 is canceled (operator).")
    again, stale = await asyncio.gather(
        notifier("notifications", "cancel", followup),
        notifier("notifications", "retry", followup, "--if-generation", "0"),
    )
    assert again.code == stale.code == 1
    assert again.err == (
        "notifier: nothing was done: it is canceled: only what is scheduled or pending can be canceled\n"
    )
    assert "it is at generation 1 and canceled now, not 0" in stale.err
    assert f"notifier notifications show {followup}" in stale.err
    retried = await notifier("notifications", "retry", followup, "--if-generation", "1", "--json")
    assert (retried.json["state"], retried.json["generation"]) == ("scheduled", 2)
    [_, entry] = (await api.get("/v1/audit")).body["audit"]
    assert (entry["act"], entry["detail"]["reason"]) == ("cancel", "asked to")


async def test_who_reads_and_is_overtaken_is_told_and_nothing_is_done(api: Api, notifier: Command) -> None:
    onboarding = await api.bring_to("pending")

    async def claim_before_the_act(request: web.Request) -> None:
        if request.method == "POST":
            await api.claim()

    async with in_front_of(api, claim_before_the_act) as url:
        done = await notifier("notifications", "cancel", onboarding, API_URL=url)
    assert done.code == 1
    assert "nothing was done: it is at generation 1 and sending now, not 0. It moved" in done.err
    assert await api.state(onboarding) == "sending"


async def test_resolve_says_what_a_person_found(api: Api, notifier: Command) -> None:
    first, second = await api.bring_to("uncertain", "u_1"), await api.bring_to("uncertain", "u_2")
    sent, unasked, wrong = await asyncio.gather(
        notifier("notifications", "resolve", first, "--sent", "--reason", "in their log"),
        notifier("notifications", "resolve", second, "--not-sent", "--reason", "not in their log"),
        notifier("notifications", "resolve", second, "--sent", "--not-sent", "--reason", "?"),
    )
    assert sent.out.startswith("Resolved: onboarding for user u_1 is sent.")
    assert unasked.code == wrong.code == 2
    assert "--yes" in unasked.err
    assert await api.state(second) == "uncertain"
    again = await notifier("notifications", "resolve", second, "--not-sent", "--reason", "not there", "--yes", "--json")
    assert (again.json["state"], again.json["resend_number"]) == ("pending", 1)


async def on_a_terminal(notifier: Command, answer: bytes, *argv: str) -> tuple[int, str]:
    """Run a command on a terminal of 80 columns, and type an answer."""
    ours, theirs = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "notifier", *argv),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=notifier.folder,
        env=notifier.environ() | {"COLUMNS": "80", "TERM": "xterm", "NO_COLOR": "1"},
    )
    os.close(theirs)
    os.write(ours, answer)
    said = b""
    loop = asyncio.get_running_loop()
    try:
        while part := await loop.run_in_executor(None, os.read, ours, 65_536):
            said += part
    except OSError:  # the other end is closed
        pass
    finally:
        os.close(ours)
    return await process.wait(), said.decode().replace("\r\n", "\n")


async def test_before_a_second_key_a_person_is_asked(api: Api, notifier: Command) -> None:
    uncertain = await api.bring_to("uncertain")
    argv = ("notifications", "resolve", uncertain, "--not-sent", "--reason", "not there")
    code, said = await on_a_terminal(notifier, b"n\n", *argv)
    assert code == 1
    for words in ("the person will get this mail twice", "Send it again under a new key? [y/N]", "Nothing was done."):
        assert words in said
    assert await api.state(uncertain) == "uncertain"
    code, said = await on_a_terminal(notifier, b"y\n", *argv)
    assert code == 0
    assert "is pending" in said


async def test_a_narrow_terminal_folds_and_cuts_nothing_and_no_colour_is_respected(api: Api, notifier: Command) -> None:
    name = "a-user-with-a-rather-long-name-that-fills-a-line"
    made = await api.signup(name)
    code, said = await on_a_terminal(notifier, b"", "notifications", "list")
    assert code == 0
    assert re.search(r"\x1b\[[0-9;]*3[0-9]", said) is None
    said = re.sub(r"\x1b\[[0-9;]*m", "", said)
    assert max(len(line) for line in said.splitlines()) <= 80
    assert all(identity in said for identity in made.values())
    assert said.count(name) == 2


@pytest.mark.parametrize(
    "argv",
    [
        ["show"],
        ["show", "--user", "u_1"],
        ["cancel", "01a228e6-0f2f-700f-95d9-77836800e415", "--kind", "onboarding"],
        ["list", "--state", "snet"],
        ["resolve", "01a228e6-0f2f-700f-95d9-77836800e415", "--reason", "x"],
    ],
)
def test_what_cannot_be_meant_is_exit_code_2(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.app(["notifications", *argv], prog_name="notifier")
    assert ended.value.code == 2
    assert capsys.readouterr().out == ""


async def test_whoever_may_not_or_cannot_is_told_what_to_set(api: Api, notifier: Command, tmp_path: Path) -> None:
    async def no_api(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 2\r\n\r\nhi")
        writer.close()

    async def hangs_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.close()

    other = await asyncio.start_server(no_api, "127.0.0.1", 0)
    broken = await asyncio.start_server(hangs_up, "127.0.0.1", 0)
    ports = [server.sockets[0].getsockname()[1] for server in (other, broken)]
    async with other, broken:
        nobody, wrong_key, forbidden, unknown, no_key, no_notifier, no_answer = await asyncio.gather(
            notifier("notifications", "list", API_URL="http://127.0.0.1:9"),
            notifier("notifications", "list", API_KEY="wrong"),
            notifier("notifications", "list", API_KEY="k-events"),
            notifier("notifications", "show", "nonsense"),
            Command(tmp_path, {"API_URL": url_of(api)})("switch", "list"),
            notifier("notifications", "list", API_URL=f"http://127.0.0.1:{ports[0]}"),
            notifier("switch", "end", "pause", API_URL=f"http://127.0.0.1:{ports[1]}"),
        )
    assert nobody.err.startswith(
        "notifier: no API answers at http://127.0.0.1:9 (NOTIFIER_API_URL): Connection refused"
    )
    assert len(nobody.err.splitlines()) == 1
    assert "does not know this key (NOTIFIER_API_KEY)" in wrong_key.err
    assert "lacks the scope 'read': set NOTIFIER_API_KEY" in forbidden.err
    assert unknown.err == "notifier: there is no notification 'nonsense'\n"
    assert "no API key: set NOTIFIER_API_KEY to one with the scope 'read'" in no_key.err
    assert "is no notifier API (status 200, text/html)" in no_notifier.err
    assert "it may have been done all the same" in no_answer.err
    codes = [done.code for done in (nobody, wrong_key, forbidden, unknown, no_key, no_notifier, no_answer)]
    assert codes == [1, 1, 1, 1, 2, 1, 1]


async def test_beside_a_run_nothing_has_to_be_set(api: Api, tmp_path: Path) -> None:
    home = tmp_path / ".notifier"
    (home / "run").mkdir(parents=True)
    (home / "api_key").write_text("k-all\n")
    address = url_of(api).replace("127.0.0.1", "0.0.0.0")
    (home / "run" / "api.json").write_text(f'{{"pid": {os.getpid()}, "url": "{address}"}}')
    await api.signup()
    bare = Command(tmp_path, {})
    assert len((await bare("notifications", "list", "--json")).lines) == 2
    (home / "run" / "api.json").write_text(f'{{"pid": 999999999, "url": "{address}"}}')  # of a run that is over
    gone, nameless = await asyncio.gather(
        bare("switch", "list", API_PORT="9"),
        bare("switch", "list", API_PORT="0"),
    )
    assert "no API answers at http://127.0.0.1:9 (from NOTIFIER_HOST and NOTIFIER_API_PORT)" in gone.err
    assert "name it with NOTIFIER_API_URL" in nameless.err
    (home / "api_key").unlink()
    keys = '{"k-events": ["events"], "k-read": ["read"]}'
    assert len((await bare("notifications", "list", "--json", API_URL=url_of(api), API_KEYS=keys)).lines) == 2
