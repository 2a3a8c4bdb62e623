"""Named kill points, at which a test kills the process to show that nothing is lost there.

The process's entry point calls ``arm`` once with the value of ``BUTLERS_KILL_POINT``, which only tests set.
Unarmed, a kill point costs one comparison.
"""

from __future__ import annotations

import os
import signal

_armed: str | None = None


def arm(point: str | None) -> None:
    global _armed
    _armed = point


def kill_point(name: str) -> None:
    if _armed is not None and name == _armed:
        os.kill(os.getpid(), signal.SIGKILL)
