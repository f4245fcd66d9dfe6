"""The command behind scripts/bench.py: measure, show, write down; or compare what one run wrote."""

from __future__ import annotations

import asyncio
import json as json_text
import logging
import random
import secrets
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import structlog
import typer
from rich.console import Console

from notifier.domain.errors import NotReady
from notifier.proof.bench.figures import NotComparable, compare, summarize, to_document
from notifier.proof.bench.goals import judge
from notifier.proof.bench.machine import new_run
from notifier.proof.bench.plan import Wish
from notifier.proof.bench.processes import SOURCE, Broken
from notifier.proof.bench.report import show
from notifier.proof.bench.run import WORKS, run
from notifier.proof.bench.sides import BY_NAME
from notifier.proof.chaos.screen import Screen
from notifier.supervisor.conductor import Signals

EXIT_BY_SIGNAL = 128
QUICK_SCALE = 0.05
PAGE = SOURCE / "docs" / "performance.md"
WIDTH = 160  # of a table in a file
GROWTH = (10_000, 1_000_000)
QUICK_GROWTH = (500, 2_000)

_app = typer.Typer(add_completion=False, rich_markup_mode="markdown", pretty_exceptions_enable=False)
_WORKS = ", ".join(f"{name} ({about})" for name, (about, _) in WORKS.items())


def main(given: Sequence[str] | None = None) -> int:
    """Run the bench as the command line says; what went wrong is one message, not a traceback."""
    try:
        _app(given, prog_name="bench.py")
    except SystemExit as end:
        return int(end.code or 0)
    except (NotReady, Broken, NotComparable, OSError) as error:
        said = f"bench: {str(error) or type(error).__name__}"
        Console(stderr=True).print(said, style="red", highlight=False, markup=False, soft_wrap=True)
        return 1
    except KeyboardInterrupt:  # before anybody listened for it
        return EXIT_BY_SIGNAL + 2
    return 0


@_app.command()
def bench(
    works: Annotated[str, typer.Option(metavar="LIST", help=f"What is measured, with commas: {_WORKS}.")] = ",".join(
        WORKS
    ),
    sides: Annotated[
        str, typer.Option(metavar="LIST", help=f"Who is measured, with commas: {', '.join(BY_NAME)}.")
    ] = ",".join(BY_NAME),
    rounds: Annotated[int, typer.Option(min=1, max=50, help="How often each is measured; the sides take turns.")] = 3,
    workers: Annotated[str, typer.Option(metavar="LIST", help="Numbers of workers that drain.")] = "1,2,4",
    slots: Annotated[
        int | None, typer.Option(min=1, max=2_000, help="Calls in hand per worker of ours and the floor. Default: 100.")
    ] = None,
    scale: Annotated[float, typer.Option(min=0.01, max=100, help="So many times the usual number of mails.")] = 1.0,
    growth: Annotated[
        str | None, typer.Option(metavar="LIST", help="Rows of history, with commas. Default: 10000,1000000.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Everything once, and small: whether it works, not how fast.")
    ] = False,
    seed: Annotated[int | None, typer.Option(min=0, help="Which side begins. Default: drawn.")] = None,
    json: Annotated[Path | None, typer.Option(metavar="FILE", help="Write all figures.")] = None,
    pictures: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write a picture for each growth curve (needs matplotlib).")
    ] = None,
    data_dir: Annotated[Path, typer.Option(metavar="DIR", help="Where the peers are installed, once.")] = Path(
        ".notifier-bench"
    ),
    compared: Annotated[
        tuple[Path, Path] | None,
        typer.Option("--compare", metavar="FILE FILE", help="Instead: ratios between two files of one run."),
    ] = None,
    published: Annotated[
        list[Path] | None,
        typer.Option(
            "--publish",
            metavar="FILE",
            help="Instead: put what --json wrote into the page, tables and pictures (needs matplotlib); repeatable.",
        ),
    ] = None,
    page: Annotated[Path, typer.Option(metavar="FILE", help="The page for --publish.")] = PAGE,
) -> None:
    """Measure this service beside other Postgres queues and beside the floor, in one run on this machine.

    Servers and databases are the run's own and gone afterwards; fsync is on. The sides take turns, and every figure is
    the median of its rounds. Beside each rate: processor time per mail of service, database and receiver, bytes of
    write-ahead log, commits, statements, and a calibration loop that tells when the machine was busy with something
    else. Only ratios inside one run mean anything; files of two runs are not compared.

    Examples: `--works noop,http --sides ours,floor,pgqueuer` · `--quick` · `--works growth --growth
    10000,1000000,10000000 --pictures docs`.

    Exit 0 when all was measured, 1 when a side broke or could not start, 2 for a wrong command line, 130 after Ctrl-C.
    """
    console, errors = Console(width=None if sys.stdout.isatty() else WIDTH), Console(stderr=True)
    if compared is not None:
        _compare(console, *compared)
        return
    if published:
        _publish(console, page, published)
        return
    for option, path in (("--json", json),):
        if path is not None and (path.is_dir() or not path.absolute().parent.is_dir()):
            raise typer.BadParameter(f"{path} cannot be a file", param_hint=option)
    if pictures is not None and not pictures.is_dir():
        raise typer.BadParameter(f"there is no directory {pictures}", param_hint="--pictures")
    seed = secrets.randbelow(10**6) if seed is None else seed
    chosen = [BY_NAME[name] for name in _listed(sides, list(BY_NAME), "--sides")]
    random.Random(seed).shuffle(chosen)
    wish = Wish(
        seed=seed,
        rounds=1 if quick else rounds,
        works=_listed(works, list(WORKS), "--works"),
        sides=chosen,
        workers=[1] if quick else _numbers(workers, "--workers"),
        callers=[20] if quick else [1, 20, 200],
        clients=[20] if quick else [1, 20, 100],
        growth=_numbers(growth, "--growth") if growth else QUICK_GROWTH if quick else GROWTH,
        scale=QUICK_SCALE if quick else scale,
        quick=quick,
        slots=slots,
    )
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))  # the screen tells
    code, document = asyncio.run(_measure(wish, data_dir.absolute(), console, errors))
    if document is not None:
        _write(document, json, pictures, console)
    raise typer.Exit(code)


