"""The one host clock we look at, and only to tell how long something took here."""

from __future__ import annotations

import time
from functools import partial

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # Linux counts sleep of the machine as well

boot_clock = partial(time.clock_gettime, _CLOCK)
"""Seconds that go on while the process is stopped or the machine sleeps."""
