"""The command line: one command per process or operator act."""

from __future__ import annotations

import atexit
import gc
import importlib
import math
import os
import sys
from collections.abc import Coroutine, Mapping
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_args
from urllib.parse import urlsplit

import typer
from typer.core import TyperCommand

from notifier import version
from notifier.commands import completion, doctor, events, notifications, restored, switches

if TYPE_CHECKING:
    import asyncio

    from notifier.lifecycle import Ready, Serve
    from notifier.settings import Settings

# What a command needs it imports itself: `--help` and a typing error should not wait for a database driver.

T = TypeVar("T")

LOADED = 50_000  # objects; of what a start loads next to nothing is garbage, and to look for it takes its time
EXIT_FAILURE = 1
EXIT_REFUSED = 2

app = typer.Typer(
    name="notifier",
    help=(
        "Onboarding and follow-up mails, each sent once.\n\n"
        "Start with `notifier demo` to see it, `notifier run` to use it.\n\n"
        "Example: `notifier run`, and beside it `notifier events send user.signed_up --user u_1 --email a@example.com`"
    ),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)

ReadyFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Written once everything answers: addresses and process ids, as JSON."),
]
ParentFd = Annotated[int | None, typer.Option(hidden=True)]


def _say_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"notifier {version()}")
        raise typer.Exit


@app.callback()
def common(
    _: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_say_version, help="Say which it is.")
    ] = False,
) -> None:
    """Take what stands before a command."""


class WithSettings(TyperCommand):
    """A command whose help ends with every setting there is."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the usual help, then the settings."""
        super().format_help(ctx, formatter)
        typer.echo(_settings_help())


@app.command(cls=WithSettings)
def run(ready_file: ReadyFile = None, parent_fd: ParentFd = None) -> None:
    """Start everything: PostgreSQL, Valkey, migrations, api, workers, scheduler, mock provider.

    What is configured is used instead of started: NOTIFIER_DATABASE_URL, NOTIFIER_REDIS_URL (empty: without
    Redis), NOTIFIER_MOCK_URL. Data, keys and logs are kept in NOTIFIER_DATA_DIR. Ctrl-C stops it cleanly; a second
    one hurries.

    Example: `NOTIFIER_API_PORT=0 NOTIFIER_WORKERS=4 notifier run --ready-file ready.json`
    """
    settings = _load(database=False)
    _check_parent(ready_file)
    from notifier.supervisor import run as run_all
    from notifier.supervisor.children import ChildFailed

    try:
        _run(run_all(settings, ready_file=ready_file, parent_fd=parent_fd))
    except ChildFailed as error:
        _fail(error, EXIT_REFUSED if error.refused else EXIT_FAILURE)


@app.command()
def demo(
    people: Annotated[int, typer.Option(min=20, max=1_000, help="How many sign up.")] = 120,
    json: Annotated[
        bool, typer.Option("--json", help="The numbers for programs; the story goes to standard error.")
    ] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Leave it running until Ctrl-C, and keep its files.")] = False,
) -> None:
    """Show in about 20 seconds what this is for: people, breakdowns, three days, and a count at the end.

    It starts everything in a directory of its own, heeds no NOTIFIER_ setting and no .env, and leaves nothing behind.
    Exit 1 when a number is not what it must be.

    Example: `notifier demo --people 60 --json`
    """

    async def act() -> int:  # a Ctrl-C during the import, too, is one
        code: int = await importlib.import_module("notifier.demo").show(people, as_json=json, keep=keep)
        return code

    raise typer.Exit(_run(act()))


@app.command()
def migrate() -> None:
    """Bring the database's schema to what this build needs. Safe to run twice, and several at once.

    Example: `NOTIFIER_DATABASE_URL=postgresql://me@db/notifier notifier migrate`
    """
    settings = _load()
    from notifier.store.migrate import migrate as migrate_to_head

    async def act() -> None:
        typer.echo(f"the schema is at revision {await migrate_to_head(settings.database_url or '')}")

    _run(act())


