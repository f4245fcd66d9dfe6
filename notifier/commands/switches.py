"""`notifier switch`: hold mails back, see what is held back, and let them go again."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from notifier.commands import completion
from notifier.commands.options import AsJson, duration, group, open_api, usage

if TYPE_CHECKING:
    from notifier.client.api import Answer

app = group(
    "Hold mails back for a while.\n\n"
    "`pause`: no mail goes out. `pause:<kind>`: none of that kind. `pause:provider:<name>`: none through that "
    "provider. `maintenance`: no event is taken. What is held back is kept and goes out afterwards; every switch "
    "ends by itself.\n\n"
    "Example: `notifier switch set pause:followup --for 2h --owner ada --reason 'wrong link in the text'`"
)

TTL_MAX = timedelta(days=30)  # as the API has it, in seconds there


def _length(text: str) -> timedelta:
    length = duration(text)
    if length > TTL_MAX:
        usage(f"{text} is too long: at most {TTL_MAX.days}d, for no switch stays on by being forgotten")
    return length


Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="`pause`, `pause:<kind>`, `pause:provider:<name>` or `maintenance`",
        autocompletion=completion.switches,
    ),
]


@app.command("list")
def list_(json: AsJson = False) -> None:
    """List the switches that are on.

    Example: `notifier switch list`
    """
    from notifier import console
    from notifier.client.api import path

    answer = open_api().get(path("switches"))
    if json:
        console.say_json(answer.body, indent=2)
    elif not answer.body["switches"]:
        console.console(to_stderr=True).print("No switch is on: nothing is held back.")
    else:
        table = console.Columns(console.console(), "switch", "ends", "until", "owner", "reason")
        table.add(
            [
                (
                    switch["name"],
                    console.until(switch["expires_at"], answer.business_now),
                    console.moment(switch["expires_at"]),
                    switch["owner"],
                    switch["reason"],
                )
                for switch in answer.body["switches"]
            ]
        )


@app.command()
def show(name: Name, json: AsJson = False) -> None:
    """Show one switch. Exit 1 when it is not on.

    Example: `notifier switch show pause`
    """
    from notifier.client.api import path

    answer = open_api().get(path("switches", name))
    _say(answer, answer.business_now, json)


@app.command("set")
def set_(
    name: Name,
    for_: Annotated[
        timedelta,
        typer.Option("--for", "--ttl", metavar="TIME", parser=_length, help="For how long: 30m, 2h, 7d; at most 30d."),
    ],
    owner: Annotated[str, typer.Option(help="Who answers for it.")],
    reason: Annotated[str, typer.Option(help="Why; everybody sees it.")],
    json: AsJson = False,
) -> None:
    """Turn one on, or on until another time. What a worker has in hand still ends normally.

    Example: `notifier switch set pause --for 30m --owner ada --reason "provider is failing"`
    """
    from datetime import datetime

    from notifier.client.api import path

    body = {"owner": owner, "reason": reason, "ttl_s": for_.total_seconds()}
    answer = open_api().ask("PUT", path("switches", name), scope="operate", body=body)
    _say(answer, datetime.fromisoformat(answer.body["set_at"]), json)


@app.command()
def end(name: Name) -> None:
    """Turn one off. Workers go on at once.

    Example: `notifier switch end pause:followup`
    """
    from notifier.client.api import path

    open_api().ask("DELETE", path("switches", name), scope="operate")
    typer.echo(f"{name} is off.")


def _say(answer: Answer, now: Any, json: bool) -> None:
    from notifier import console

    switch = answer.body
    if json:
        console.say_json(switch, indent=2)
        return
    to = console.console()
    ends = console.until(switch["expires_at"], now)
    to.print(f"{switch['name']} is on until {console.moment(switch['expires_at'])} ({ends}).")
    to.print(f"  {console.clean(switch['owner'])}: {console.clean(switch['reason'])}")
    to.print(f"  To end it: notifier switch end {switch['name']}", style="dim")
