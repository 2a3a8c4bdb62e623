"""Module with the Health butler's tools and jobs."""

from collections.abc import Sequence

from butlers.sdk import BriefPart, CallContext, Module

from ..jobs import checks
from ..tools import (
    briefs,
    bulk,
    diary,
    doses,
    entries,
    measurements,
    medications,
    statistics,
    summary,
)


class HealthModule(Module):
    name = "health"
    keeps_records = True
    tools = (
        *measurements.TOOLS,
        *statistics.TOOLS,
        *medications.TOOLS,
        *doses.TOOLS,
        *diary.TOOLS,
        *entries.TOOLS,
        *summary.TOOLS,
        *bulk.TOOLS,
    )
    jobs = checks.JOBS

    async def brief(self, ctx: CallContext, part: BriefPart) -> Sequence[str]:
        return await briefs.brief_lines(ctx, part)
