"""Named points at which a test may have the process killed, to show that nothing is lost there.

``arm`` is called once by the process's entry point with what ``BUTLERS_KILL_POINT`` says; only tests
set that variable. Unarmed, a point costs one comparison.
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
