"""Scheduling as a role of every butler: the scheduler, the worker that runs due tasks, and the tools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from butlers.domain.queues import SCHEDULES
from butlers.scheduling import tools
from butlers.scheduling.runs import TaskRunner
from butlers.scheduling.scheduler import Scheduler
from butlers.tools.declaration import ToolFunction
from butlers.tools.role import Loop, QueueWork, Role, RoleParts


class SchedulingRole(Role):
    _parts: RoleParts
    _scheduler: Scheduler

    async def open(self, parts: RoleParts) -> None:
        self._parts = parts
        self._scheduler = Scheduler(
            parts.config, parts.database, parts.listener, parts.clock, parts.jobs
        )

    async def sync(self) -> None:
        await self._scheduler.sync()

    def services(self) -> Sequence[object]:
        return (self._scheduler,)

    def tools(self) -> Sequence[ToolFunction]:
        return tools.TOOLS

    def workers(self) -> Sequence[QueueWork]:
        parts, config = self._parts, self._parts.config
        runner = TaskRunner(
            config.name,
            parts.database,
            parts.clock,
            parts.spawner,
            parts.recovery,
            parts.jobs,
            timeout_s=config.runtime.timeout_s,
        )
        # More than the number of sessions, so that jobs do not wait for models.
        concurrency = config.runtime.max_concurrent_sessions + config.buffer.worker_count
        return (QueueWork(SCHEDULES, runner.process, concurrency),)

    def loops(self) -> Mapping[str, Loop]:
        return {"scheduler": self._scheduler.run}
