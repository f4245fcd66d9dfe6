"""What `run` tells the person who started it."""

from __future__ import annotations

import contextlib
import os
import shlex
from pathlib import Path

from rich.console import Console
from rich.markup import escape

EVENT = '{"id":"evt_1","type":"user.signed_up","user":{"id":"u_1","email":"ada@example.com","name":"Ada"}}'


def announce(
    *,
    api: str,
    mock: str | None,
    smtp: str | None,
    data_dir: Path,
    postgres: str,
    redis: str,
    seconds: float,
    workers: int,
) -> None:
    """Print the addresses and a first event to send; whoever was to read it may have gone."""
    with contextlib.suppress(OSError, SystemExit):  # the library leaves the process when its pipe is broken
        _announce(api, mock, smtp, data_dir, postgres, redis, seconds, workers)


def _announce(
    api: str,
    mock: str | None,
    smtp: str | None,
    data_dir: Path,
    postgres: str,
    redis: str,
    seconds: float,
    workers: int,
) -> None:
    where = shlex.quote(_short(data_dir))
    rows = [
        ("API", api, f"described at {api}/docs"),
        ("Inbox", mock or "-", "every mail the mock provider took" if mock else "no mock provider here"),
        *([("SMTP", smtp, "takes mails into the same inbox")] if smtp else []),
        ("PostgreSQL", postgres, ""),
        ("Redis", redis, ""),
        ("Data", where, f"logs in {where}/logs"),
    ]
    console = Console(soft_wrap=True, highlight=False)
    console.print(f"\n[bold green]notifier is up[/] ({seconds:.1f} s). Ctrl-C stops it.\n")
    for name, value, remark in rows:
        console.print(f"  {name:<11}[bold]{escape(value)}[/]  [dim]{escape(remark)}[/]".rstrip())
    console.print("\nSend a first event:\n")
    console.print(curl(api, where), markup=False, style="cyan")
    if not workers:
        console.print("\n[bold]No workers run here (NOTIFIER_WORKERS=0): nothing is sent until one is started.[/]\n")
    elif mock:
        console.print(f"\nand look at {mock} for the mail.\n")


def curl(api: str, data_dir: str) -> str:
    """A command to copy; the key stays in its file."""
    return (
        f"curl -sS {api}/v1/events \\\n"
        f'  -H "Authorization: Bearer $(cat {data_dir}/api_key)" \\\n'
        "  -H 'Content-Type: application/json' \\\n"
        f"  -d '{EVENT}'"
    )


def _short(path: Path) -> str:
    relative = os.path.relpath(path)
    return relative if not relative.startswith("..") else str(path)
