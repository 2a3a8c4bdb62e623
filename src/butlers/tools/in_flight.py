"""Count of running calls, and who may begin one while the butler shuts down."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from butlers.domain.caller import Caller, CallerKind
from butlers.domain.errors import ShuttingDown


class InFlight:
    """Counts running calls. Sessions that are being drained may still call; nobody else may begin."""

    def __init__(self) -> None:
        self.count = 0
        self.last_ended = -math.inf  # in the loop's time
        self._refused: frozenset[CallerKind] = frozenset()
        self._idle = asyncio.Event()
        self._idle.set()

    def refuse_outsiders(self) -> None:
        self._refused = frozenset({CallerKind.OWNER, CallerKind.PEER})

    def refuse_all(self) -> None:
        self._refused = frozenset(CallerKind)

    async def wait_idle(self, timeout_s: float) -> bool:
        """Whether the last call ended in time."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._idle.wait(), timeout_s)
        return self.count == 0

    def admit(self, caller: Caller) -> None:
        if caller.kind in self._refused:
            raise ShuttingDown

    @contextmanager
    def counted(self, caller: Caller) -> Iterator[None]:
        self.admit(caller)
        self.count += 1
        self._idle.clear()
        try:
            yield
        finally:
            self.count -= 1
            self.last_ended = asyncio.get_running_loop().time()
            if self.count == 0:
                self._idle.set()
