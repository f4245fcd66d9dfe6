"""`notifier run`: databases, migrations and every process, started, watched and stopped as one."""

from notifier.supervisor.conductor import run

__all__ = ["run"]