@app.command()
def api(ready_file: ReadyFile = None, parent_fd: ParentFd = None) -> None:
    """Take events and answer questions over HTTP. Any number may run.

    Example: `NOTIFIER_API_KEYS='{"secret": ["events", "read", "operate"]}' NOTIFIER_API_PORT=8081 notifier api`
    """
    settings = _load()
    if not settings.api_keys:
        _refuse(
            "NOTIFIER_API_KEYS is not set: nobody could call this API. "
            'Set it, e.g. NOTIFIER_API_KEYS=\'{"a-long-secret": ["events", "read", "operate"]}\''
        )
    _serve("notifier.http.app", settings, ready_file, parent_fd, {settings.api_port: "NOTIFIER_API_PORT"})


@app.command()
def worker(ready_file: ReadyFile = None, parent_fd: ParentFd = None) -> None:
    """Claim what is due and hand it to the provider. Any number may run.

    Example: `NOTIFIER_WORKER_CONCURRENCY=100 notifier worker`
    """
    _serve("notifier.worker.loop", _load(), ready_file, parent_fd)


@app.command()
def scheduler(ready_file: ReadyFile = None, parent_fd: ParentFd = None) -> None:
    """Release follow-ups when their time has come. One is enough, two do no harm.

    Example: `notifier scheduler --ready-file scheduler.json`
    """
    _serve("notifier.scheduler", _load(), ready_file, parent_fd)


@app.command()
def mock_provider(
    ready_file: ReadyFile = None,
    parent_fd: ParentFd = None,
    duplicate_mode: Annotated[
        str | None, typer.Option(help="reject, replay, drop or none; NOTIFIER_MOCK_FAMILY unless given.")
    ] = None,
    key_ttl_s: Annotated[
        float | None, typer.Option(min=0, help="How long keys are remembered; NOTIFIER_MOCK_WINDOW_S unless given.")
    ] = None,
) -> None:
    """A mail provider to run at home: takes mails in Resend's format or by SMTP, sends nothing, shows an inbox.

    Example: `NOTIFIER_MOCK_PORT=8025 notifier mock-provider --duplicate-mode replay`
    """
    settings = _load(database=False)
    _check_parent(ready_file)
    from providers.base import Family

    if key_ttl_s is not None and not math.isfinite(key_ttl_s):
        raise typer.BadParameter("a number of seconds", param_hint="--key-ttl-s")
    if duplicate_mode is not None and duplicate_mode not in set(Family):
        raise typer.BadParameter(f"one of {', '.join(Family)}", param_hint="--duplicate-mode")

    async def serve(stop: asyncio.Event, ready: Ready) -> None:
        from notifier.embedded.process import make_data_dir

        make_data_dir(settings.data_dir)
        await importlib.import_module("providers.mock.app").serve(
            host=settings.host,
            port=settings.mock_port,
            smtp_port=settings.mock_smtp_port,
            data_dir=settings.data_dir / "mock",
            stop=stop,
            ready=lambda url, smtp: ready(url, None, smtp=smtp),
            duplicate_mode=duplicate_mode or settings.mock_family.value,
            key_ttl_s=settings.mock_window_s if key_ttl_s is None else key_ttl_s,
            names=[called] if (called := urlsplit(settings.mock_url or "").hostname) else [],
        )

    port_settings = {settings.mock_port: "NOTIFIER_MOCK_PORT", settings.mock_smtp_port: "NOTIFIER_MOCK_SMTP_PORT"}
    _run_until_stopped(serve, settings, ready_file, parent_fd, port_settings)


@app.command()
def status(json: Annotated[bool, typer.Option("--json", help="For programs.")] = False) -> None:
    """Say what is owed, what is stuck, and who is working on it. Exit 1 when something is wrong.

    Without NOTIFIER_DATABASE_URL it asks the PostgreSQL of the `notifier run` in NOTIFIER_DATA_DIR.

    Example: `notifier status --json`
    """
    settings, whose = _load(database=False), ""
    if not settings.database_url:
        from notifier.embedded import noted_url

        if (noted := noted_url(settings.data_dir)) is None:
            _refuse(
                f"NOTIFIER_DATABASE_URL is not set, and no `notifier run` has kept a database in {settings.data_dir}: "
                "name the one, or the other with NOTIFIER_DATA_DIR"
            )
        settings, whose = settings.model_copy(update={"database_url": noted}), f"the run in {settings.data_dir}"
    raise typer.Exit(importlib.import_module("notifier.status").show(settings, json=json, whose=whose))


