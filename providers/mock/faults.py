"""How the mock misbehaves: the knobs, and what they make of one call."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

DuplicateMode = Literal["reject", "replay", "drop", "none"]
Rate = Annotated[float, Field(ge=0, le=1)]
Milliseconds = Annotated[float, Field(ge=0, le=600_000)]
SmtpStage = Literal["connect", "ehlo", "mail", "rcpt", "data", "body", "dot", "after_dot"]
SmtpDoes = Literal["reply", "cut", "silence"]
SMTP_REPLY = r"[45][0-9]{2}( [ -~]{0,500})?"


class Faults(BaseModel):
    """Every knob; the defaults are a provider without a flaw."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    latency_ms: tuple[Milliseconds, Milliseconds] = Field(
        (0, 0), description="least and most wait before each answer; over SMTP: before the answer to the dot"
    )
    fail_rate: Rate = Field(0, description="share of HTTP calls answered with fail_status, nothing taken")
    fail_status: int = Field(503, ge=400, le=599, description="the status of those answers")
    retry_after_s: float | None = Field(None, ge=0, le=86_400, description="Retry-After of those answers")
    drop_response_rate: Rate = Field(0, description="share of accepted HTTP calls whose connection is cut unanswered")
    error_after_accept_rate: Rate = Field(0, description="share of accepted HTTP calls answered with 500")
    reset_rate: Rate = Field(0, description="share of HTTP calls whose connection is cut, nothing taken")
    hang_s: float = Field(0, ge=0, le=3_600, description="HTTP: read, take nothing, close after so long; 0: off")
    reject_to: tuple[str, ...] = Field(
        (), max_length=1_000, description="fnmatch patterns over an address; 422, SMTP: 550"
    )
    key_ttl_s: float = Field(86_400, ge=0, description="how long an accepted key is remembered")
    duplicate_mode: DuplicateMode = Field("reject", description="what the second call under one key is told")
    smtp_at: SmtpStage | None = Field(
        None,
        description="where an SMTP session meets smtp_does: connect (instead of the greeting), ehlo, mail, rcpt, data "
        "(instead of the command's answer), body (after 354, nothing of the mail read), dot (the whole mail received, "
        "nothing taken), after_dot (the mail taken); null: nowhere",
    )
    smtp_does: SmtpDoes = Field(
        "cut", description="reply: answer smtp_reply; cut: close the connection; silence: say nothing for 600 s at most"
    )
    smtp_reply: str | None = Field(None, description='for smtp_does "reply", e.g. "451 4.3.0 try later"')
    smtp_rate: Rate = Field(1, description="share of those who come to smtp_at that meet it")
    smtp_times: int | None = Field(
        None, ge=0, description="only so many meet it from when smtp_times or smtp_at was last set; null: no end"
    )
    seed: int | None = Field(None, description="starts the dice anew; null: unpredictable")

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        least, most = self.latency_ms
        if least > most:
            raise ValueError("latency_ms: the first number must not exceed the second")
        return self

    @model_validator(mode="after")
    def _repliable(self) -> Self:
        if self.smtp_reply is not None and not re.fullmatch(SMTP_REPLY, self.smtp_reply):
            raise ValueError("smtp_reply: one line of ASCII that begins with a code from 400 to 599")
        if self.smtp_does == "reply" and self.smtp_reply is None:
            raise ValueError('smtp_reply: say what smtp_does "reply" is to answer, e.g. "451 4.3.0 try later"')
        if self.smtp_does == "reply" and self.smtp_at == "body":
            raise ValueError("smtp_does: nobody waits for a reply in the body; take cut or silence, or smtp_at dot")
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


@dataclass(frozen=True, slots=True)
class SmtpFault:
    """What happens to an SMTP session; `reply` is there when that is what it `does`."""

    does: SmtpDoes
    reply: str = ""


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
        self._smtp_met = 0
        self._start_dice()

    def draw(self) -> Fate:
        """Roll for the next call over HTTP."""
        return draw(self.faults, self._dice)

    def smtp_latency_s(self) -> float:
        """Roll for the wait before the next answer to a dot."""
        least, most = self.faults.latency_ms
        return self._smtp_latency_dice.uniform(least, most) / 1_000

    def smtp_fault(self, stage: SmtpStage) -> SmtpFault | None:
        """Roll for a session that comes to this stage."""
        faults = self.faults
        if stage != faults.smtp_at or self._smtp_dice.random() >= faults.smtp_rate:
            return None
        if faults.smtp_times is not None and self._smtp_met >= faults.smtp_times:
            return None
        self._smtp_met += 1
        return SmtpFault(faults.smtp_does, faults.smtp_reply or "")

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
            self._start_dice()
        if {"smtp_at", "smtp_times"} & changes.keys():
            self._smtp_met = 0
        return faults

    def changed(self) -> dict[str, tuple[object, object]]:
        """What is not as the process was started: the knob, how it stands, how it was. A seed does no harm."""
        now, then = self.faults.model_dump(exclude={"seed"}), self._defaults.model_dump()
        return {name: (value, then[name]) for name, value in now.items() if value != then[name]}

    def reset(self) -> Faults:
        """Back to how the process was started."""
        self.faults = self._defaults
        self._smtp_met = 0
        self._start_dice()
        return self.faults

    def _start_dice(self) -> None:
        """Each transport has its own, so that calls over one leave the other's luck as it was."""
        seed = self.faults.seed
        self._dice = random.Random(seed)
        self._smtp_dice = random.Random(None if seed is None else f"smtp {seed}")
        self._smtp_latency_dice = random.Random(None if seed is None else f"smtp latency {seed}")


def _explain(item: Mapping[str, object]) -> str:
    location, message = item["loc"], str(item["msg"])
    if item["type"] == "extra_forbidden":
        message = f"there is no such fault; there are {', '.join(Faults.model_fields)}"
    if not isinstance(location, tuple) or not location:
        return message.removeprefix("Value error, ")
    return f"{'.'.join(map(str, location))}: {message}"