async def _measure(
    wish: Wish, data_dir: Path, console: Console, errors: Console
) -> tuple[int, Mapping[str, Any] | None]:
    """Give the exit code, and everything measured unless it was stopped."""
    signals, screen = Signals(), Screen(errors)
    about = new_run(wish.seed)
    with signals.listening(), screen.moving(f"bench {about['run']}, seed {wish.seed}"):
        found = await signals.unless_stopped(run(wish, data_dir, screen.tell))
    if found is None:
        errors.print("Stopped; everything is put away.")
        return EXIT_BY_SIGNAL + (signals.first or 0), None
    done, versions = found
    show(console, done, versions)
    about |= {"versions": dict(versions), "skipped": done.skipped, "quick": wish.quick, "rounds": wish.rounds}
    about["goals"] = [{**asdict(ratio), "met": ratio.is_met} for ratio in judge(summarize(done.measured))]
    return 0, to_document(about, done.measured)


def _write(document: Mapping[str, Any], json: Path | None, pictures: Path | None, console: Console) -> None:
    if json is not None:
        json.write_text(json_text.dumps(document, indent=1, ensure_ascii=False) + "\n", "utf-8")
    if pictures is not None:
        from notifier.proof.bench.picture import draw  # matplotlib takes a second to load

        for path in draw(document, pictures):
            console.print(f"written: {path}", highlight=False)


def _listed(text: str, known: Sequence[str], option: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if unknown := sorted(set(names) - set(known)):
        raise typer.BadParameter(f"{', '.join(unknown)}: there are {', '.join(known)}", param_hint=option)
    if not names:
        raise typer.BadParameter(f"name at least one of {', '.join(known)}", param_hint=option)
    return list(dict.fromkeys(names))


def _numbers(text: str, option: str) -> list[int]:
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no list of whole numbers with commas", param_hint=option) from None
    if min(numbers) < 1:
        raise typer.BadParameter("every number is at least 1", param_hint=option)
    return numbers


def _compare(console: Console, left: Path, right: Path) -> None:
    for work, a, b, ratio in compare(_read(left), _read(right)):
        console.print(f"{work}: {a} is {ratio:.2f} × {b}", highlight=False)


def _publish(console: Console, page: Path, files: Sequence[Path]) -> None:
    from notifier.proof.bench.page import fill  # matplotlib takes a second to load

    for path in fill(page, [_read(file) for file in files]):
        console.print(f"written: {path}", highlight=False)


def _read(path: Path) -> Mapping[str, Any]:
    try:
        document: Mapping[str, Any] = json_text.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise NotComparable(f"{path} cannot be read: {error}") from None
    return document


if __name__ == "__main__":
    sys.exit(main())
