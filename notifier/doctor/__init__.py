"""`notifier doctor`: everything an installation stands on, looked at one after another."""

from notifier.doctor.finding import Finding
from notifier.doctor.rounds import examine

__all__ = ["Finding", "examine"]
