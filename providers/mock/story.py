"""What became of a call, in words for whoever looks at the inbox at night."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from providers.mock.records import AttemptRecord

WORDS = {
    "accepted": "accepted",
    "duplicate": "refused as duplicate",
    "replayed": "answered as the first time; no second mail",
    "dropped": "answered as if new; no second mail",
    "body_mismatch": "refused: this key was used before, with another content",
    "in_flight": "refused: the first call with this key was still running",
    "rejected": "refused: not acceptable",
    "unauthorized": "refused: no API key",
    "failed": "answered with an error; nothing taken",
    "reset": "connection cut; nothing taken",
    "hung": "left without an answer; nothing taken",
}
GOOD, BAD, PLAIN = "good", "bad", "plain"
MOODS = {"accepted": GOOD, "duplicate": PLAIN, "replayed": PLAIN, "dropped": PLAIN}


@dataclass(frozen=True, slots=True)
class Step:
    """One call in the story of its key."""

    call: AttemptRecord
    who: str
    did: str
    came: str
    mood: str


def story(calls: Sequence[AttemptRecord], *, whole: bool) -> list[Step]:
    """The calls of one key, oldest first, as sentences; `whole`: the first of them is the first there was."""
    return [
        Step(call, who(call), "tried again" if n or not whole else "sent it", outcome(call), mood(call))
        for n, call in enumerate(calls)
    ]


def who(call: AttemptRecord) -> str:
    """Who called, as far as it said."""
    caller = call.caller
    name = f"worker {caller.worker}" if caller.worker else "a client without a name"
    return name if caller.generation is None else f"{name}, generation {caller.generation},"


def outcome(call: AttemptRecord) -> str:
    """What came of a call; an unknown verdict speaks for itself."""
    said = WORDS.get(call.verdict, call.verdict.replace("_", " "))
    if call.verdict == "accepted" and not call.answered:
        return f"{said}, but the connection was cut before the answer: the caller cannot know"
    if call.verdict == "accepted" and (call.status or 0) >= 400:
        return f"{said}, but answered with {call.status}: the caller cannot know"
    return said


def mood(call: AttemptRecord) -> str:
    """How to colour it: what could mislead a caller is bad."""
    if call.verdict == "accepted" and (not call.answered or (call.status or 0) >= 400):
        return BAD
    return MOODS.get(call.verdict, BAD)
