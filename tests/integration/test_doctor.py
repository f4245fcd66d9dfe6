"""`notifier doctor`: beside what works, and beside everything that may be wrong."""

from __future__ import annotations

import asyncio
import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from notifier.doctor import examine
from notifier.doctor.api import check as check_api
from notifier.doctor.database import business_time
from notifier.doctor.finding import Finding
from notifier.journeys import __file__ as journeys_init
from notifier.settings import Settings, load
from notifier.store import workers
from tests.support.api import Api, running_api
from tests.support.command import Command, beside, url_of
from tests.support.mail_server import mail_server
from tests.support.mock_server import running_mock

SHIPPED = Path(journeys_init).parent


async def findings(**settings: Any) -> dict[str, Finding]:
    """By what they are about; of nothing that may run on this machine."""
    nowhere: dict[str, Any] = {"data_dir": Path("no/such/directory"), "api_port": 1, "mock_port": 1, "_env_file": None}
    return {found.about: found async for found in examine(Settings(**{**nowhere, **settings}))}


async def test_beside_a_healthy_installation_it_says_so(database_url: str, redis_url: str, tmp_path: Path) -> None:
    async with running_api(database_url, redis_url=redis_url) as api, running_mock(tmp_path / "mock") as mock:
        for role in ("worker", "scheduler"):
            await workers.beat(api.conn, role, role, "h", 1)
        notifier = beside(api, tmp_path, DATABASE_URL=database_url, REDIS_URL=redis_url, MOCK_URL=mock.url)
        done, told = await asyncio.gather(notifier("doctor", "--json"), notifier("doctor"))
    assert (done.code, done.err, told.code) == (0, "", 0)
    verdicts = {found["about"]: found["verdict"] for found in done.json["findings"]}
    durability = verdicts.pop("durability")
    assert durability == "warning"  # the PostgreSQL of the tests has no fsync
    assert set(verdicts.values()) == {"ok"}, done.json
    assert set(verdicts) >= {
        "settings",
        "journeys",
        "mail onboarding",
        "mail followup",
        "database",
        "schema",
        "clock",
        "business time",
        "workers",
        "schedulers",
        "apis",
        "same journeys",
        "redis",
        "provider",
        "api",
        "api key",
    }
    assert "fsync and full_page_writes are off" in told.out
    assert told.out.endswith("It works, with 1 warning.\n")


async def test_wrong_settings_are_the_first_thing_it_finds(tmp_path: Path) -> None:
    done = await Command(tmp_path, {"WROKERS": "1"})("doctor")
    assert done.code == 1
    assert "did you mean NOTIFIER_WORKERS?" in done.out


async def test_with_nothing_there_it_says_what_to_start(tmp_path: Path) -> None:
    found = await findings()
    assert found["database"].verdict == "failed"
    assert "start `notifier run`" in found["database"].todo
    assert {found[about].verdict for about in ("provider", "api")} == {"warning"}
    assert found["redis"].verdict == "ok"
    assert "NOTIFIER_POLL_S" in found["redis"].text
    done = await Command(tmp_path, {"DATABASE_URL": "postgresql://me:secret@127.0.0.1:1/x"})("doctor")
    assert done.code == 1
    assert "cannot reach PostgreSQL at NOTIFIER_DATABASE_URL" in done.out
    assert "secret" not in done.out


async def test_of_a_run_that_is_over_it_says_to_start_it(tmp_path: Path) -> None:
    for name in ("postgres", "valkey"):
        (tmp_path / f"{name}.json").write_text('{"port": 1}')
        (tmp_path / f"{name}_password").write_text("hush")
    found = await findings(data_dir=tmp_path)
    assert {found[about].verdict for about in ("database", "redis")} == {"failed"}
    assert {found[about].todo for about in ("database", "redis")} == {"start `notifier run`"}
    assert "no PostgreSQL answers at 127.0.0.1:1 (the `notifier run` in" in found["database"].text


async def test_a_database_that_is_not_migrated_or_was_moved_in_time_is_found(
    empty_database_url: str, api: Api, tmp_path: Path
) -> None:
    found = await findings(database_url=empty_database_url)
    assert (found["database"].verdict, found["schema"].verdict) == ("ok", "failed")
    assert "run `notifier migrate`" in found["schema"].text
    await api.conn.execute("UPDATE installation SET clock_offset = interval '3 days'")
    url = api.runtime.settings.database_url
    moved, meant = await findings(database_url=url), await findings(database_url=url, clock="virtual")
    assert {found["business time"].verdict for found in (moved, meant)} == {"warning"}, "an api lives, so it is meant"
    unmeant = business_time(timedelta(days=3), "real")
    assert (unmeant.verdict, "NOTIFIER_CLOCK=virtual" in unmeant.todo) == ("failed", True)


async def test_others_with_other_journeys_are_found(api: Api, tmp_path: Path) -> None:
    url = api.runtime.settings.database_url
    assert (await findings(database_url=url))["same journeys"].verdict == "ok"
    changed = (await findings(database_url=url, mail_from="other@example.com"))["same journeys"]
    assert changed.verdict == "warning"
    assert "followup, onboarding" in changed.text
    await api.signup()
    (tmp_path / "j.toml").write_text('[kinds.other]\non = "x"\ntemplate = "onboarding"\n')
    strange = (await findings(database_url=url, journeys_file=tmp_path / "j.toml"))["same journeys"]
    assert strange.verdict == "warning"
    assert "journeys file here does not have: onboarding" in strange.text
    await api.conn.execute("DELETE FROM workers")
    silent = await findings(database_url=url)
    assert [silent[role].verdict for role in ("workers", "schedulers", "apis")] == ["warning"] * 3


