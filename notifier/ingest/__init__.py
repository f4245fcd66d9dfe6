"""The one door for events."""

from notifier.ingest.groups import Ingest
from notifier.ingest.transaction import Accepted

__all__ = ["Accepted", "Ingest"]
