"""Spreads runs whose minute nobody chose, so that a household's ``@daily`` tasks do not all start at once.

A task whose cron names its minute ("0 8 * * *") means that minute and is never moved, nor is a reminder.
One that does not ("*/15 * * * *", "@daily") starts some seconds after its due time: always the same
number for the same butler, task and cadence, at most a quarter of an hour, and always before the next
due time. ``next_run_at`` stays the time the expression says; only the start waits, in the queue.
"""

from __future__ import annotations

import hashlib
from datetime import timedelta

WINDOW = timedelta(minutes=15)


def stagger(butler: str, task: str, cadence: timedelta, window: timedelta = WINDOW) -> timedelta:
    """How long after its due time this task starts. A window of 0 turns it off."""
    room = int(min(window, cadence).total_seconds())
    if room <= 0:
        return timedelta(0)
    digest = hashlib.sha256(f"{butler}\0{task}".encode()).digest()
    return timedelta(seconds=int.from_bytes(digest[:8], "big") % room)
