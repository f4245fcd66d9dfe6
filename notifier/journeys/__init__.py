"""The journeys file and the templates, read from disk: those that ship, or those the settings name."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from notifier.domain.errors import SettingsError
from notifier.domain.journey import Journeys, parse_journeys
from notifier.domain.message import Template
from notifier.settings import Settings

_SOURCES = {"subject": "subject.txt", "html": "body.html", "text": "body.txt"}


def load_journeys(settings: Settings) -> Journeys:
    """Read the journeys file; raises SettingsError that says what is wrong with it."""
    if settings.journeys_file is None:
        return parse_journeys(files(__package__).joinpath("journeys.toml").read_text("utf-8"), "(shipped)")
    return parse_journeys(_read(settings.journeys_file, "NOTIFIER_JOURNEYS_FILE"), str(settings.journeys_file))


def load_templates(settings: Settings, journeys: Journeys) -> dict[str, Template]:
    """Read the template of every kind: kind name → template. Raises SettingsError for a file that is not there."""
    folder = settings.templates_dir or Path(str(files(__package__).joinpath("templates")))
    return {
        kind.name: Template(
            name=kind.template,
            sender=settings.mail_from,
            **{
                part: _read(folder / kind.template / name, f"template of kind {kind.name!r}")
                for part, name in _SOURCES.items()
            },
        )
        for kind in journeys.kinds.values()
    }


def _read(path: Path, what: str) -> str:
    try:
        return path.read_text("utf-8")
    except OSError as error:
        raise SettingsError(f"{what}: cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SettingsError(f"{what}: {path} is not UTF-8") from None
