"""`notifier demo`: an installation of its own, a story that breaks it where it can be broken, and a count."""

from notifier.demo.showing import show

__all__ = ["show"]
