"""One module a family of faults; each fault breaks something, waits, and mends it, also when it is cut short."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from types import ModuleType

from notifier.proof.chaos.faults import (
    clocks,
    freeze,
    kill,
    network,
    pause,
    postgres,
    processes,
    provider,
    redis,
    rolling,
)
from notifier.proof.chaos.scene import Scene
from notifier.proof.chaos.schedule import Planned

Fault = Callable[[Scene, Planned], Awaitable[bool | None]]  # whether it came to what was armed, if anything was

_MODULES: Mapping[str, ModuleType] = {
    "postgres": postgres,
    "redis": redis,
    "provider": provider,
    "network": network,
    "clocks": clocks,
    "rolling": rolling,
    "forget": provider,
    "refuse": provider,
}
_HIDES = {
    "provider": {"slow", "failing", "answer_dropped", "error_after_accept", "reset", "hanging", "restarted"},
    "refuse": {"refusing"},
    "forget": {"keys_forgotten"},
    "network": {"provider_cut", "provider_silent", "provider_answers_lost"},
}


def find(planned: Planned) -> Fault:
    """The fault that was planned."""
    match planned.family:
        case "kill":
            return kill.at_any_moment if planned.name == "at_any_moment" else kill.at_failpoint
        case "freeze":
            return freeze.at_any_moment if planned.name == "at_any_moment" else freeze.at_failpoint
        case "pause":
            return pause.at_failpoint
        case "processes":
            return processes.killed
        case family:
            fault: Fault = getattr(_MODULES[family], planned.name)
            return fault


def hides_answers(planned: Planned) -> bool:
    """Whether a call may be taken and its answer lost while it lasts, or the sender left not knowing."""
    if planned.family in ("kill", "freeze", "pause"):
        return str(planned.parameters["pod"]).startswith("worker")
    return planned.name in _HIDES.get(planned.family, ())
