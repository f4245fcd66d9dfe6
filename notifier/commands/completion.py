"""Values a shell may complete. Quick and offline: no settings, no database, no API."""

from __future__ import annotations

import os

VARIABLE = "_NOTIFIER_COMPLETE"
BEFORE_COLON = "_NOTIFIER_BEFORE_COLON"
JOURNEYS_FILE = "NOTIFIER_JOURNEYS_FILE"


def kinds(incomplete: str) -> list[str]:
    """The kinds of the journeys file; none when it cannot be read, for this is no place to complain."""
    import tomllib
    from pathlib import Path

    try:
        named = os.environ.get(JOURNEYS_FILE)
        text = Path(named).read_text("utf-8") if named else _shipped()
        return _fitting(list(tomllib.loads(text).get("kinds", {})), incomplete)
    except (OSError, ValueError, AttributeError):
        return []


def _shipped() -> str:
    from importlib.resources import files

    return files("notifier").joinpath("journeys", "journeys.toml").read_text("utf-8")


def switches(incomplete: str) -> list[str]:
    """The names a switch may have; bash has the part up to the last colon already."""
    from providers import NAMES

    found = ["pause", "maintenance", *(f"pause:{kind}" for kind in kinds("")), *(f"pause:provider:{n}" for n in NAMES)]
    before = os.environ.get(BEFORE_COLON, "")
    return _fitting([name.removeprefix(before) for name in found if name.startswith(before)], incomplete)


def event_types(incomplete: str) -> list[str]:
    """The event types that mean something to the journeys that ship; others may be sent all the same."""
    return _fitting(["user.signed_up", "user.logged_in"], incomplete)


def _fitting(values: list[str], incomplete: str) -> list[str]:
    return [value for value in values if value.startswith(incomplete)]


def mend_bash_words() -> None:
    """Undo what bash does to `pause:followup`: it takes each colon for a word of its own.

    Words before are put together again. Of the last one bash completes what is behind the last colon; what is before
    that is left in BEFORE_COLON.
    """
    words, index = os.environ.get("COMP_WORDS", "").split("\n"), os.environ.get("COMP_CWORD", "")
    if os.environ.get(VARIABLE) != "complete_bash" or ":" not in words or not index.isdigit():
        return
    whole: list[str] = []
    glue = False
    for word in words[: int(index) + 1]:
        if len(whole) > 1 and (glue or word == ":"):
            whole[-1] += word
        else:
            whole.append(word)
        glue = word == ":"
    before, colon, last = whole[-1].rpartition(":")
    os.environ[BEFORE_COLON] = before + colon
    os.environ["COMP_WORDS"], os.environ["COMP_CWORD"] = "\n".join([*whole[:-1], last]), str(len(whole) - 1)
