"""`notifier events`: say what happened, once or many times over."""

from __future__ import annotations

import json as json_text
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from notifier.commands import completion
from notifier.commands.options import group, open_api, usage

if TYPE_CHECKING:
    from rich.console import Console

    from notifier.client.api import Answer, Api
    from notifier.commands.feed import Line, Result, Tally

REFUSED_SHOWN_MAX = 20

app = group("Say what happened.\n\nExample: `notifier events send user.signed_up --user u_1 --email ada@example.com`")


@app.command()
def send(
    type_: Annotated[
        str | None,
        typer.Argument(
            metavar="TYPE", help="What happened, e.g. user.signed_up.", autocompletion=completion.event_types
        ),
    ] = None,
    user: Annotated[str | None, typer.Option(help="The user's id.")] = None,
    email: Annotated[str | None, typer.Option(help="Where the user's mails go.")] = None,
    name: Annotated[str | None, typer.Option(help="What the user is called.")] = None,
    timezone: Annotated[str | None, typer.Option(help="IANA time zone, e.g. Europe/London.")] = None,
    locale: Annotated[str | None, typer.Option(help="Language, e.g. en.")] = None,
    attribute: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="Of the user; JSON or text; may be repeated.")
    ] = None,
    data: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="Of the event; JSON or text; may be repeated.")
    ] = None,
    occurred_at: Annotated[
        str | None, typer.Option(metavar="TIME", help="When, e.g. 2026-11-29T10:00:00Z; now unless given.")
    ] = None,
    id_: Annotated[str | None, typer.Option("--id", help="Makes a repeat harmless; made unless given.")] = None,
    file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Many events: one JSON object a line (NDJSON); - for standard input."),
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="The API's answer; with --file as NDJSON, one result a line.")
    ] = False,
) -> None:
    """Send one event, or a file of them, and show what that led to. Exit 1 when any was refused.

    A line without an id gets one. Give ids yourself where the file may be sent twice: then a repeat changes nothing.

    Example: `notifier events send user.signed_up --user u_1 --email ada@example.com --name Ada`

    Example: `notifier events send --file events.ndjson`
    """
    of_user = {"id": user, "email": email, "name": name, "timezone": timezone, "locale": locale}
    of_event = {"id": id_, "type": type_, "occurred_at": occurred_at}
    if file is not None:
        if any((*of_user.values(), *of_event.values(), attribute, data)):
            usage("--file brings whole events: leave out TYPE and the options that describe one")
        _send_file(open_api(), file, json)
        return
    if not type_ or not user:
        usage("say what happened and to whom: TYPE and --user; or bring many with --file FILE (- for standard input)")
    person: dict[str, Any] = {key: value for key, value in of_user.items() if value is not None}
    if attribute:
        person["attributes"] = _pairs(attribute, "--attribute")
    document: dict[str, Any] = {key: value for key, value in of_event.items() if value is not None}
    document["user"] = person
    if data:
        document["data"] = _pairs(data, "--data")
    _send_one(open_api(), document, json)


def _pairs(texts: Sequence[str], option: str) -> dict[str, Any]:
    found = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not key or not equals:
            usage(f"{option} takes NAME=VALUE, not {text!r}")
        try:
            found[key] = json_text.loads(value)
        except ValueError:
            found[key] = value
    return found


def _send_one(api: Api, document: dict[str, Any], json: bool) -> None:
    from notifier.client.api import Refused, path
    from notifier.commands import feed
    from notifier.console import console
    from notifier.domain.errors import NotReady

    waiting = partial(feed.wait, console(to_stderr=True))
    document = {"id": feed.new_event_id()} | document
    try:
        answer = feed.repeated(lambda: api.ask("POST", path("events"), scope="events", body=document), waiting)
    except NotReady as error:
        raise NotReady(f"{error}\nTo repeat it safely add --id {document['id']}") from None
    except Refused as error:
        if error.status in feed.REPEAT:
            raise Refused(f"{error}\nTo repeat it safely add --id {document['id']}", error.answer) from None
        raise
    _tell_one(answer, document["user"]["id"], json)


def _tell_one(answer: Answer, user: str, json: bool) -> None:
    from notifier import console

    told = answer.body
    if json:
        console.say_json(told, indent=2)
        return
    to = console.console()
    event = told["event"]
    again = "was taken before, and this is what it led to" if event["duplicate"] else "is taken"
    to.print(f"{event['type']} of user {console.clean(user)} {again}. Its id: {event['id']}")
    rows = [
        *(("existed before" if item.get("existing") else "created", item) for item in told["notifications"]),
        *(("canceled", item) for item in told["canceled"]),
        *(("too late for", item) for item in told["too_late"]),
    ]
    if not rows:
        to.print("  No mail hangs on it: nothing was created or canceled.", style="dim")
    table = console.Columns(to, "", "kind", "state then" if event["duplicate"] else "state", "when", "id")
    table.add([(f"  {what}", item["kind"], _state(what, item), _when(item, answer), item["id"]) for what, item in rows])


def _state(what: str, item: Mapping[str, Any]) -> Any:
    from notifier import console

    return console.state_text(item.get("state") or what)


def _when(item: Mapping[str, Any], answer: Answer) -> str:
    """A repeat's answer is the stored one, so dates are given and not distances alone."""
    from notifier import console

    if item.get("due_at"):
        return f"due {console.moment(item['due_at'])}"
    return f"since {console.moment(item['since'])}" if item.get("since") else ""


def _send_file(api: Api, file: Path, json: bool) -> None:
    from notifier import console
    from notifier.commands import feed

    tally, told = feed.Tally(), console.console(to_stderr=True)
    with ExitStack() as stack:
        stream = sys.stdin.buffer if str(file) == "-" else stack.enter_context(_open(file))
        stack.callback(_summarize, tally, told)  # also when the API gives up half-way
        progress = stack.enter_context(told.status("sending events")) if told.is_terminal else None
        for line, result in feed.send_all(api, stream, partial(feed.wait, told)):
            tally.add(line, result)
            _tell_line(line, result, tally, json, told)
            if progress and tally.events % 100 == 0:
                progress.update(f"{tally.events:,} events sent")
    if not tally.events:
        usage(f"there is no event in {file}: one JSON object a line")
    if tally.refused:
        raise typer.Exit(1)


def _open(file: Path) -> Any:
    from notifier.domain.errors import NotReady

    try:
        return file.open("rb")
    except OSError as error:
        raise NotReady(f"cannot read {file}: {error.strerror}") from None


def _tell_line(line: Line, result: Result, tally: Tally, json: bool, told: Console) -> None:
    from notifier import console

    if json:
        console.say_json({"line": line.number, **result})
    elif result["status"] not in (200, 202) and tally.refused <= REFUSED_SHOWN_MAX:
        told.print(f"line {line.number}: {console.clean(str(result.get('detail')))}")


def _summarize(tally: Tally, told: Console) -> None:
    if not tally.events:
        return
    if tally.refused > REFUSED_SHOWN_MAX:
        told.print(f"... and {tally.refused - REFUSED_SHOWN_MAX} more were refused; --json shows every one")
    created, canceled, too_late = tally.lists.values()
    events = "1 event" if tally.events == 1 else f"{tally.events:,} events"
    told.print(f"{events}: {tally.taken:,} taken, {tally.repeated:,} taken before, {tally.refused:,} refused.")
    told.print(f"Notifications: {created:,} created, {canceled:,} canceled, {too_late:,} where it was too late.")
    if tally.ids_made:
        told.print(f"{tally.ids_made:,} had no id and got one: sent again they would be new events.", style="yellow")
