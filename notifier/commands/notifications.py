"""`notifier notifications`: read them, and do to one what an operator may."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from notifier.commands import completion
from notifier.commands.options import PAGE, AsJson, Id, Named, OfKind, OfUser, group, open_api, pages, usage
from notifier.domain.notification import State

if TYPE_CHECKING:
    from notifier.client.api import Answer, Api

LIMIT = 50

app = group(
    "Read notifications, and do to one what an operator may.\n\n"
    "Example: `notifier notifications list --state uncertain`"
)

Reason = Annotated[str | None, typer.Option("--reason", help="Why; kept in the audit.")]
Generation = Annotated[
    int | None,
    typer.Option(
        "--if-generation",
        metavar="N",
        min=0,
        help="Act only if it is still at this generation, as a script read it; else at the one read just before.",
    ),
]


@app.command("list")
def list_(
    user: Annotated[str | None, typer.Option("--user", metavar="USER", help="Of this user only, by its id.")] = None,
    state: Annotated[State | None, typer.Option(help="Only where they stand like this now.")] = None,
    kind: Annotated[
        str | None,
        typer.Option(metavar="KIND", help="Of this kind of mail only.", autocompletion=completion.kinds),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=1_000_000, help="How many at most.")] = LIMIT,
    all_: Annotated[bool, typer.Option("--all", help="As many as there are.")] = False,
    json: Annotated[bool, typer.Option("--json", help="NDJSON: one notification a line, as the API has it.")] = False,
) -> None:
    """List notifications, the oldest first.

    Example: `notifier notifications list --user u_1`

    Example: `notifier notifications list --state failed --all --json | jq -r .id`
    """
    from notifier import console

    api = open_api()
    filters = {"user_id": user, "state": state.value if state else None, "kind": kind}
    if json:
        for _, rows in _rows(api, filters, None if all_ else limit):
            for row in rows:
                console.say_json(row)
        return
    from notifier.commands.notification_view import LIST, list_row

    table, shown, more = console.Columns(console.console(), *LIST), 0, False
    for answer, rows in _rows(api, filters, None if all_ else limit):
        table.add([list_row(row, answer) for row in rows])
        shown += len(rows)
        more = len(rows) < len(answer.body)
    told = console.console(to_stderr=True)
    if not shown:
        told.print("There are none." if any(filters.values()) else "There are none: no event has asked for a mail yet.")
    elif more or (not all_ and shown >= limit):
        told.print(f"These are the oldest {shown}; there may be more: --limit N or --all shows them.", style="dim")


def _rows(api: Api, filters: dict[str, str | None], limit: int | None) -> Iterator[tuple[Answer, list[dict[str, Any]]]]:
    """Page by page: the answer, and what of its rows is wanted."""
    left = limit
    for answer in pages(api, filters, page=PAGE if limit is None else min(limit, PAGE)):
        rows = answer.body[:left]
        yield answer, rows
        if left is not None:
            left -= len(rows)
            if left <= 0:
                return


@app.command()
def show(
    id_: Id = None,
    user: OfUser = None,
    kind: OfKind = None,
    timeline: Annotated[bool, typer.Option("--timeline", help="Also what happened, in order.")] = False,
    json: AsJson = False,
) -> None:
    """Show everything about one: how it came to stand where it does, every attempt, and what can be done next.

    Example: `notifier notifications show --user u_1 --kind followup --timeline`
    """
    from notifier.client.api import path

    named = Named(id_, user, kind)
    named.check()
    api = open_api()
    answer = api.get(path("notifications", named.find(api)))
    history = None
    if timeline:
        told = api.get(path("users", answer.body["user_id"], "timeline")).body["timeline"]
        history = [entry for entry in told if entry.get("notification") in (None, answer.body["id"])]
    if json:
        from notifier import console

        console.say_json(answer.body | ({} if history is None else {"timeline": history}), indent=2)
        return
    from notifier.commands.notification_view import print_details

    print_details(answer, history, _switches(api))


def _switches(api: Api) -> list[dict[str, Any]]:
    from notifier.client.api import path

    found: list[dict[str, Any]] = api.get(path("switches")).body["switches"]
    return found


@app.command()
def cancel(
    id_: Id = None,
    user: OfUser = None,
    kind: OfKind = None,
    reason: Reason = None,
    if_generation: Generation = None,
    json: AsJson = False,
) -> None:
    """Stop one that waits, or is owed and surely was never taken. `retry` brings it back.

    Example: `notifier notifications cancel --user u_1 --kind followup --reason "asked us to"`
    """
    _act("cancel", Named(id_, user, kind), {"reason": reason} if reason else {}, if_generation, json)


@app.command()
def retry(
    id_: Id = None,
    user: OfUser = None,
    kind: OfKind = None,
    reason: Reason = None,
    if_generation: Generation = None,
    json: AsJson = False,
) -> None:
    """Plan one anew that was skipped, failed, or canceled by an operator. It keeps its key: no second mail.

    Example: `notifier notifications retry 0192d3c4-7b2e-7000-8000-5a1b2c3d4e5f --reason "template mended"`
    """
    _act("retry", Named(id_, user, kind), {"reason": reason} if reason else {}, if_generation, json)


@app.command()
def resolve(
    reason: Annotated[str, typer.Option("--reason", help="How you know; kept in the audit.")],
    sent: Annotated[bool, typer.Option("--sent", help="The provider took it. Nothing more is sent.")] = False,
    not_sent: Annotated[
        bool, typer.Option("--not-sent", help="The provider never took it: send it again, under a new key.")
    ] = False,
    id_: Id = None,
    user: OfUser = None,
    kind: OfKind = None,
    if_generation: Generation = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before --not-sent; for scripts.")] = False,
    json: AsJson = False,
) -> None:
    """Say what became of an uncertain one, after you looked up its provider key at the provider.

    `--not-sent` sends it again under a new key, which nobody recognises as a repeat: if you are wrong, the person
    gets two mails. So it asks first.

    Example: `notifier notifications resolve --user u_1 --kind onboarding --sent --reason "found in their log"`
    """
    if sent == not_sent:
        usage("say what became of it: --sent or --not-sent")
    named = Named(id_, user, kind)
    named.check()
    if not_sent and not yes and not sys.stdin.isatty():
        usage("--not-sent sends the mail again under a new key, and there is no terminal to ask you on: add --yes")
    body = {"outcome": "sent" if sent else "not_sent", "reason": reason}
    _act("resolve", named, body, if_generation, json, ask=not_sent and not yes)


def _act(
    act: str, named: Named, body: dict[str, str], generation: int | None, json: bool, *, ask: bool = False
) -> None:
    """Read, ask where that is due, act on what was read, and say where it stands now."""
    from notifier.client.api import Refused, path

    named.check()
    api = open_api()
    wanted = named.find(api)
    if generation is None or ask:
        before = api.get(path("notifications", wanted))
        generation = before.generation if generation is None else generation
        if ask:
            _confirm(before.body)
    try:
        answer = api.ask(
            "POST",
            path("notifications", wanted, act),
            scope="operate",
            body=body,
            headers={"If-Match": f'"{generation}"'},
        )
    except Refused as error:
        if error.status == 412:
            raise Refused(
                f"nothing was done: {error}. It moved since it was read.\n"
                f"Look at it and decide again: notifier notifications show {wanted}",
                error.answer,
            ) from None
        if error.status in (404, 409):
            raise Refused(f"nothing was done: {error}", error.answer) from None
        raise
    if json:
        from notifier import console

        console.say_json(answer.body, indent=2)
        return
    from notifier.commands.notification_view import print_done

    print_done(act, answer)


def _confirm(found: dict[str, Any]) -> None:
    """Ask a person; of what is not uncertain now nobody can say what they would agree to in a moment."""
    if found["state"] != State.UNCERTAIN.value:
        from notifier.domain.errors import NotReady

        raise NotReady(f"nothing was done: it is {found['state']}, and only what is uncertain can be resolved")
    from notifier.commands.notification_view import traceable

    typer.echo(
        f"{found['kind']} for user {found['user_id']} is {found['state']}. If the provider took {traceable(found)} "
        "after all, the person will get this mail twice.",
        err=True,
    )
    if not typer.confirm("Send it again under a new key?", err=True):
        typer.echo("Nothing was done.", err=True)
        raise typer.Exit(1)
