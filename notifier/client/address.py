"""Where the API is and which key opens it: what the settings say, else what the `run` in DATA_DIR left there."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from notifier.domain.errors import SettingsError
from notifier.settings import Scope, Settings


@dataclass(frozen=True, slots=True)
class Found:
    """A value, and where it came from in words for a message."""

    value: str
    origin: str


def find_api(settings: Settings) -> Found:
    """The API's base URL. Raises SettingsError when nothing names one."""
    if settings.api_url:
        return Found(settings.api_url, "NOTIFIER_API_URL")
    if noted := noted_url(settings.data_dir, "api"):
        return Found(noted, f"noted by the `notifier run` in {settings.data_dir}")
    if not settings.api_port:
        raise SettingsError(
            f"where is the API? NOTIFIER_API_PORT is 0 (any), and no `notifier run` lives in {settings.data_dir}: "
            "name it with NOTIFIER_API_URL, or the run's directory with NOTIFIER_DATA_DIR"
        )
    return Found(settings.api_address, "from NOTIFIER_HOST and NOTIFIER_API_PORT")


def noted_url(data_dir: Path, child: str, name: str = "url") -> str | None:
    """Where a process of the `run` in DATA_DIR answers; None when there is none, or it is not alive."""
    try:
        note = json.loads((data_dir / "run" / f"{child}.json").read_text("utf-8"))
    except (OSError, ValueError):  # none, somebody else's, or half written
        return None
    return reachable(note.get(name)) if isinstance(note, dict) and _lives(note.get("pid")) else None


def _lives(pid: object) -> bool:
    if not isinstance(pid, int) or pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except OSError:
        return False
    return True


def reachable(url: object) -> str | None:
    """A URL as somebody on this machine would write it: nobody can call 0.0.0.0."""
    if not isinstance(url, str):
        return None
    return url.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:").rstrip("/")


def find_key(settings: Settings, scope: Scope) -> Found:
    """The key to use where `scope` is needed. Raises SettingsError when there is none."""
    for found in _keys(settings, scope):
        return found
    raise SettingsError(
        f"no API key: set NOTIFIER_API_KEY to one with the scope {scope!r}, or NOTIFIER_DATA_DIR to the directory "
        f"of a `notifier run` ({settings.data_dir} holds no api_key)"
    )


def _keys(settings: Settings, scope: Scope) -> Iterator[Found]:
    if settings.api_key:
        yield Found(settings.api_key.get_secret_value(), "NOTIFIER_API_KEY")
    file = settings.data_dir / "api_key"
    try:
        if kept := file.read_text("utf-8").strip():
            yield Found(kept, str(file))
    except (FileNotFoundError, NotADirectoryError):
        pass
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise SettingsError(f"cannot read the API key in {file} ({why}): set NOTIFIER_API_KEY instead") from None
    for key, scopes in settings.api_keys.items():
        if scope in scopes:
            yield Found(key.get_secret_value(), f"the first of NOTIFIER_API_KEYS with the scope {scope!r}")
