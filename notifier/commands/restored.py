"""`notifier restored`: what to do after the database was restored from a backup, and the first step of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from notifier.commands.options import usage
from notifier.domain.restore import SEVERAL_ACCOUNTS

if TYPE_CHECKING:
    from notifier.restore import Report, Told
    from notifier.settings import Settings

LISTED = 20
ACTOR = "command-line"
BATCHED = (
    "mails go in batches here, and which ones went together since then, and under which key, is lost: what was not in "
    "doubt before is not asked about again, and ends uncertain"
)
APART_S = 60.0  # from here on the backup and the time given do not seem to belong together
At = Annotated[
    str,
    typer.Option(
        metavar="TIME",
        help="Real time whose state the backup holds, like 2026-11-27T02:00:00Z; without a zone it is UTC. "
        "Rather a little too early than too late.",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and change nothing.")]
ToFile = Annotated[
    Path | None, typer.Option("--json", metavar="FILE", help="Write everything there, the whole list included.")
]
Advance = Annotated[
    float,
    typer.Option(
        "--advance-s", min=0, help="With NOTIFIER_CLOCK=virtual: how far business time was moved after that time."
    ),
]


def restored(at: At, dry_run: DryRun = False, json: ToFile = None, advance_s: Advance = 0) -> None:
    """Tell the service that its database was restored from a backup: what may have been sent since is put in doubt.

    The backup knows nothing of what happened after it was made: mails sent are owed again, logins are forgotten, and
    senders will repeat events it has never seen. Without this command, and once the provider has forgotten its keys,
    people would get mails twice. The procedure:

    1. Stop every api, worker and scheduler, also those on other hosts. Restore the database; `notifier migrate`.

    2. `notifier restored --at TIME --dry-run`, then without `--dry-run`. Use the settings the workers had
    (NOTIFIER_PROVIDER and those that belong to it): they say where the mails went.

    3. Start `notifier api`, and nothing else yet. Let senders repeat every event they sent since TIME less 5 minutes,
    whenever it occurred: logins included, under the same ids, each with the same `occurred_at`. An event without
    `occurred_at` seems to happen when it is repeated, and its mail would be a new one. If there was a restore before,
    and what was repeated then came after this backup was taken, go back to the TIME of that one. Erasures and other
    operators' acts are repeated last: an erased user's events mean nothing.

    4. Start workers and scheduler.

    In doubt are then: every mail that was owed or in a worker's hands, everything that fell due since TIME, and what
    is decided later from an event that may have been taken in that time, as it was not past its kind's max_age then.
    While the provider still knows their keys such mails go out under the same key, which it refuses if it has the mail
    already. Later nobody sends them without a person: they end `uncertain`, reason `restored` (`notifier
    notifications list --state uncertain`, then `resolve`). A login that comes for one of them is too late, as ever; if
    it is there before the workers are, no mail goes out.

    One transaction: it happens as a whole or not at all. To say the same TIME again changes nothing, and is refused
    once the database has been at work since, or with another provider account.
    Exit 0 when done, 1 when it could not be done, 2 when TIME cannot be meant.

    Example: `notifier restored --at 2026-11-27T02:00:00Z --json forgotten.json`
    """
    import asyncio
    import importlib

    from notifier.settings import load

    moment = read_time(at)
    if json is not None and json.is_dir():
        raise typer.BadParameter(f"{json} is a directory; name a file", param_hint="--json")
    if json is not None and not json.absolute().parent.is_dir():
        raise typer.BadParameter(f"there is no directory {json.parent}", param_hint="--json")
    settings = load()
    importlib.import_module("notifier.observe").configure_logging()
    _check(settings, advance_s)
    told = _told(settings, moment, timedelta(seconds=advance_s), dry_run, None if json else LISTED)
    act = importlib.import_module("notifier.restore")
    try:
        report: Report = asyncio.run(act.restore(settings, told))
    except act.NotThen as error:
        raise typer.BadParameter(str(error), param_hint="--at") from None
    _print(report, told, json)
    if json is not None:
        _write(json, _document(report, told))


def read_time(text: str) -> datetime:
    """Read an ISO 8601 date and time; UTC where it names no zone."""
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        moment = None
    if moment is None or len(text.strip()) <= len("2026-11-27"):  # a date alone would mean its midnight
        usage(f"--at {text!r} is no time: write a date and a time, like 2026-11-27T02:00:00Z")
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)


def _check(settings: Settings, advance_s: float) -> None:
    from notifier.domain.errors import SettingsError

    if not settings.database_url:
        raise SettingsError(
            "NOTIFIER_DATABASE_URL is not set: name the PostgreSQL that was restored (one of your own: what "
            "`notifier run` keeps in its DATA_DIR has no backups)"
        )
    if advance_s and settings.clock != "virtual":
        raise SettingsError("--advance-s moves business time: that is for NOTIFIER_CLOCK=virtual alone")


def _told(settings: Settings, at: datetime, ahead: timedelta, dry_run: bool, list_max: int | None) -> Told:
    from notifier.restore import Told
    from notifier.runtime import way_out

    traits = way_out(settings).traits
    if settings.batch_max > 1:  # which mails went together, and under which key, is lost with the lost time
        return Told(at, SEVERAL_ACCOUNTS, None, ahead, ACTOR, dry_run, list_max)
    repeatable_for = traits.window - timedelta(seconds=settings.claim_ttl_s) if traits.has_keys else None
    return Told(at, traits.account, repeatable_for, ahead, ACTOR, dry_run, list_max)


def _document(report: Report, told: Told) -> dict[str, Any]:
    from dataclasses import asdict

    document = asdict(report)
    document["may_have_been_canceled"] = document.pop("cancelable")
    return {"dry_run": told.dry_run, **document}


def _write(path: Path, document: dict[str, Any]) -> None:
    import json

    def plain(value: Any) -> str:
        return value.isoformat() if isinstance(value, datetime) else str(value)

    try:
        path.write_text(json.dumps(document, default=plain, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        from notifier.domain.errors import NotReady

        raise NotReady(f"{path} could not be written: {error.strerror}; the same command again writes it") from None


def _print(report: Report, told: Told, file: Path | None) -> None:
    from notifier.console import console, moment

    to = console()
    if report.known_since is not None:
        to.print(f"Told already at {moment(report.known_since)}: nothing was changed.", style="bold")
    else:
        to.print("What would be done:" if told.dry_run else "Done.", style="bold")
    to.print(f"The database holds what was true at {moment(report.at)}; its provider account is {report.account}.")
    for note in notes(report):
        to.print(f"! {note}", style="bold red")
    if report.known_since is None:
        to.print(f"  {report.opened:>7} owed or in a worker's hands: in doubt")
        to.print(f"  {report.due:>7} fell due since: owed, and in doubt")
    to.print(f"  {report.not_again:>7} of those in doubt can no longer be repeated: they will end uncertain")
    to.print(f"  {report.scheduled:>7} wait for their date, and were surely not sent")
    _list(report, file, to)
    if told.dry_run:
        to.print("\nNothing was changed: leave out --dry-run to do it.", style="yellow")
        return
    to.print("\nWhat to do now", style="bold underline")
    to.print("1. Start `notifier api`, and nothing else yet.")
    to.print(
        f"2. Let senders repeat every event they sent since {moment(report.sent_from)}, whenever it occurred, logins"
        " included: the same ids, and each with the same occurred_at. If what was repeated after an earlier restore"
        " came after this backup was taken, everything since the time of that one. Then repeat erasures and other"
        " operators' acts."
    )
    to.print("3. Start `notifier worker` and `notifier scheduler`.")
    to.print("4. `notifier notifications list --state uncertain` says for which mails a person has to decide.")


def _list(report: Report, file: Path | None, to: Any) -> None:
    """Show what may have been canceled since, the next due first; all of it is in the file."""
    from notifier.console import Columns, moment

    if not report.cancelable:
        return
    found = report.cancelable_count
    to.print(
        f"\nMay have been canceled since: {found.scheduled} scheduled, {found.in_doubt} in doubt. "
        f"Let every {' and '.join(found.event_types)} sent since {moment(report.sent_from)} be sent again, under the "
        "same id; until then they count as not canceled."
    )
    table = Columns(to, "notification", "kind", "user", "due", "now")
    table.add(
        [
            (str(row.id), row.kind, row.user_id, moment(row.due_at), "scheduled" if row.is_scheduled else "in doubt")
            for row in report.cancelable[:LISTED]
        ]
    )
    if (more := found.scheduled + found.in_doubt - LISTED) > 0:
        to.print(f"… and {more} more: " + (f"all are in {file}" if file else "`--json FILE` writes all of them"))


def notes(report: Report) -> list[str]:
    """What makes one doubt that this is the backup of that time, and what nobody may expect of it."""
    found = [BATCHED] if report.account == SEVERAL_ACCOUNTS else []
    return [*found, *_misgivings(report)]


def _misgivings(report: Report) -> list[str]:
    if report.newest is None:
        return []
    late_s = (report.newest - report.at).total_seconds()
    found = f"the last sign of life in this database is of {report.newest:%Y-%m-%d %H:%M:%S} UTC"
    if late_s > APART_S:
        return [f"{found}, after the time given: if that is no mistake, more is in doubt, and for longer, than need be"]
    if late_s < -APART_S:
        return [f"{found}, before the time given: if the backup is that old, give its time, or mails may go out twice"]
    return []
