"""The faults as a form: every knob has a field, and what is typed comes back as a value or with an error beside it."""

from __future__ import annotations

from typing import Literal

import pytest
from pydantic import BaseModel, Field

from providers.mock import panel
from providers.mock.faults import Dials, Faults, FaultsInvalid


def test_there_is_a_field_for_every_knob() -> None:
    fields = {field.name: field for field in panel.inputs(Faults(), [])}
    assert fields.keys() == Faults.model_fields.keys()
    assert (fields["latency_ms"].kind, fields["latency_ms"].values) == ("pair", ("0", "0"))
    assert (fields["fail_rate"].least, fields["fail_rate"].most) == ("0", "1")
    assert fields["duplicate_mode"].choices == ("reject", "replay", "drop", "none")
    assert fields["reject_to"].kind == "lines"
    assert fields["seed"].optional and fields["seed"].whole
    assert all(field.help or field.least for field in fields.values())


def as_form(faults: Faults) -> dict[str, str]:
    """What a browser sends when nothing was touched."""
    form: dict[str, str] = {}
    for field in panel.inputs(faults, []):
        names = [f"{field.name}.0", f"{field.name}.1"] if field.kind == "pair" else [field.name]
        form |= dict(zip(names, field.values, strict=True))
    return form


@pytest.mark.parametrize(
    "faults",
    [
        Faults(),
        Faults(
            latency_ms=(1.5, 20),
            fail_rate=0.25,
            retry_after_s=3,
            reject_to=("*@a.example", "b@*"),
            key_ttl_s=0,
            duplicate_mode="drop",
            seed=7,
        ),
    ],
)
def test_a_form_that_nobody_touched_changes_nothing(faults: Faults) -> None:
    dials = Dials(Faults())
    assert dials.set(panel.parse(as_form(faults))) == faults


def test_what_is_not_in_the_form_is_left_alone() -> None:
    assert panel.parse({"fail_rate": "0.5"}) == {"fail_rate": 0.5}
    assert panel.parse({"latency_ms.0": "5"}) == {}
    assert panel.parse({"nonsense": "1"}) == {}


@pytest.mark.parametrize(
    ("typed", "at"),
    [
        ({"fail_rate": "1.5"}, "fail_rate"),
        ({"fail_rate": ""}, "fail_rate"),
        ({"fail_rate": "much"}, "fail_rate"),
        ({"fail_rate": "nan"}, "fail_rate"),
        ({"fail_status": "500.5"}, "fail_status"),
        ({"latency_ms.0": "9", "latency_ms.1": "5"}, "latency_ms"),
        ({"latency_ms.0": "-1", "latency_ms.1": "5"}, "latency_ms"),
        ({"latency_ms.0": "x", "latency_ms.1": "5"}, "latency_ms"),
        ({"duplicate_mode": "maybe"}, "duplicate_mode"),
        ({"seed": "x"}, "seed"),
        ({"hang_s": "1e9"}, "hang_s"),
    ],
)
def test_an_error_stands_at_its_field_with_what_was_typed(typed: dict[str, str], at: str) -> None:
    dials = Dials(Faults())
    with pytest.raises(FaultsInvalid) as caught:
        dials.set(panel.parse(typed))
    fields = {field.name: field for field in panel.inputs(dials.faults, [], typed, caught.value)}
    assert [name for name, field in fields.items() if field.error] == [at]
    assert fields[at].values == tuple(typed.values())
    assert dials.faults == Faults()


class Knobs(BaseModel):
    """Kinds of knobs there may be one day."""

    stage: Literal["connect", "data"] | None = Field(None, description="where")
    flag: bool = Field(False, description="whether")
    reply: str | None = Field(None, description="what")
    times: int | None = Field(None, ge=0, description="how often")


def test_new_kinds_of_knobs_get_a_field_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(panel, "Faults", Knobs)
    fields = panel.inputs(Knobs(flag=True), ["flag"])
    assert [(field.name, field.kind, field.optional) for field in fields] == [
        ("stage", "choice", True),
        ("flag", "flag", False),
        ("reply", "text", True),
        ("times", "number", True),
    ]
    assert fields[1].changed and fields[1].values == ("true",)
    assert panel.parse({"stage": "", "flag": "true", "reply": "451 later", "times": "3"}) == {
        "stage": None,
        "flag": True,
        "reply": "451 later",
        "times": 3,
    }


def test_what_is_changed_is_told_with_how_it_was_and_a_seed_is_harmless() -> None:
    dials = Dials(Faults(duplicate_mode="drop", key_ttl_s=60))
    assert dials.changed() == {}
    dials.set({"seed": 3})
    assert dials.changed() == {}
    dials.set({"duplicate_mode": "reject", "latency_ms": [1, 2]})
    assert dials.changed() == {"duplicate_mode": ("reject", "drop"), "latency_ms": ((1, 2), (0, 0))}
    dials.reset()
    assert dials.changed() == {}


def test_values_in_words() -> None:
    assert [panel.in_words(value) for value in (0.3, 86400.0, (20, 40.5), (), None, True, "drop")] == [
        "0.3",
        "86400",
        "20, 40.5",
        "none",
        "none",
        "true",
        "drop",
    ]
