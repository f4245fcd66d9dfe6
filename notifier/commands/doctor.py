"""`notifier doctor`: look at everything an installation stands on, and say what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from notifier.doctor import Finding
    from notifier.settings import Settings

INDENT = 24
MARKS = {
    "ok": ("ok", "green"),
    "warning": ("warning", "yellow"),
    "failed": ("FAILED", "bold red"),
    "skipped": ("-", "dim"),
}


def doctor(
    probe: Annotated[
        bool, typer.Option("--probe", help="Let a made-up user sign up, get the mail, log in and be erased; mock only.")
    ] = False,
    probe_to: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="The same, with its mail to this address, whatever sends it.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="One document, for programs.")] = False,
) -> None:
    """Look at everything this installation stands on, and say what to do. Changes nothing, unless asked to --probe.

    Settings, journeys and templates, database, Redis, provider, api and its key, processes, clocks, disk and ports.
    Exit 1 when something does not work, 0 when there are at most warnings.

    A probe goes the whole way through the api, workers and provider, each step timed, in half a minute at most while
    the api answers. It needs a key that may `events read operate`. Its user is erased again.

    Example: `notifier doctor`

    Example: `notifier doctor --probe`
    """
    import asyncio

    from notifier import console
    from notifier.domain.errors import SettingsError
    from notifier.settings import load

    found: list[Finding] = []
    to = console.console()

    def tell(finding: Finding) -> None:
        found.append(finding)
        if not json:
            _print(finding, to)

    try:
        asyncio.run(_examine(load(), tell, probe, probe_to))
    except SettingsError as error:
        from notifier.doctor.finding import failed

        tell(failed("settings", str(error), "mend the environment or .env; nothing else was looked at"))
    worst = {finding.verdict for finding in found}
    if json:
        console.say_json({"ok": "failed" not in worst, "findings": [_document(finding) for finding in found]}, indent=2)
    else:
        _conclude(found, to)
    raise typer.Exit(1 if "failed" in worst else 0)


async def _examine(settings: Settings, tell: Any, probe: bool, probe_to: str | None) -> None:
    from contextlib import aclosing

    from notifier.doctor import examine

    async with aclosing(examine(settings, probe=probe, probe_to=probe_to)) as findings:
        async for finding in findings:
            tell(finding)


def _document(finding: Finding) -> dict[str, str]:
    return {"about": finding.about, "verdict": finding.verdict, "text": finding.text, "todo": finding.todo}


def _print(finding: Finding, to: Any) -> None:
    from rich.text import Text

    word, style = MARKS[finding.verdict]
    first, *others = _fold(finding.text, to)
    to.print(Text.assemble((f"{word:<8}", style), (f"{finding.about:<15} ", "bold"), first))
    for line in others:
        to.print(" " * INDENT + line)
    for number, line in enumerate(_fold(finding.todo, to, 2) if finding.todo else []):
        to.print(Text.assemble((" " * INDENT + ("  " if number else "> "), style), line))


def _fold(text: str, to: Any, further: int = 0) -> list[str]:
    """The lines of a message, folded between words on a terminal; what is copied from one stays whole."""
    import textwrap

    from notifier.console import clean

    room = max(40, to.width - INDENT - further) if to.is_terminal else 100_000
    lines = [clean(line) for line in text.splitlines()]
    return [
        part for line in lines for part in textwrap.wrap(line, room, break_long_words=False, break_on_hyphens=False)
    ] or [""]


def _conclude(found: list[Finding], to: Any) -> None:
    failed = sum(finding.verdict == "failed" for finding in found)
    warned = sum(finding.verdict == "warning" for finding in found)
    warnings = f"{warned} warning{'' if warned == 1 else 's'}"
    if failed:
        to.print(f"\n{failed} failed, {warnings}. Begin with the first that failed.", style="bold red")
    elif warned:
        to.print(f"\nIt works, with {warnings}.", style="yellow")
    else:
        to.print("\nAll is well.", style="green")
