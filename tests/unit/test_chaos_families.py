"""Which faults a list means."""

from __future__ import annotations

import pytest
import typer

from notifier.proof.chaos.families import by_name, choose, named
from notifier.proof.chaos.schedule import DEFAULT_FAMILIES, FAMILIES


@pytest.mark.parametrize(
    ("text", "families"),
    [
        ("all", DEFAULT_FAMILIES),
        ("none", ()),
        ("kill", ("kill",)),
        (" redis, kill ,redis", ("kill", "redis")),
        ("all,forget", (*DEFAULT_FAMILIES, "forget")),
        ("all,forget,pause,refuse", FAMILIES),
        ("-clocks", tuple(name for name in DEFAULT_FAMILIES if name != "clocks")),
        ("-clocks,-kill,-all", ()),
        ("kill,redis,-kill", ("redis",)),
    ],
)
def test_a_list_means_what_it_says(text: str, families: tuple[str, ...]) -> None:
    assert choose(text) == families


@pytest.mark.parametrize(
    ("text", "says"), [("redsi", "did you mean redis"), ("xyzzy", "there are kill"), (",", "none")]
)
def test_what_nobody_knows_is_refused_with_what_there_is(text: str, says: str) -> None:
    with pytest.raises(typer.BadParameter, match=says):
        choose(text)


@pytest.mark.parametrize("text", ["all", "none", "kill", "kill,redis", "all,forget"])
def test_families_are_named_as_shortly_as_they_can_be_chosen(text: str) -> None:
    assert named(choose(text)) == text


def test_what_is_named_one_by_one_must_be_done() -> None:
    assert by_name("kill, clocks") == ("kill", "clocks")
    assert by_name("all,forget,-redis") == ("forget",)
