"""Hypothesis as these tests want it: the same examples every time, and few enough for a folder that ends in seconds."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile(
    "unit",
    derandomize=True,
    max_examples=60,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("unit")
