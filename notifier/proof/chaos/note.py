"""Whoever writes down what the rig does; it adds the time itself."""

from __future__ import annotations

from typing import Any, Literal, Protocol

Role = Literal["api", "worker", "scheduler", "supervisor", "mock", "postgres", "redis"]
SignalName = Literal["START", "TERM", "KILL", "STOP", "CONT", "INT", "QUIT", "END"]
Phase = Literal["begin", "end"]


class Note(Protocol):
    """The recorder's ear. What the arguments mean is said in history.py, at Signal, Fault and KeysForgotten."""

    def signal(
        self, *, process: str, role: Role, pid: int, signal: SignalName, worker: str | None = None, by: str = ""
    ) -> None:
        """A process started, was sent a signal, or was found ended."""

    def fault(
        self,
        *,
        n: int,
        family: str,
        name: str,
        phase: Phase,
        hides_answers: bool = False,
        detail: dict[str, Any] | None = None,
    ) -> None:
        """A fault begins, or has ended."""

    def keys_forgotten(self) -> None:
        """The provider is about to forget its keys."""
