"""The names a switch may have: what is held back by each."""

from __future__ import annotations

import re

from notifier.domain.errors import Invalid

NAME_PATTERN = r"(maintenance|pause(:provider:[a-z][a-z0-9_.-]{0,62}|:[a-z][a-z0-9_.-]{0,62})?)"
_NAME = re.compile(NAME_PATTERN)


def check_name(name: str) -> str:
    """Give the name back, or raise Invalid. A kind or provider this build does not know is fine: another may."""
    if _NAME.fullmatch(name) is None:
        raise Invalid(
            f"there is no switch {name[:64]!r}: a name is pause, pause:<kind>, pause:provider:<name> or maintenance",
            pointer="/name",
        )
    return name
