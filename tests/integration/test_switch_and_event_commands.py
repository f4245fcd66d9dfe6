"""`notifier switch` and `notifier events`: by the real command line, through a real API."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from notifier import cli
from tests.support.api import Api
from tests.support.command import Command, beside, in_front_of


@pytest.fixture
def notifier(api: Api, tmp_path: Path) -> Command:
    return beside(api, tmp_path)


async def test_a_switch_is_set_shown_and_ended(api: Api, notifier: Command) -> None:
    argv = ("--for", "2h", "--owner", "ada", "--reason", "wrong link")
    on, misspelt, blank, unknown = await asyncio.gather(
        notifier("switch", "set", "pause:followup", *argv),
        notifier("switch", "set", "pause:folowup", *argv),
        notifier("switch", "set", "pause", "--ttl", "30m", "--owner", " ", "--reason", "x"),
        notifier("switch", "end", "maintenance"),
    )
    assert on.out.startswith("pause:followup is on until 20")
    for words in ("(in 2 h)", "ada: wrong link", "notifier switch end pause:followup"):
        assert words in on.out
    assert (misspelt.code, blank.code, unknown.code) == (1, 1, 1)
    assert "did you mean 'followup'?" in misspelt.err
    assert blank.err == "notifier: /owner: must not be blank\n"
    assert unknown.err == "notifier: the switch maintenance is not on\n"
    listed, shown, document = await asyncio.gather(
        notifier("switch", "list"),
        notifier("switch", "show", "pause:followup", "--json"),
        notifier("switch", "list", "--json"),
    )
    assert [line.split()[0] for line in listed.out.splitlines()] == ["switch", "pause:followup"]
    assert document.json["switches"] == [shown.json]
    assert (await notifier("switch", "end", "pause:followup")).out == "pause:followup is off.\n"
    assert (await api.get("/v1/switches")).body == {"switches": []}


@pytest.mark.parametrize("of", [["--for", "2"], ["--ttl", "soon"], ["--for", "31d"], ["--for", "0s"], []])
def test_a_switch_without_an_end_or_with_a_strange_one_is_exit_code_2(
    of: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.app(["switch", "set", "pause", "--owner", "a", "--reason", "b", *of], prog_name="notifier")
    assert ended.value.code == 2
    assert "--for" in capsys.readouterr().err


async def test_one_event_is_made_of_options(api: Api, notifier: Command) -> None:
    of = ("events", "send", "user.signed_up", "--user", "u_1", "--email", "ada@example.com", "--id", "evt_x")
    first = await notifier(*of, "--name", "Ada", "--attribute", "plan=pro", "--attribute", "seats=3", "--data", "a=b=c")
    assert first.out.startswith("user.signed_up of user u_1 is taken. Its id: evt_x\n")
    assert [line.split()[:3] for line in first.out.splitlines()[2:]] == [
        ["created", "onboarding", "pending"],
        ["created", "followup", "scheduled"],
    ]
    user = (await api.get("/v1/users/u_1")).body
    assert (user["name"], user["attributes"]) == ("Ada", {"plan": "pro", "seats": 3})
    await api.claim()
    other, login, nothing, bad = await asyncio.gather(
        notifier(*of),
        notifier("events", "send", "user.logged_in", "--user", "u_1", "--json"),
        notifier("events", "send", "page.viewed", "--user", "u_1"),
        notifier("events", "send", "user.signed_up", "--user", "u_2", "--email", "nonsense"),
    )
    assert other.code == bad.code == 1
    assert "was used before for an event with other content" in other.err
    assert "/user/email: is not an address" in bad.err
    assert [item["kind"] for item in login.json["canceled"]] == ["followup"]
    assert login.json["event"]["id"].startswith("cli_")
    assert "nothing was created or canceled" in nothing.out


def signup(number: int, **fields: Any) -> dict[str, Any]:
    return {"type": "user.signed_up", "user": {"id": f"u_{number}", "email": "ada@example.com"}, **fields}


async def test_a_file_goes_in_batches_and_a_bad_line_harms_no_other(
    api: Api, notifier: Command, tmp_path: Path
) -> None:
    lines = [json.dumps(signup(number, id=f"e_{number}")) for number in range(1_100)]
    lines[1] = '{"id": "e_1", "type": "user.signed_up"'
    lines[2] = json.dumps(signup(2))
    lines[1_050] = json.dumps(signup(1_050, id="e_1050", data={"x": "y" * 300_000}))
    (tmp_path / "events.ndjson").write_bytes(b"\xef\xbb\xbf" + "\n\n".join(lines).encode())
    done = await notifier("events", "send", "--file", "events.ndjson")
    assert (done.code, done.out) == (1, "")
    first, second, *summary = done.err.splitlines()
    assert first.startswith("line 3: the body is not JSON")
    assert second == "line 2101: an event is at most 256 KiB"
    assert summary == [
        "1,100 events: 1,098 taken, 0 taken before, 2 refused.",
        "Notifications: 2,196 created, 0 canceled, 0 where it was too late.",
        "1 had no id and got one: sent again they would be new events.",
    ]
    logins = b'{"id": "l", "type": "user.logged_in", "user": {"id": "u_5"}}\n' * 2
    piped, missing, empty, both = await asyncio.gather(
        notifier("events", "send", "--file", "-", "--json", stdin=logins),
        notifier("events", "send", "--file", "no.ndjson"),
        notifier("events", "send", "--file", "-", stdin=b"\n"),
        notifier("events", "send", "user.logged_in", "--file", "events.ndjson"),
    )
    assert piped.code == 0
    assert [(line["line"], line["status"]) for line in piped.lines] == [(1, 202), (2, 200)]
    assert [item["kind"] for item in piped.lines[0]["canceled"]] == ["followup"]
    assert (missing.code, missing.err) == (1, "notifier: cannot read no.ndjson: No such file or directory\n")
    assert (empty.code, both.code) == (2, 2)


async def test_what_broke_off_or_may_come_later_is_tried_again_under_its_id(api: Api, notifier: Command) -> None:
    troubles = iter(["break off", "answer lost", "busy", "busy, again"])
    seen: list[Any] = []

    async def trouble(request: web.Request) -> web.StreamResponse | None:
        seen.append(await request.json())
        match next(troubles, None):
            case "break off":
                assert request.transport is not None
                request.transport.abort()
                return web.Response()
            case "answer lost":
                await api.ask("POST", "/v1/events", json=seen[-1])
                assert request.transport is not None
                request.transport.abort()
                return web.Response()
            case "busy":
                problem = {"status": 503, "detail": "come back later"}
                return web.json_response(problem, status=503, headers={"Retry-After": "0.1"})
            case _:
                return None

    async with in_front_of(api, trouble) as url:
        done = await notifier(
            *("events", "send", "user.signed_up", "--user", "u_1", "--email", "a@example.com"), API_URL=url
        )
    assert done.code == 0
    assert "was taken before" in done.out
    assert "come back later" in done.err
    assert len(seen) == 4
    assert len({event["id"] for event in seen}) == 1
    assert await api.conn.fetchval("SELECT count(*) FROM outbox") == 2


async def test_only_the_lines_that_were_put_off_are_sent_again(api: Api, notifier: Command) -> None:
    sizes: list[int] = []

    async def put_off_the_second(request: web.Request) -> web.StreamResponse | None:
        lines = (await request.text()).splitlines()
        sizes.append(len(lines))
        if len(sizes) > 1:
            return None
        told = await api.ask("POST", "/v1/events/batch", json={"events": [json.loads(lines[0])]})
        results = [*told.body["results"], {"status": 503, "detail": "out of time"}]
        return web.json_response({"results": results}, status=207)

    raw = "\n".join(json.dumps(signup(number, id=f"e_{number}")) for number in range(2)).encode()
    async with in_front_of(api, put_off_the_second) as url:
        done = await notifier("events", "send", "--file", "-", API_URL=url, stdin=raw)
    assert (done.code, sizes) == (0, [2, 1])
    assert "2 events: 2 taken" in done.err


async def test_what_stays_away_is_told_with_the_id_to_repeat_it_by(api: Api, notifier: Command) -> None:
    async def closed(request: web.Request) -> web.StreamResponse:
        if request.path == "/v1/events":
            problem = {"status": 503, "detail": "closed"}
            return web.json_response(problem, status=503, headers={"Retry-After": "0.1"})
        results = [{"status": 503, "detail": "closed"} for _ in (await request.text()).splitlines()]
        return web.json_response({"results": results}, status=207)

    async with in_front_of(api, closed) as url:
        one, many = await asyncio.gather(
            notifier("events", "send", "user.logged_in", "--user", "u_1", "--id", "evt_7", API_URL=url),
            notifier("events", "send", "--file", "-", API_URL=url, stdin=json.dumps(signup(2)).encode()),
        )
    assert (one.code, many.code) == (1, 1)
    assert "To repeat it safely add --id evt_7" in one.err
    assert "line 1: closed" in many.err
    assert "1 event: 0 taken, 0 taken before, 1 refused." in many.err
