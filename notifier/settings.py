"""What can be set, in which unit and with which default; whether the values go together is checked at start."""

from __future__ import annotations

import difflib
import ipaddress
import json
import os
import re
import unicodedata
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, Self

from dotenv import dotenv_values
from email_validator import EmailNotValidError, validate_email
from pydantic import Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from notifier.domain.errors import SettingsError
from providers.base import Family

PREFIX = "NOTIFIER_"
ENV_FILE = ".env"
BASE_URL = re.compile(r"https?://(?:\[([0-9A-Fa-f:.]+)\]|[A-Za-z0-9._-]+)(?::([0-9]{1,5}))?", re.IGNORECASE)
HEADER = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,75}")
TAKEN_HEADER = re.compile(
    "content-.*|resent-.*|from|to|cc|bcc|sender|reply-to|subject|date|message-id|auto-submitted|mime-version|received"
    "|return-path",
    re.IGNORECASE,
)
SENDER = re.compile(r'(?:"[^"\\]*" *|[^"\\<>()\[\]@,;:]*)<([^<>]+)>')

KEEP_MIN_DAYS = 8

Scope = Literal["events", "read", "operate"]
Seconds = Annotated[float, Field(gt=0, le=31_536_000)]
Port = Annotated[int, Field(ge=0, le=65_535)]


