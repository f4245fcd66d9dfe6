"""Which families of faults a list on the command line means, and what there is to choose from."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

import typer
from rich.console import Console
from rich.table import Table

from notifier.proof.chaos.schedule import CATALOG, DEFAULT_FAMILIES, FAMILIES

ALL, NONE = "all", "none"


def choose(text: str) -> tuple[str, ...]:
    """Read `kill,postgres`, `all,forget`, `-clocks` or `none`. Raises typer.BadParameter with the right names."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words:
        raise typer.BadParameter("name some families, or say `all` or `none`", param_hint="--faults")
    chosen: set[str] = set(DEFAULT_FAMILIES) if all(word.startswith("-") for word in words) else set()
    for word in words:
        name = word.removeprefix("-")
        if name in (ALL, NONE):
            meant = set(DEFAULT_FAMILIES) if name == ALL else set()
        elif name in FAMILIES:
            meant = {name}
        else:
            near = difflib.get_close_matches(name, FAMILIES, n=1)
            hint = f"did you mean {near[0]}?" if near else "there are " + ", ".join(FAMILIES)
            raise typer.BadParameter(f"there is no family {name!r}: {hint}", param_hint="--faults")
        chosen = chosen - meant if word.startswith("-") else chosen | meant
    return tuple(family for family in FAMILIES if family in chosen)


def by_name(text: str) -> tuple[str, ...]:
    """Those of a list that has been read which it names one by one."""
    return tuple(word for word in (part.strip() for part in text.split(",")) if word in FAMILIES)


def named(families: Sequence[str]) -> str:
    """The shortest list that means these."""
    more = [family for family in families if family not in DEFAULT_FAMILIES]
    if set(families) >= set(DEFAULT_FAMILIES):
        return ",".join([ALL, *more])
    return ",".join(families) or NONE


def teach(console: Console) -> None:
    """Say what there is to choose from."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("Family")
    table.add_column("What is done to it")
    for family in FAMILIES:
        note = "" if family in DEFAULT_FAMILIES else " (only when asked for)"
        table.add_row(family, ", ".join(kind.name.replace("_", " ") for kind in CATALOG[family]) + note)
    console.print(table)
    console.print(
        "\n`--faults kill,postgres` only these, `--faults=-clocks` all but this, `--faults all,forget` all and this."
    )
