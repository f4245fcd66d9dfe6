"""PostgreSQL and Valkey from their wheels, for `run`, `demo` and the tests."""

from notifier.embedded.postgres import start_postgres
from notifier.embedded.process import Server, alive, stop
from notifier.embedded.valkey import start_valkey

__all__ = ["Server", "alive", "start_postgres", "start_valkey", "stop"]
