"""How the mock misbehaves: the knobs, and what they make of one call."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

DuplicateMode = Literal["reject", "replay", "drop", "none"]
Rate = Annotated[float, Field(ge=0, le=1)]
Milliseconds = Annotated[float, Field(ge=0, le=600_000)]


class Faults(BaseModel):
    """Every knob; the defaults are a provider without a flaw."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    latency_ms: tuple[Milliseconds, Milliseconds] = Field((0, 0), description="least and most wait before each answer")
    fail_rate: Rate = Field(0, description="share of calls answered with fail_status, nothing taken")
    fail_status: int = Field(503, ge=400, le=599, description="the status of those answers")
    retry_after_s: float | None = Field(None, ge=0, le=86_400, description="Retry-After of those answers")
    drop_response_rate: Rate = Field(0, description="share of accepted calls whose connection is cut unanswered")
    error_after_accept_rate: Rate = Field(0, description="share of accepted calls answered with 500")
    reset_rate: Rate = Field(0, description="share of calls whose connection is cut, nothing taken")
    hang_s: float = Field(0, ge=0, le=3_600, description="read, take nothing, close after so long; 0: off")
    reject_to: tuple[str, ...] = Field((), max_length=1_000, description="fnmatch patterns over an address; 422")
    key_ttl_s: float = Field(86_400, ge=0, description="how long an accepted key is remembered")
    duplicate_mode: DuplicateMode = Field("reject", description="what the second call under one key is told")
    seed: int | None = Field(None, description="starts the dice anew; null: unpredictable")

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        least, most = self.latency_ms
        if least > most:
            raise ValueError("latency_ms: the first number must not exceed the second")
        return self

    def rejects(self, addresses: Iterable[str]) -> str | None:
        """The first address that reject_to turns away, if any; case does not count."""
        patterns = [pattern.lower() for pattern in self.reject_to]
        for address in addresses:
            if any(fnmatchcase(address.lower(), pattern) for pattern in patterns):
                return address
        return None


class FaultsInvalid(ValueError):
    """The knobs offered cannot be set; each of `errors` names one and says what is wrong with it."""

    def __init__(self, errors: Sequence[str]) -> None:
        super().__init__("; ".join(errors))
        self.errors = errors

    def by_field(self) -> dict[str, str]:
        """What is wrong, by knob."""
        parted = [error.partition(": ") for error in self.errors]
        return {place.partition(".")[0]: message for place, _, message in reversed(parted)}


@dataclass(frozen=True, slots=True)
class Fate:
    """What the dice hold for one call."""

    latency_s: float
    reset: bool
    fail: bool
    drop_response: bool
    error_after_accept: bool


def draw(faults: Faults, dice: random.Random) -> Fate:
    """Roll for one call. Always five rolls, so that turning one knob leaves the others' luck as it was."""
    latency, reset, fail, drop, error = (dice.random() for _ in range(5))
    least, most = faults.latency_ms
    return Fate(
        latency_s=(least + (most - least) * latency) / 1_000,
        reset=reset < faults.reset_rate,
        fail=fail < faults.fail_rate,
        drop_response=drop < faults.drop_response_rate,
        error_after_accept=error < faults.error_after_accept_rate,
    )


class Dials:
    """The knobs as they stand, and the dice."""

    def __init__(self, defaults: Faults) -> None:
        self._defaults = defaults
        self.faults = defaults
        self._dice = random.Random(defaults.seed)

    def draw(self) -> Fate:
        """Roll for the next call."""
        return draw(self.faults, self._dice)

    def set(self, changes: Mapping[str, object]) -> Faults:
        """Replace the fields given and keep the others; raises FaultsInvalid, and then nothing changes."""
        merged = {**self.faults.model_dump(), **changes}
        try:
            # By way of JSON: its strict mode takes a list for a tuple and still no "0.5" for a number.
            faults = Faults.model_validate_json(json.dumps(merged))
        except ValidationError as error:
            raise FaultsInvalid([_explain(item) for item in error.errors()]) from None
        self.faults = faults
        if "seed" in changes:
            self._dice = random.Random(faults.seed)
        return faults

    def changed(self) -> dict[str, tuple[object, object]]:
        """What is not as the process was started: the knob, how it stands, how it was. A seed does no harm."""
        now, then = self.faults.model_dump(exclude={"seed"}), self._defaults.model_dump()
        return {name: (value, then[name]) for name, value in now.items() if value != then[name]}

    def reset(self) -> Faults:
        """Back to how the process was started."""
        self.faults = self._defaults
        self._dice = random.Random(self._defaults.seed)
        return self.faults


def _explain(item: Mapping[str, object]) -> str:
    location, message = item["loc"], str(item["msg"])
    if item["type"] == "extra_forbidden":
        message = f"there is no such fault; there are {', '.join(Faults.model_fields)}"
    if not isinstance(location, tuple) or not location:
        return message.removeprefix("Value error, ")
    return f"{'.'.join(map(str, location))}: {message}"
