"""`notifier doctor`: look at everything an installation stands on, and say what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from notifier.commands.options import AsJson

if TYPE_CHECKING:
    from notifier.doctor import Finding
    from notifier.settings import Settings

MARKS = {
    "ok": ("ok", "green"),
    "warning": ("warning", "yellow"),
    "failed": ("FAILED", "bold red"),
    "skipped": ("-", "dim"),
}


def doctor(json: AsJson = False) -> None:
    """Look at everything this installation stands on, and say what to do. Changes nothing.

    Settings, journeys and templates, database, Redis, provider, api and its key, processes, clocks, disk and ports.
    Exit 1 when something does not work, 0 when there are at most warnings.

    Example: `notifier doctor`
    """
    import asyncio

    import typer

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
        asyncio.run(_examine(load(), tell))
    except SettingsError as error:
        from notifier.doctor.finding import failed

        tell(failed("settings", str(error), "mend the environment or .env; nothing else was looked at"))
    worst = {finding.verdict for finding in found}
    if json:
        console.say_json({"ok": "failed" not in worst, "findings": [_document(finding) for finding in found]}, indent=2)
    else:
        _conclude(found, to)
    raise typer.Exit(1 if "failed" in worst else 0)


async def _examine(settings: Settings, tell: Any) -> None:
    from notifier.doctor import examine

    async for finding in examine(settings):
        tell(finding)


def _document(finding: Finding) -> dict[str, str]:
    return {"about": finding.about, "verdict": finding.verdict, "text": finding.text, "todo": finding.todo}


def _print(finding: Finding, to: Any) -> None:
    from rich.text import Text

    from notifier.console import clean

    word, style = MARKS[finding.verdict]
    lines = clean_lines(finding.text)
    to.print(Text.assemble((f"{word:<8}", style), (f"{finding.about:<15} ", "bold"), lines[0]))
    for line in lines[1:]:
        to.print(f"{'':<24}{line}")
    if finding.todo:
        to.print(Text.assemble((f"{'':<24}> ", style), clean(finding.todo)))


def clean_lines(text: str) -> list[str]:
    """The lines of a message, each fit for a terminal."""
    from notifier.console import clean

    return [clean(line) for line in text.splitlines()] or [""]


def _conclude(found: list[Finding], to: Any) -> None:
    failed = sum(finding.verdict == "failed" for finding in found)
    warned = sum(finding.verdict == "warning" for finding in found)
    if failed:
        to.print(f"\n{failed} failed, {warned} warnings. Begin with the first that failed.", style="bold red")
    elif warned:
        to.print(f"\nIt works, with {warned} warnings.", style="yellow")
    else:
        to.print("\nAll is well.", style="green")
