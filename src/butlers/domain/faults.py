"""Named kill points and a test pace, with which tests show what a failure or a long absence does.

At a kill point a test kills the process to show that nothing is lost there. The pace shortens leases and
pauses, so that a test of minutes takes seconds. The process's entry point calls ``arm`` once with the values
of ``BUTLERS_KILL_POINT`` and ``BUTLERS_TEST_PACE``, which only tests set. Unarmed, a kill point costs one
comparison, and durations are as they are written.
"""

from __future__ import annotations

import os
import signal
from datetime import timedelta

_armed: str | None = None
_pace = 1.0


def arm(point: str | None, pace: float = 1.0) -> None:
    global _armed, _pace
    _armed, _pace = point, pace


def kill_point(name: str) -> None:
    if _armed is not None and name == _armed:
        os.kill(os.getpid(), signal.SIGKILL)


def shortened(duration: timedelta) -> timedelta:
    """Return the duration, divided by the pace that a test has set."""
    return duration / _pace
