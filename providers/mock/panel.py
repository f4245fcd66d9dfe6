"""The form of the faults: one field for each knob there is, whatever knobs there are; pure."""

from __future__ import annotations

import types
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from providers.mock.faults import Faults, FaultsInvalid

Kind = Literal["choice", "flag", "number", "pair", "lines", "text"]
FORM_NAME_SEPARATOR = "."


@dataclass(frozen=True, slots=True)
class Input:
    """One field of the form; `values` are as typed, two for a pair."""

    name: str
    kind: Kind
    help: str
    values: tuple[str, ...]
    choices: tuple[str, ...] = ()
    optional: bool = False
    whole: bool = False
    least: str = ""
    most: str = ""
    error: str = ""
    changed: bool = False


def inputs(
    faults: Faults, changed: Iterable[str], typed: Mapping[str, str] | None = None, invalid: FaultsInvalid | None = None
) -> list[Input]:
    """The form for the knobs as they stand or, after an error, as they were `typed`."""
    changed, errors = set(changed), {} if invalid is None else invalid.by_field()
    return [
        _input(name, info, getattr(faults, name), typed, errors.get(name, ""), changed=name in changed)
        for name, info in Faults.model_fields.items()
    ]


def parse(form: Mapping[str, str]) -> dict[str, object]:
    """Knobs from a form, ready for Dials.set(); what is no value for its knob stays text, and is refused there.

    A knob the form does not name is left alone.
    """
    values: dict[str, object] = {}
    for name, info in Faults.model_fields.items():
        kind, _, optional = _shape(info.annotation)
        if kind == "pair":
            ends = [form.get(f"{name}{FORM_NAME_SEPARATOR}{end}") for end in (0, 1)]
            if None not in ends:
                values[name] = [_value("number", end or "", info, optional=False) for end in ends]
        elif (text := form.get(name)) is not None:
            values[name] = _value(kind, text, info, optional=optional)
    return values


def _value(kind: Kind, text: str, info: FieldInfo, *, optional: bool) -> object:
    if kind == "lines":
        return [line.strip() for line in text.splitlines() if line.strip()]
    if optional and not text.strip():
        return None
    if kind == "flag":
        return text == "true"
    if kind == "number":
        for as_number in (int, float):
            try:
                return as_number(text)
            except ValueError:
                continue
    return text


def _input(
    name: str, info: FieldInfo, value: object, typed: Mapping[str, str] | None, error: str, *, changed: bool
) -> Input:
    kind, annotation, optional = _shape(info.annotation)
    bounds = {type(bound).__name__: bound for bound in info.metadata}
    return Input(
        name=name,
        kind=kind,
        help=info.description or "",
        values=_typed(name, kind, typed) or _shown(kind, value),
        choices=tuple(map(str, get_args(annotation))) if kind == "choice" else (),
        optional=optional,
        whole=annotation is int,
        least=f"{bounds['Ge'].ge:g}" if "Ge" in bounds else "",
        most=f"{bounds['Le'].le:g}" if "Le" in bounds else "",
        error=error,
        changed=changed,
    )


def _shape(annotation: Any) -> tuple[Kind, Any, bool]:
    """Which kind of field an annotation needs, the annotation without None, and whether None is allowed."""
    optional = False
    if get_origin(annotation) in (Union, types.UnionType):
        [annotation] = [part for part in get_args(annotation) if part is not type(None)]
        optional = True
    if get_origin(annotation) is Literal:
        return "choice", annotation, optional
    if get_origin(annotation) is tuple:
        return ("lines" if get_args(annotation)[-1] is Ellipsis else "pair"), annotation, optional
    kinds: dict[Any, Kind] = {bool: "flag", int: "number", float: "number"}
    return kinds.get(annotation, "text"), annotation, optional


def _typed(name: str, kind: Kind, typed: Mapping[str, str] | None) -> tuple[str, ...]:
    if typed is None:
        return ()
    names = [f"{name}{FORM_NAME_SEPARATOR}{end}" for end in (0, 1)] if kind == "pair" else [name]
    return tuple(typed[part] for part in names if part in typed)


def _shown(kind: Kind, value: object) -> tuple[str, ...]:
    match value:
        case None:
            return ("",)
        case bool():
            return ("true" if value else "false",)
        case tuple() if kind == "lines":
            return ("\n".join(map(str, value)),)
        case tuple():
            return tuple(map(in_words, value))
    return (in_words(value),)


def in_words(value: object) -> str:
    """A knob's value as one would type it."""
    if isinstance(value, float):
        return f"{value:.12g}"
    if isinstance(value, tuple):
        return ", ".join(map(in_words, value)) or "none"
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