@pytest.mark.parametrize(
    ("part", "text", "verdict", "words"),
    [
        ("body.txt", "Hello {{ user.nmae }}", "failed", "nmae"),
        ("body.html", "{% if %}", "failed", "TemplateSyntaxError"),
        ("subject.txt", "{{ user.name.title() }}", "failed", "None"),
        ("subject.txt", " ", "failed", "the subject has 0 characters"),
        ("body.txt", "{{ data.price * 2 }}", "warning", "TypeError"),
        ("body.txt", "{{ data.plan.name }} {{ user.attributes.city }}", "ok", "data.plan.name, user.attributes.city"),
        ("body.txt", "{% for item in data.cart %}{{ item.name }}{% endfor %}", "ok", "must bring data.cart"),
    ],
)
async def test_a_template_is_tried_before_a_mail_needs_it(
    tmp_path: Path, part: str, text: str, verdict: str, words: str
) -> None:
    shutil.copytree(SHIPPED / "templates", tmp_path / "templates")
    (tmp_path / "templates" / "followup" / part).write_text(text)
    found = await findings(templates_dir=tmp_path / "templates")
    assert found["mail onboarding"].verdict == "ok"
    assert found["mail followup"].verdict == verdict
    assert words in found["mail followup"].text


async def test_a_template_or_journeys_file_that_is_not_there_is_found(tmp_path: Path) -> None:
    for settings in ({"journeys_file": tmp_path / "no.toml"}, {"templates_dir": tmp_path / "no"}):
        found = await findings(**settings)
        assert found["journeys"].verdict == "failed"
        assert str(tmp_path / "no") in found["journeys"].text


async def test_a_redis_that_is_wrong_keeps_its_secret(valkey: Any, redis_url: str, tmp_path: Path) -> None:
    away = (await findings(redis_url="redis://:hush@127.0.0.1:1/0"))["redis"]
    closed = (await findings(redis_url=f"redis://:hush@127.0.0.1:{valkey.port}/0"))["redis"]
    strange = (await findings(redis_url="http://hush@x"))["redis"]
    assert {away.verdict, closed.verdict, strange.verdict} == {"failed"}
    assert "127.0.0.1:1: it does not answer" in away.text
    assert "does not let us in" in closed.text
    assert "redis://" in strange.text
    assert "hush" not in away.text + closed.text + strange.text


LEASES, PUBLISH, SUBSCRIBE = "EVAL, GET and SET on nt:*", "PUBLISH to nt:nudge", "SUBSCRIBE to nt:nudge"


@pytest.mark.parametrize(
    ("rules", "refused"),
    [
        (["~other:*", "+@all", "resetchannels"], [LEASES, PUBLISH, SUBSCRIBE]),
        (["~nt:*", "&nt:*", "+@all", "-get"], [LEASES]),
        (["~nt:*", "&nt:*", "+@all", "-eval", "-info"], [LEASES]),
        (["~nt:*", "&nt:*", "+@all", "-info"], []),
    ],
)
async def test_a_redis_user_that_may_too_little_is_a_warning(
    redis_url: str, valkey: Any, rules: list[str], refused: list[str]
) -> None:
    from redis.asyncio import Redis

    async with Redis.from_url(redis_url) as client:
        await client.execute_command("ACL", "SETUSER", "few", "on", ">pw", *rules)
        try:
            found = (await findings(redis_url=f"redis://few:pw@127.0.0.1:{valkey.port}/0"))["redis"]
        finally:
            await client.execute_command("ACL", "DELUSER", "few")
    assert found.verdict == ("warning" if refused else "ok")
    assert [what for what in (LEASES, PUBLISH, SUBSCRIBE) if what in found.text] == refused


async def test_what_a_key_may_do_is_found_and_nothing_is_done(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    async def verdict(key: str) -> Finding:
        monkeypatch.setenv("NOTIFIER_API_URL", url_of(api))
        monkeypatch.setenv("NOTIFIER_API_KEY", key)
        settings = load()
        found = await asyncio.to_thread(lambda: list(check_api(settings, expected=True)))
        return next(finding for finding in found if finding.about == "api key")

    assert (await verdict("k-all")).text == "may events, read, operate"
    assert (await verdict("k-read")).text == "may read, not events or operate"
    wrong = await verdict("wrong")
    assert wrong.verdict == "failed"
    assert "does not know this key" in wrong.text
    for table in ("events", "outbox", "audit_log"):
        assert await api.conn.fetchval(f"SELECT count(*) FROM {table}") == 0


async def test_a_data_dir_that_others_may_write_in_is_found(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data").chmod(0o777)
    found = await findings(data_dir=tmp_path / "data")
    assert found["data"].verdict == "failed"
    assert "chmod go-w" in found["data"].todo


async def test_a_mail_server_is_greeted_and_sent_nothing(tmp_path: Path) -> None:
    async with mail_server(tmp_path) as server:
        here = {"provider": "smtp", "smtp_host": "127.0.0.1", "smtp_port": server.port}
        found = (await findings(**here))["provider"]
        assert (found.verdict, found.text.partition(" answers ")[2]) == ("ok", "in clear; no mail was sent to try it")
        found = (await findings(**here, smtp_security="starttls"))["provider"]
        assert (found.verdict, "smtp_starttls_unsupported" in found.text) == ("failed", True)
        assert server.taken == []
    found = (await findings(**here))["provider"]
    assert (found.verdict, "connect_failed" in found.text) == ("failed", True)
    found = (await findings(provider="smtp"))["provider"]
    assert (found.verdict, "NOTIFIER_SMTP_HOST" in found.text) == ("failed", True)
