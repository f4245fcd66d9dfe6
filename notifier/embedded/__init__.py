"""Databases of one's own from the wheels, for whoever has none: `notifier run`, and the tests."""

from notifier.embedded.postgres import noted_url, start_postgres
from notifier.embedded.process import Server, alive, stop
from notifier.embedded.valkey import noted_url as noted_redis_url
from notifier.embedded.valkey import start_valkey

__all__ = ["Server", "alive", "noted_redis_url", "noted_url", "start_postgres", "start_valkey", "stop"]
