"""How a connector is: by its heartbeat, and by what the door saw of it, which it can not talk away."""

from __future__ import annotations

from butlers.domain.connector import ConnectorState
from butlers.switchboard.ingest_stats import Counts

HEARTBEAT_S = 20.0
SILENT_S = 50.0  # two heartbeats and a half: within a minute a dead one is seen to be dead
MANY = 20  # of the same in a minute


def condition(state: str, error: str | None, silent_s: float, seen: Counts) -> tuple[str, str]:
    """One word for it, and why: down, rejected, looping, what it says of itself, or healthy."""
    if silent_s > SILENT_S:
        return "down", f"not heard of for {silent_s:.0f} s"
    # Of one that is refused its connector hands in a note; that is no message that came through.
    if (lost := max(seen.refused, seen.failed)) and not seen.new:
        why = f": {seen.last_refusal}" if seen.last_refusal else ""
        return "rejected", f"all {lost} messages of the last minute were refused{why}"
    came = seen.new + seen.noted
    if seen.duplicate >= MANY and seen.duplicate > 10 * came:
        return "looping", f"{seen.duplicate} repeats and {came} new messages in the last minute"
    if state != ConnectorState.HEALTHY:
        return state, error or "it says so itself"
    return "healthy", ""
