"""Hypothesis profiles, ``ci`` for every run and ``deep`` for long ones, and the seed of a storm."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

DEEP_EXAMPLES, CI_EXAMPLES = 100, 25
SEED_PROPERTY = "storm_seed"  # of a test, for the summary of the run


def register_profiles() -> None:
    """Without deadlines: how fast data is made depends on the machine, which may be busy."""
    busy = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
    settings.register_profile("ci", busy, max_examples=CI_EXAMPLES)
    settings.register_profile("deep", busy, max_examples=DEEP_EXAMPLES)


def examples(deep: int) -> int:
    """Return how many examples the chosen profile takes where the deep one takes so many."""
    return max(1, deep * settings().max_examples // DEEP_EXAMPLES)
