"""The names a switch may have: what is held back by each."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection

from notifier.domain.errors import Invalid

NAME_PATTERN = r"(maintenance|pause(:provider:[a-z][a-z0-9_.-]{0,62}|:[a-z][a-z0-9_.-]{0,62})?)"
_NAME = re.compile(NAME_PATTERN)


def check_name(name: str) -> str:
    """Give the name back, or raise Invalid; whether there is such a kind or provider is another question."""
    if _NAME.fullmatch(name) is None:
        raise Invalid(
            f"there is no switch {name[:64]!r}: a name is pause, pause:<kind>, pause:provider:<name> or maintenance",
            pointer="/name",
        )
    return name


def check_target(name: str, kinds: Collection[str], providers: Collection[str]) -> None:
    """Raise Invalid for a pause of something there is not: a typing error would hold nothing back."""
    scope, _, target = name.partition(":")
    if scope != "pause" or not target:
        return
    if target.startswith("provider:"):
        check_known("provider", target.removeprefix("provider:"), providers, pointer="/name")
    else:
        check_known("kind", target, kinds, pointer="/name")


def check_known(what: str, name: str, known: Collection[str], *, pointer: str) -> None:
    """Raise Invalid unless `name` is one of those we know; the text says which those are."""
    if name in known:
        return
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"there are: {', '.join(sorted(known))}"
    raise Invalid(f"there is no {what} {name[:64]!r}; {hint}", pointer=pointer)