class Settings(BaseSettings):
    """The configuration of one process. Names in the environment carry the prefix NOTIFIER_."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_file=ENV_FILE, env_file_encoding="utf-8", extra="ignore", frozen=True
    )

    # Where state lives
    database_url: str | None = Field(None, description="PostgreSQL ≥ 15; unset under `run`: embedded")
    redis_url: str | None = Field(None, description="Redis ≥ 6.2 or Valkey; unset under `run`: embedded; empty: none")
    data_dir: Path = Field(Path(".notifier"), description="what `run` keeps: databases, keys, logs")

    # Who may talk to us
    api_keys: dict[SecretStr, frozenset[Scope]] = Field(
        default_factory=dict, description='JSON: key → scopes, e.g. {"k1": ["events", "read", "operate"]}'
    )
    login_webhook_secrets: Annotated[tuple[SecretStr, ...], NoDecode] = Field(
        (),
        description="Standard Webhooks secrets (whsec_…), several while rotating: JSON list or comma-separated",
    )

    # Where an operator's commands find the API, and how they get in
    api_url: str | None = Field(None, description="unset: the api of the `run` in DATA_DIR, else http://HOST:API_PORT")
    api_key: SecretStr | None = Field(
        None, description="unset: DATA_DIR/api_key, else the first of API_KEYS that has the scope"
    )

    # What is sent, and to whom
    journeys_file: Path | None = Field(None, description="TOML; unset: the two kinds that ship with the project")
    templates_dir: Path | None = Field(None, description="one folder a template; unset: those that ship")
    mail_from: str = Field("Notifier <hello@example.com>", description="the From of every mail")
    only_to: Annotated[tuple[str, ...] | None, NoDecode] = Field(
        None, description="comma-separated fnmatch patterns over the whole address; everybody else is skipped"
    )

    # The way out
    provider: Literal["mock", "smtp"] = Field("mock", description="which provider takes the mails")
    mock_url: str | None = Field(None, description="unset: http://127.0.0.1:MOCK_PORT")
    mock_api_key: SecretStr = Field(SecretStr("re_mock"), description="the mock takes any key")
    mock_family: Family = Field(Family.REJECT, description="what the service may assume of the mock's keys")
    mock_window_s: Seconds = Field(86_400, description="how long the mock surely remembers a key")

    # PROVIDER=smtp
    smtp_host: str | None = Field(None, description="the mail server; unset under `run`: the mock's own listener")
    smtp_port: int | None = Field(None, ge=1, le=65_535, description="unset: 587 (starttls), 465 (tls) or 25 (none)")
    smtp_security: Literal["starttls", "tls", "none"] | None = Field(
        None, description="unset: tls on port 465, none to this machine, starttls to any other"
    )
    smtp_ca_file: Path | None = Field(None, description="PEM; unset: the authorities this system trusts")
    smtp_username: str | None = Field(None, description="unset: no login")
    smtp_password: SecretStr | None = Field(None, description="goes with SMTP_USERNAME")
    smtp_pool_size: int = Field(10, ge=1, le=500, description="connections per worker, each with one mail at a time")
    smtp_hello_name: str | None = Field(None, description="what we call ourselves (EHLO); unset: the host's name")
    smtp_key_header: str | None = Field(
        None, description="header that carries our key to a relay that knows it, e.g. Resend-Idempotency-Key"
    )
    smtp_key_window_s: float = Field(
        0,
        ge=0,
        le=31_536_000,
        description="how long that relay surely drops a second mail under one key; 0: it does not",
    )

    # Addresses
    host: str = Field("127.0.0.1", description="address every server listens on")
    api_port: Port = Field(8080, description="0: any free port")
    metrics_port: Port = Field(0, description="worker and scheduler: /metrics and /healthz; 0: any free port")
    mock_port: Port = Field(8025, description="0: any free port")
    mock_smtp_port: Port = Field(1025, description="0: any free port")

    # Work and time
    workers: int = Field(2, ge=0, le=64, description="worker processes under `run`")
    worker_concurrency: int = Field(50, ge=1, le=2_000, description="calls in hand per worker")
    batch_max: int = Field(
        1, ge=1, le=100, description="mails in one call, where the provider takes several; 1: one each"
    )
    claim_ttl_s: Seconds = Field(30, description="how long a claim lasts, on the database's clock")
    provider_timeout_s: Seconds = Field(
        10, description="one call to the whole answer; by SMTP: up to the dot, and as long again for the answer to it"
    )
    poll_s: Seconds = Field(1, description="the floor when no nudge comes")
    attempts_max: int = Field(8, ge=1, le=1_000, description="counted attempts per notification")
    backoff_first_s: Seconds = Field(1, description="ceiling of the first wait")
    backoff_max_s: Seconds = Field(600, description="ceiling of every wait")
    give_up_after_s: Seconds = Field(86_400, description="how long refusals without attempt may go on")
    stop_grace_s: Seconds = Field(15, description="how long calls may go on after SIGTERM")

    # How long things are kept, in days of real time; the guard of every (user, kind) is kept for ever
    keep_events_days: int = Field(
        30, le=36_500, description="ids and answers of events: a repeat that comes later is a new event"
    )
    keep_detail_days: int = Field(
        90, le=36_500, description="attempts and data of a notification that has ended; it cannot be retried after that"
    )

    # The database's patience with us (a frozen process must not hold a user's lock for ever)
    pool_size: int = Field(10, ge=2, le=200, description="connections per process")
    idle_in_transaction_timeout_s: Seconds = Field(5, description="then the server ends the session")
    lock_timeout_s: Seconds = Field(2, description="waiting for one lock")
    statement_timeout_s: Seconds = Field(10, description="one statement")

    # For development and proof
    failpoints: str = Field("", description='e.g. "worker.after_claim=kill;worker.after_send=freeze@0.1*1"')
    clock: Literal["real", "virtual"] = Field("real", description="virtual: POST /dev/clock moves business time")

    @field_validator("login_webhook_secrets", mode="before")
    @classmethod
    def _split_secrets(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        text = value.strip()
        return json.loads(text) if text.startswith("[") else [part.strip() for part in text.split(",") if part.strip()]

    @field_validator("only_to", mode="before")
    @classmethod
    def _split_patterns(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        return [part.strip().lower() for part in value.split(",") if part.strip()]

    @field_validator("api_keys")
    @classmethod
    def _check_keys(cls, keys: dict[SecretStr, frozenset[Scope]]) -> dict[SecretStr, frozenset[Scope]]:
        for key in (secret.get_secret_value() for secret in keys):
            if not key.strip():
                raise ValueError("a key is empty, and would let in whoever sends none")
            _check_key(key)
        return keys

    @field_validator("api_key")
    @classmethod
    def _check_own_key(cls, key: SecretStr | None) -> SecretStr | None:
        if key is None or not key.get_secret_value().strip():
            return None
        _check_key(key.get_secret_value())
        return key

    @field_validator("mail_from")
    @classmethod
    def _check_sender(cls, value: str) -> str:
        text = value.strip(" ")
        if _has_controls(text):
            raise ValueError("a control character, such as a line break, must not be in it")
        named = SENDER.fullmatch(text)
        try:
            address = named[1] if named else text
            validate_email(address, check_deliverability=False, globally_deliverable=False)
        except EmailNotValidError as error:
            raise ValueError(
                "give one address, e.g. hello@example.com or Acme Inc. <hello@example.com>; "
                f'a name with any of ()[]:;@, stands in "quotes" ({error})'
            ) from None
        return text

    @field_validator("mock_url", "api_url")
    @classmethod
    def _check_base_url(cls, value: str | None) -> str | None:
        if value is None or not value.strip():
            return None
        text = value.strip().rstrip("/")
        if not (found := BASE_URL.fullmatch(text)) or not _is_port(found[2]) or not _is_ipv6(found[1]):
            raise ValueError("give http://host[:port] or https://host[:port], and nothing before or behind")
        return text

    @field_validator("smtp_host", "smtp_username", "smtp_hello_name", "smtp_key_header", mode="before")
    @classmethod
    def _empty_is_unset(cls, value: object) -> object:
        return (value.strip() or None) if isinstance(value, str) else value

    @field_validator("smtp_host", "smtp_username", "smtp_hello_name")
    @classmethod
    def _check_word(cls, value: str | None) -> str | None:
        if value is not None and (_has_controls(value) or " " in value):
            raise ValueError("a space or a control character must not be in it")
        return value

    @field_validator("smtp_key_header")
    @classmethod
    def _check_header(cls, value: str | None) -> str | None:
        if value is not None and (not HEADER.fullmatch(value) or TAKEN_HEADER.fullmatch(value)):
            raise ValueError("give the name of a header of its own, e.g. Resend-Idempotency-Key")
        return value

    @model_validator(mode="after")
    def _check_smtp(self) -> Self:
        if (self.smtp_username is None) != (self.smtp_password is None):
            raise ValueError("NOTIFIER_SMTP_USERNAME and NOTIFIER_SMTP_PASSWORD go together: set both or neither")
        if self.smtp_username and self.smtp_protection == "none" and not _is_here(self.smtp_host):
            raise ValueError(
                "NOTIFIER_SMTP_SECURITY=none would send NOTIFIER_SMTP_PASSWORD in clear over the network: "
                "use starttls or tls"
            )
        if self.provider == "smtp" and not _is_here(self.smtp_host) and self.mail_from == _mail_from_default():
            raise ValueError(
                f"NOTIFIER_MAIL_FROM is not set, and {self.mail_from} is nobody's: say who writes before "
                "NOTIFIER_PROVIDER=smtp leaves this machine"
            )
        if self.smtp_key_window_s and not self.smtp_key_header:
            raise ValueError(
                "NOTIFIER_SMTP_KEY_WINDOW_S says that the relay knows our keys, but NOTIFIER_SMTP_KEY_HEADER is not "
                "set: no key would reach it"
            )
        return self

    @model_validator(mode="after")
    def _check_relations(self) -> Self:
        if self.claim_ttl_s < 2 * self.provider_timeout_s + 1:
            raise ValueError(
                f"NOTIFIER_CLAIM_TTL_S ({self.claim_ttl_s:g}) must be at least 2 × NOTIFIER_PROVIDER_TIMEOUT_S + 1 "
                f"({2 * self.provider_timeout_s + 1:g}): a claim has to outlive two calls"
            )
        if self.backoff_max_s < self.backoff_first_s:
            raise ValueError(
                f"NOTIFIER_BACKOFF_MAX_S ({self.backoff_max_s:g}) must not be below "
                f"NOTIFIER_BACKOFF_FIRST_S ({self.backoff_first_s:g})"
            )
        if self.poll_s >= self.claim_ttl_s:
            raise ValueError(
                f"NOTIFIER_POLL_S ({self.poll_s:g}) must be below NOTIFIER_CLAIM_TTL_S ({self.claim_ttl_s:g}): "
                "an expired claim has to be noticed within one more claim time"
            )
        if self.lock_timeout_s > self.statement_timeout_s:
            raise ValueError(
                f"NOTIFIER_LOCK_TIMEOUT_S ({self.lock_timeout_s:g}) must not exceed "
                f"NOTIFIER_STATEMENT_TIMEOUT_S ({self.statement_timeout_s:g})"
            )
        if self.clock == "virtual" and self.provider != "mock":
            raise ValueError(
                f"NOTIFIER_CLOCK=virtual must not be used with NOTIFIER_PROVIDER={self.provider}: "
                "moved time would mail real people"
            )
        if self.batch_max > 1 and self.provider != "mock":
            raise ValueError(
                f"NOTIFIER_BATCH_MAX ({self.batch_max}) must be 1 with NOTIFIER_PROVIDER={self.provider}: "
                "it takes one mail in a call"
            )
        if self.batch_max > 1 and self.mock_family is Family.NONE:
            raise ValueError(
                f"NOTIFIER_BATCH_MAX ({self.batch_max}) must be 1 with NOTIFIER_MOCK_FAMILY=none: without keys nobody "
                "can ask again about a whole batch"
            )
        if self.only_to is not None and not self.only_to:
            raise ValueError("NOTIFIER_ONLY_TO is empty: name at least one pattern, or unset it to allow everybody")
        return self

    @model_validator(mode="after")
    def _check_keeping(self) -> Self:
        windows = {
            "NOTIFIER_MOCK_WINDOW_S": self.mock_window_s if self.provider == "mock" else 0,
            "NOTIFIER_SMTP_KEY_WINDOW_S": self.smtp_key_window_s if self.provider == "smtp" else 0,
        }
        kept = {"NOTIFIER_KEEP_EVENTS_DAYS": self.keep_events_days, "NOTIFIER_KEEP_DETAIL_DAYS": self.keep_detail_days}
        for name, days in kept.items():
            if days < KEEP_MIN_DAYS:
                raise ValueError(
                    f"{name} ({days}) must be at least {KEEP_MIN_DAYS}: a sender may repeat an event for a week, and "
                    "for as long is what was decided held against its record"
                )
            for window, seconds in windows.items():
                if days * 86_400 < seconds:
                    raise ValueError(
                        f"{name} ({days}) must not be shorter than {window} ({seconds / 86_400:g} days): "
                        "what the provider may still be asked about has to be on record here"
                    )
        return self

    @property
    def slots(self) -> int:
        """How many calls a worker makes at once: over SMTP a mail without a connection would only wait."""
        return min(self.worker_concurrency, self.smtp_pool_size) if self.provider == "smtp" else self.worker_concurrency

    @property
    def needs_mock(self) -> bool:
        """Whether `run` starts the mock provider: it takes our mails, unless another is named."""
        if self.mock_url:
            return False
        if self.provider == "mock" or self.smtp_host is None:
            return True
        return _is_here(self.smtp_host) and self.smtp_port == self.mock_smtp_port

    @property
    def ports_of_run(self) -> dict[str, int]:
        """Setting → port that `run` listens on; 0 where any will do."""
        wanted = {"NOTIFIER_API_PORT": self.api_port}
        if self.needs_mock:
            wanted |= {"NOTIFIER_MOCK_PORT": self.mock_port, "NOTIFIER_MOCK_SMTP_PORT": self.mock_smtp_port}
        return wanted

    @property
    def smtp_protection(self) -> Literal["starttls", "tls", "none"]:
        """SMTP_SECURITY, or what suits port and host."""
        if self.smtp_security is not None:
            return self.smtp_security
        if self.smtp_port == 465:
            return "tls"
        return "none" if _is_here(self.smtp_host) else "starttls"

    @property
    def mock_address(self) -> str:
        """The mock provider's base URL, without a slash at the end; by default where a mock with our HOST answers."""
        return self.mock_url or _local_url(self.host, self.mock_port)

    @property
    def api_address(self) -> str:
        """The API's base URL where no `run` has noted another one; by default where an api with our HOST answers."""
        return self.api_url or _local_url(self.host, self.api_port)


