"""Settings: read from environment and .env, checked against each other; every mistake is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from notifier.domain.errors import SettingsError
from notifier.settings import Settings, load
from providers.base import Family


@pytest.fixture(autouse=True)
def _no_env_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def given(monkeypatch: pytest.MonkeyPatch, **settings: str) -> Settings:
    for name, value in settings.items():
        monkeypatch.setenv(f"NOTIFIER_{name}", value)
    return load()


def refused(monkeypatch: pytest.MonkeyPatch, **settings: str) -> str:
    with pytest.raises(SettingsError) as caught:
        given(monkeypatch, **settings)
    return str(caught.value)


def test_nothing_has_to_be_set() -> None:
    settings = load()
    assert (settings.database_url, settings.redis_url, settings.api_keys) == (None, None, {})
    assert (settings.host, settings.api_port, settings.mock_port, settings.workers) == ("127.0.0.1", 8080, 8025, 2)
    assert settings.mock_address == "http://127.0.0.1:8025"
    assert settings.mock_family is Family.REJECT


def test_an_empty_redis_url_is_not_an_unset_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert given(monkeypatch, REDIS_URL="").redis_url == ""


def test_keys_scopes_secrets_and_patterns(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = json.dumps({"k1": ["events"], "k2": ["read", "operate"]})
    settings = given(
        monkeypatch, API_KEYS=keys, LOGIN_WEBHOOK_SECRETS="whsec_a, whsec_b", ONLY_TO="*@Example.com, me@x.org"
    )
    assert {key.get_secret_value(): scopes for key, scopes in settings.api_keys.items()} == {
        "k1": {"events"},
        "k2": {"read", "operate"},
    }
    assert [secret.get_secret_value() for secret in settings.login_webhook_secrets] == ["whsec_a", "whsec_b"]
    assert settings.only_to == ("*@example.com", "me@x.org")
    for secret in ("k1", "whsec_a"):
        assert secret not in repr(settings)


def test_secrets_may_be_a_json_list(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = given(monkeypatch, LOGIN_WEBHOOK_SECRETS='["whsec_a", "whsec_b"]')
    assert [secret.get_secret_value() for secret in settings.login_webhook_secrets] == ["whsec_a", "whsec_b"]


def test_a_file_is_read_and_the_environment_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    Path(".env").write_text("NOTIFIER_WORKERS=7\nNOTIFIER_API_PORT=1234\nOTHER_PROGRAM=yes\n")
    settings = given(monkeypatch, API_PORT="4321")
    assert (settings.workers, settings.api_port) == (7, 4321)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("DATABSE_URL", "did you mean NOTIFIER_DATABASE_URL?"),
        ("WORKER", "did you mean NOTIFIER_WORKERS?"),
        ("CLAIM_TTL", "did you mean NOTIFIER_CLAIM_TTL_S?"),
        ("ZZZ", "notifier run --help"),
    ],
)
def test_an_unknown_name_is_refused_with_the_right_one(monkeypatch: pytest.MonkeyPatch, name: str, hint: str) -> None:
    text = refused(monkeypatch, **{name: "1"})
    assert f"unknown setting NOTIFIER_{name}: " in text
    assert hint in text


def test_an_unknown_name_in_the_file_is_refused_too() -> None:
    Path(".env").write_text("NOTIFIER_WROKERS=7\n")
    with pytest.raises(SettingsError, match="did you mean NOTIFIER_WORKERS"):
        load()


def test_every_unknown_name_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert refused(monkeypatch, WROKERS="1", HOSTT="x").splitlines() == [
        "unknown setting NOTIFIER_HOSTT: did you mean NOTIFIER_HOST?",
        "unknown setting NOTIFIER_WROKERS: did you mean NOTIFIER_WORKERS?",
    ]


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({"CLAIM_TTL_S": "20.9"}, ["NOTIFIER_CLAIM_TTL_S (20.9)", "NOTIFIER_PROVIDER_TIMEOUT_S"]),
        ({"PROVIDER_TIMEOUT_S": "15"}, ["NOTIFIER_CLAIM_TTL_S (30)", "2 × NOTIFIER_PROVIDER_TIMEOUT_S + 1 (31)"]),
        (
            {"BACKOFF_FIRST_S": "2", "BACKOFF_MAX_S": "1"},
            ["NOTIFIER_BACKOFF_MAX_S (1)", "NOTIFIER_BACKOFF_FIRST_S (2)"],
        ),
        ({"POLL_S": "30"}, ["NOTIFIER_POLL_S (30)", "NOTIFIER_CLAIM_TTL_S (30)"]),
        ({"LOCK_TIMEOUT_S": "11"}, ["NOTIFIER_LOCK_TIMEOUT_S (11)", "NOTIFIER_STATEMENT_TIMEOUT_S (10)"]),
        ({"KEEP_EVENTS_DAYS": "7"}, ["NOTIFIER_KEEP_EVENTS_DAYS (7) must be at least 8"]),
        ({"KEEP_DETAIL_DAYS": "7"}, ["NOTIFIER_KEEP_DETAIL_DAYS (7) must be at least 8"]),
        (
            {"KEEP_EVENTS_DAYS": "9", "MOCK_WINDOW_S": "864000"},
            ["NOTIFIER_KEEP_EVENTS_DAYS (9)", "NOTIFIER_MOCK_WINDOW_S (10 days)"],
        ),
        (
            {"KEEP_DETAIL_DAYS": "9", "PROVIDER": "smtp", "SMTP_KEY_HEADER": "X-Key", "SMTP_KEY_WINDOW_S": "864000"},
            ["NOTIFIER_KEEP_DETAIL_DAYS (9)", "NOTIFIER_SMTP_KEY_WINDOW_S (10 days)"],
        ),
        ({"ONLY_TO": ""}, ["NOTIFIER_ONLY_TO is empty"]),
        ({"ONLY_TO": " , "}, ["NOTIFIER_ONLY_TO is empty"]),
    ],
)
def test_an_unsafe_combination_is_refused_and_both_sides_are_named(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], names: list[str]
) -> None:
    text = refused(monkeypatch, **settings)
    for name in names:
        assert name in text


def test_the_edge_of_a_combination_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    given(monkeypatch, CLAIM_TTL_S="21", PROVIDER_TIMEOUT_S="10", POLL_S="20.9", BACKOFF_FIRST_S="5", BACKOFF_MAX_S="5")
    given(monkeypatch, KEEP_EVENTS_DAYS="8", KEEP_DETAIL_DAYS="8", MOCK_WINDOW_S=str(8 * 86_400))


def test_moved_time_is_refused_with_a_real_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    assert given(monkeypatch, CLOCK="virtual").clock == "virtual"
    real = load().model_copy(update={"provider": "resend"})  # there is no real one yet; the rule is there before it
    with pytest.raises(ValueError, match=r"NOTIFIER_CLOCK=virtual must not be used with NOTIFIER_PROVIDER=resend"):
        real._check_relations()


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"API_PORT": "70000"}, "NOTIFIER_API_PORT: "),
        ({"WORKERS": "many"}, "NOTIFIER_WORKERS: "),
        ({"CLAIM_TTL_S": "0"}, "NOTIFIER_CLAIM_TTL_S: "),
        ({"CLAIM_TTL_S": "nan"}, "NOTIFIER_CLAIM_TTL_S: "),
        ({"CLOCK": "fast"}, "NOTIFIER_CLOCK: "),
        ({"MOCK_FAMILY": "some"}, "NOTIFIER_MOCK_FAMILY: "),
        ({"API_KEYS": "secret"}, "NOTIFIER_API_KEYS: not valid JSON"),
        ({"API_KEYS": '{"k": ["everything"]}'}, "NOTIFIER_API_KEYS: "),
        ({"API_KEYS": '{"": ["read"]}'}, "NOTIFIER_API_KEYS: a key is empty"),
        ({"API_KEYS": '{"good": ["read"], " \\t": ["read"]}'}, "NOTIFIER_API_KEYS: a key is empty"),
        ({"API_KEYS": '{"k1 ": ["read"]}'}, "NOTIFIER_API_KEYS: a key has white space around it"),
        ({"API_KEYS": '{"k\\u0007": ["read"]}'}, "NOTIFIER_API_KEYS: a key has"),
        ({"API_KEYS": '{"k\\ud800": ["read"]}'}, "NOTIFIER_API_KEYS: "),
        ({"LOGIN_WEBHOOK_SECRETS": "[not json"}, "NOTIFIER_LOGIN_WEBHOOK_SECRETS: Expecting value"),
    ],
)
def test_a_senseless_value_is_named(monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], text: str) -> None:
    assert text in refused(monkeypatch, **settings)


@pytest.mark.parametrize(
    "url",
    [
        "127.0.0.1:8025",
        "mock",
        "ftp://mock",
        "http://",
        "http://:8025",
        "http://mock:0",
        "http://mock:65536",
        "http://mock:port",
        "http://user:secret@mock",
        "http://mock/base",
        "http://mock?x=1",
        "http://mo ck",
        "http://mock\nx",
        "http://[::1",
        "http://[1.2]:80",
        "http://::1:80",
    ],
)
def test_a_mock_url_that_is_none_is_refused_by_name(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    text = refused(monkeypatch, MOCK_URL=url)
    assert text.startswith("NOTIFIER_MOCK_URL: give http://host[:port]")
    assert "secret" not in text


@pytest.mark.parametrize("url", ["http://mock", "https://mock.example:8025", "http://[::1]:8025", "HTTP://10.0.0.1:80"])
def test_a_mock_url_is_taken_without_the_slash_at_its_end(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    assert given(monkeypatch, MOCK_URL=f"{url}/").mock_address == url


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("127.0.0.1", "http://127.0.0.1:8025"),
        ("0.0.0.0", "http://127.0.0.1:8025"),
        ("localhost", "http://127.0.0.1:8025"),
        ("", "http://127.0.0.1:8025"),
        ("::", "http://[::1]:8025"),
        ("::1", "http://[::1]:8025"),
        ("fd00::7", "http://[fd00::7]:8025"),
        ("10.0.0.7", "http://10.0.0.7:8025"),
    ],
)
def test_without_a_mock_url_the_mock_is_where_ours_would_listen(
    monkeypatch: pytest.MonkeyPatch, host: str, address: str
) -> None:
    assert given(monkeypatch, HOST=host).mock_address == address
    assert given(monkeypatch, MOCK_URL="").mock_address == address


def test_the_api_is_where_ours_would_listen_unless_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert given(monkeypatch, HOST="0.0.0.0", API_PORT="8081").api_address == "http://127.0.0.1:8081"
    assert given(monkeypatch, API_URL="https://api.example/").api_address == "https://api.example"
    assert refused(monkeypatch, API_URL="api.example:80").startswith("NOTIFIER_API_URL: give http://host[:port]")


def test_an_operators_key_is_one_that_a_header_carries(monkeypatch: pytest.MonkeyPatch) -> None:
    assert given(monkeypatch, API_KEY=" ").api_key is None
    assert "hush-hush" not in repr(given(monkeypatch, API_KEY="hush-hush"))
    assert refused(monkeypatch, API_KEY="k\n").startswith("NOTIFIER_API_KEY: a key has white space around it")


@pytest.mark.parametrize(
    "sender",
    [
        "hello@example.com",
        "Notifier <hello@example.com>",
        "Acme Inc. <hello@example.com>",
        "Größe & Söhne <hello@example.com>",
        '"Acme, Inc. (EU)" <hello@example.com>',
        "<hello@example.com>",
    ],
)
def test_a_sender_is_one_address_with_a_name_or_without(monkeypatch: pytest.MonkeyPatch, sender: str) -> None:
    assert given(monkeypatch, MAIL_FROM=sender).mail_from == sender


@pytest.mark.parametrize(
    "sender",
    [
        "",
        "nobody",
        "Notifier",
        "Notifier <>",
        "Notifier <hello>",
        "a@example.com, b@example.com",
        "A <a@example.com>, B <b@example.com>",
        "Acme, Inc. <hello@example.com>",
        "A <a@example.com> and more",
        "A <a@example.com>\r\nBcc: b@example.com",
        "A\tB <a@example.com>",
        "A\u2028B <a@example.com>",
    ],
)
def test_a_sender_that_no_mail_may_have_is_refused(monkeypatch: pytest.MonkeyPatch, sender: str) -> None:
    assert refused(monkeypatch, MAIL_FROM=sender).startswith("NOTIFIER_MAIL_FROM: ")


def test_smtp_protects_what_leaves_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    assert given(monkeypatch, SMTP_HOST="mail.example.com").smtp_protection == "starttls"
    assert given(monkeypatch, SMTP_HOST="mail.example.com", SMTP_PORT="465").smtp_protection == "tls"
    assert given(monkeypatch, SMTP_HOST="127.0.0.1", SMTP_PORT="1025").smtp_protection == "none"
    assert given(monkeypatch, SMTP_HOST="localhost", SMTP_SECURITY="starttls").smtp_protection == "starttls"
    assert given(monkeypatch, SMTP_HOST="10.0.0.7", SMTP_SECURITY="none").smtp_protection == "none"


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"SMTP_USERNAME": "ada"}, ("SMTP_USERNAME", "SMTP_PASSWORD")),
        ({"SMTP_PASSWORD": "secret"}, ("SMTP_USERNAME", "SMTP_PASSWORD")),
        (
            {"SMTP_HOST": "10.0.0.7", "SMTP_SECURITY": "none", "SMTP_USERNAME": "ada", "SMTP_PASSWORD": "s"},
            ("SMTP_SECURITY", "SMTP_PASSWORD"),
        ),
        ({"SMTP_KEY_WINDOW_S": "3600"}, ("SMTP_KEY_WINDOW_S", "SMTP_KEY_HEADER")),
        ({"SMTP_KEY_HEADER": "Subject"}, ("SMTP_KEY_HEADER",)),
        ({"SMTP_KEY_HEADER": "content-type"}, ("SMTP_KEY_HEADER",)),
        ({"SMTP_KEY_HEADER": "Reply-To"}, ("SMTP_KEY_HEADER",)),
        ({"SMTP_KEY_HEADER": "X-Key: 1"}, ("SMTP_KEY_HEADER",)),
        ({"SMTP_HOST": "mail example"}, ("SMTP_HOST",)),
        ({"SMTP_PORT": "0"}, ("SMTP_PORT",)),
        ({"SMTP_SECURITY": "maybe"}, ("SMTP_SECURITY",)),
        ({"PROVIDER": "smtp", "SMTP_HOST": "mail.example.org"}, ("MAIL_FROM", "PROVIDER")),
        ({"PROVIDER": "smtp", "SMTP_HOST": "127.0.0.1", "CLOCK": "virtual"}, ("CLOCK", "PROVIDER")),
    ],
)
def test_unsafe_smtp_settings_refuse_to_start(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], named: tuple[str, ...]
) -> None:
    said = refused(monkeypatch, **settings)
    assert all(f"NOTIFIER_{name}" in said for name in named)


def test_a_worker_holds_no_more_mails_than_it_has_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    assert given(monkeypatch, WORKER_CONCURRENCY="50").slots == 50
    assert given(monkeypatch, PROVIDER="smtp", SMTP_POOL_SIZE="4").slots == 4
    assert given(monkeypatch, PROVIDER="smtp", SMTP_POOL_SIZE="80").slots == 50


@pytest.mark.parametrize(
    ("settings", "needed"),
    [
        ({}, True),
        ({"MOCK_URL": "http://127.0.0.1:9"}, False),
        ({"PROVIDER": "smtp"}, True),
        ({"PROVIDER": "smtp", "SMTP_HOST": "127.0.0.1", "SMTP_PORT": "1025"}, True),
        ({"PROVIDER": "smtp", "SMTP_HOST": "127.0.0.1", "SMTP_PORT": "25"}, False),
        ({"PROVIDER": "smtp", "SMTP_HOST": "mail.example.org", "SMTP_PORT": "1025", "MAIL_FROM": "a@b.org"}, False),
    ],
)
def test_a_mock_is_started_where_it_takes_the_mails(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], needed: bool
) -> None:
    assert given(monkeypatch, **settings).needs_mock is needed
