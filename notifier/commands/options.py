"""What several commands take, and how it is read: durations, a notification's name, JSON instead of a table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from notifier.commands import completion

if TYPE_CHECKING:
    from notifier.client.api import Answer, Api

PAGE = 500
PAGES_MAX = 20_000
SOME_MAX = 20  # of several that fit a name, how many are listed

AsJson = Annotated[bool, typer.Option("--json", help="The API's own document, for programs.")]
Id = Annotated[str | None, typer.Argument(metavar="ID", help="The notification's id; or give --user and --kind.")]
OfUser = Annotated[str | None, typer.Option("--user", metavar="USER", help="Whose notification, by the user's id.")]
OfKind = Annotated[
    str | None, typer.Option("--kind", metavar="KIND", help="Which kind of mail.", autocompletion=completion.kinds)
]


def group(help_text: str) -> typer.Typer:
    """Make a family of commands."""
    return typer.Typer(help=help_text, no_args_is_help=True, rich_markup_mode="markdown")


def open_api() -> Api:
    """Read the settings and give a caller of the API they name."""
    from notifier.client.api import Api
    from notifier.settings import load

    return Api(load())


def usage(text: str) -> NoReturn:
    """End with exit code 2: it was asked for in a way that cannot be meant."""
    raise typer.BadParameter(text)


def duration(text: str) -> timedelta:
    """Read `30m`, `2h` or `1.5d`."""
    from notifier.domain.journey import parse_duration

    length = parse_duration(text)
    if length is None or not length:
        usage(f"{text!r} is no length of time: write a number and s, m, h, d or w, like 30m, 2h or 7d")
    return length


@dataclass(frozen=True, slots=True)
class Named:
    """A notification as a person names it: by its id, or by user and kind."""

    id: str | None
    user: str | None
    kind: str | None

    def check(self) -> None:
        """Refuse neither, both, and half of it."""
        if self.id and not (self.user or self.kind):
            return
        if self.id or not (self.user and self.kind):
            usage("name the notification: its ID, or --user and --kind together")

    def find(self, api: Api) -> str:
        """The id. Raises NotReady when none fits, or several do."""
        self.check()
        if self.id:
            return self.id
        from notifier.domain.errors import NotReady

        found = [row for page in pages(api, {"user_id": self.user, "kind": self.kind}) for row in page.body]
        if len(found) == 1:
            return str(found[0]["id"])
        if not found:
            raise NotReady(
                f"user {self.user!r} has no notification of kind {self.kind!r}; "
                "`notifier notifications list --user ID` shows which there are"
            )
        some = "\n".join(f"  {row['id']}  {row['kind']}  {row['state']}" for row in found[:SOME_MAX])
        raise NotReady(f"{len(found)} notifications are of this kind; name one by its ID:\n{some}")


def pages(api: Api, filters: dict[str, str | None], *, page: int = PAGE) -> Iterator[Answer]:
    """Every page of a listing, the oldest first; `body` of each is its rows. Bounded: raises NotReady at the bound."""
    from notifier.client.api import path
    from notifier.domain.errors import NotReady

    after: str | None = None
    for _ in range(PAGES_MAX):
        answer = api.get(path("notifications"), query={**filters, "limit": str(page), "after": after})
        yield replace(answer, body=answer.body["notifications"])
        after = answer.body["next"]
        if after is None:
            return
    raise NotReady(f"there are more than {PAGES_MAX} pages: narrow it with --user, --state or --kind")