def _local_url(host: str, port: int) -> str:
    """Where a server that listens on `host` is called from the same machine."""
    everywhere = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "localhost": "127.0.0.1", "::": "::1"}  # noqa: S104 - read
    host = everywhere.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _check_key(key: str) -> None:
    if key != key.strip() or _has_controls(key):
        raise ValueError("a key has white space around it or a control character in it: no header carries that")


def _has_controls(text: str) -> bool:
    """Whether a character is in it that no header may carry: controls, line ends, half of a pair."""
    return any(unicodedata.category(char) in {"Cc", "Cs", "Zl", "Zp"} for char in text)


def _mail_from_default() -> str:
    return str(Settings.model_fields["mail_from"].default)


def _is_here(host: str | None) -> bool:
    """Whether what is said to this host stays on this machine."""
    if host is None or host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _is_port(text: str | None) -> bool:
    return text is None or 1 <= int(text) <= 65_535


def _is_ipv6(text: str | None) -> bool:
    try:
        return text is None or bool(ipaddress.IPv6Address(text))
    except ValueError:
        return False


def load(environ: Mapping[str, str] | None = None) -> Settings:
    """Read environment and .env; raises SettingsError with one line per mistake, each saying what to change."""
    names = set(os.environ if environ is None else environ) | set(dotenv_values(ENV_FILE))
    known = {PREFIX + name.upper() for name in Settings.model_fields}
    mistakes = [
        _unknown(name, known) for name in sorted(names) if name.upper().startswith(PREFIX) and name.upper() not in known
    ]
    if mistakes:
        raise SettingsError("\n".join(mistakes))
    try:
        return Settings()
    except ValidationError as error:
        raise SettingsError("\n".join(_explain(item) for item in error.errors())) from None
    except ValueError as error:  # a value that should be JSON and is not
        field = re.search(r'field "(\w+)"', str(error))
        raise SettingsError(
            f"{PREFIX}{field[1].upper()}: not valid JSON (if it is empty, fill it in or take it out; also from .env)"
            if field
            else str(error)
        ) from None


def _unknown(name: str, known: set[str]) -> str:
    # the prefix is left out: it would make every name look alike
    short = {other.removeprefix(PREFIX): other for other in known}
    close = [short[match] for match in difflib.get_close_matches(name.upper().removeprefix(PREFIX), short, n=1)]
    hint = f"did you mean {close[0]}?" if close else "see `notifier run --help` for the names there are"
    return f"unknown setting {name}: {hint}"


def _explain(item: Mapping[str, object]) -> str:
    location = item["loc"]
    message = str(item["msg"]).removeprefix("Value error, ")
    if isinstance(location, tuple) and location:
        return f"{PREFIX}{str(location[0]).upper()}: {message}"
    return message
