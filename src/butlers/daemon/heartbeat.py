"""Looks at the butler's own health again and again, and says so when it changes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import structlog

log = structlog.get_logger()

LOOK_S = 5.0  # a change is said within this, however seldom the heartbeat itself is logged


class Heartbeat:
    def __init__(self, status: Callable[[], Awaitable[dict[str, Any]]], interval_s: float) -> None:
        self._status = status
        self._interval_s = interval_s
        self._health: str | None = None

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        next_beat = loop.time()
        while True:
            state = await self._status()
            if state["health"] not in ("starting", self._health):
                self._changed(state)
            if loop.time() >= next_beat:
                log.debug("heartbeat", health=state["health"], queues=state["queues"])
                next_beat = loop.time() + self._interval_s
            await asyncio.sleep(min(LOOK_S, self._interval_s))

    def _changed(self, state: dict[str, Any]) -> None:
        before, self._health = self._health, state["health"]
        if before is None and self._health == "healthy":
            return
        say = log.info if self._health == "healthy" else log.warning
        say("health changed", before=before, now=self._health, database=state["database"])