app.command()(doctor.doctor)
app.command()(restored.restored)
app.add_typer(notifications.app, name="notifications")
app.add_typer(switches.app, name="switch")
app.add_typer(events.app, name="events")


def main() -> None:
    """Run the command line; what the operator must act on is one message, not a traceback."""
    gc.set_threshold(LOADED)
    atexit.register(gc.freeze)  # what is left goes with the process; the interpreter would look through it three times
    from notifier.domain.errors import NotifierError, SettingsError

    completion.mend_bash_words()
    try:
        app(prog_name="notifier")
    except SettingsError as error:
        _fail(error, EXIT_REFUSED)
    except NotifierError as error:
        _fail(error, EXIT_FAILURE)
    finally:
        _let_go_of_output()


def _let_go_of_output() -> None:
    try:
        sys.stdout.flush()
    except BrokenPipeError:  # whoever read it had enough; the interpreter would complain at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _load(*, database: bool = True) -> Settings:
    from notifier import failpoints
    from notifier.settings import load

    settings = load()
    failpoints.arm(settings.failpoints)
    importlib.import_module("notifier.observe").configure_logging()
    if database and not settings.database_url:
        _refuse(
            "NOTIFIER_DATABASE_URL is not set: name a PostgreSQL (15 or newer), "
            "e.g. postgresql://user:password@host/notifier, or use `notifier run`, which brings one"
        )
    return settings


def _serve(
    module: str,
    settings: Settings,
    ready_file: Path | None,
    parent_fd: int | None,
    port_settings: Mapping[int, str] | None = None,
) -> None:
    _check_parent(ready_file)

    async def serve(stop: asyncio.Event, ready: Ready) -> None:
        await importlib.import_module(module).serve(settings, stop=stop, ready=ready)

    port_settings = port_settings or {settings.metrics_port: "NOTIFIER_METRICS_PORT"}
    _run_until_stopped(serve, settings, ready_file, parent_fd, port_settings)


def _run_until_stopped(
    serve: Serve,
    settings: Settings,
    ready_file: Path | None,
    parent_fd: int | None,
    port_settings: Mapping[int, str],
) -> None:
    from notifier.lifecycle import run_until_stopped

    _run(
        run_until_stopped(
            serve, ready_file=ready_file, parent_fd=parent_fd, host=settings.host, port_settings=port_settings
        )
    )


def _run(act: Coroutine[Any, Any, T]) -> T:
    import uvloop

    try:
        return uvloop.run(act)
    except KeyboardInterrupt:  # before anybody listened for it
        sys.exit(130)


def _check_parent(ready_file: Path | None) -> None:
    if ready_file and not ready_file.absolute().parent.is_dir():
        raise typer.BadParameter(f"there is no directory {ready_file.parent}", param_hint="--ready-file")


def _refuse(text: str) -> None:
    from notifier.domain.errors import SettingsError

    raise SettingsError(text)


def _fail(error: Exception | str, code: int) -> None:
    for line in str(error).splitlines():
        typer.echo(f"notifier: {line}", err=True)
    sys.exit(code)


def _choices(annotation: Any) -> str:
    """The words a setting takes, where it takes only these."""
    parts = [part for part in (get_args(annotation) or (annotation,)) if part is not type(None)]
    enum_of = parts[0] if len(parts) == 1 and isinstance(parts[0], type) and issubclass(parts[0], Enum) else None
    words = (
        [member.value for member in enum_of]
        if enum_of
        else [word for part in parts for word in (get_args(part) or (part,))]
    )
    return f"{' | '.join(words)}: " if words and all(isinstance(word, str) for word in words) else ""


def _settings_help() -> str:
    from notifier.settings import PREFIX, Settings

    lines = ["Settings, from the environment or a file .env:"]
    for name, field in Settings.model_fields.items():
        default = "" if field.default in (None, "", ()) or field.default_factory else f" [{field.default}]"
        lines.append(f"  {PREFIX}{name.upper():<30} {_choices(field.annotation)}{field.description}{default}")
    return "\n".join(lines)
