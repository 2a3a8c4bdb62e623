"""How much, how many, how long. Each of these does nothing when nobody collects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from structlog.contextvars import get_contextvars

from butlers.wire.telemetry.backend import Instrument, installed

STATES = ("ready", "leased", "dead")


def measure_queue(queue: str, depths: Mapping[str, int]) -> None:
    """How many items of a queue wait, run and lie dead. A state that is not named has none."""
    for state in STATES:
        _measure(Instrument.QUEUE_DEPTH, depths.get(state, 0), queue=queue, state=state)


def count_lease_expiries(queue: str, items: int = 1) -> None:
    """Items that were taken back because their worker died, froze or was cut off."""
    _measure(Instrument.LEASE_EXPIRIES, items, queue=queue)


def time_session(seconds: float, *, runtime: str, outcome: str, trigger: str) -> None:
    _measure(
        Instrument.SESSION_DURATION, seconds, runtime=runtime, outcome=outcome, trigger=trigger
    )


def count_tokens(kind: str, tokens: int, *, runtime: str) -> None:
    _measure(Instrument.SESSION_TOKENS, tokens, type=kind, runtime=runtime)


def count_cost(usd: float, *, runtime: str) -> None:
    """What a session cost. An unknown price is not told as zero: do not call this with one."""
    _measure(Instrument.SESSION_COST, usd, runtime=runtime)


def _measure(instrument: Instrument, value: float, **attributes: str) -> None:
    backend = installed()
    if backend is None:
        return
    butler: Any = get_contextvars().get("butler")
    if butler is not None:
        attributes["butler"] = str(butler)
    backend.measure(instrument, value, attributes)
