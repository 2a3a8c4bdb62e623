"""Module with the Travel butler's tools and jobs."""

from collections.abc import Sequence

from butlers.sdk import BriefPart, CallContext, Module

from ..jobs import checks
from ..tools import bookings, briefs, checklists, documents, entries, legs, overview, trips


class TravelModule(Module):
    name = "travel"
    keeps_records = True
    config_schema = bookings.TravelConfig
    tools = (
        *trips.TOOLS,
        *legs.TOOLS,
        *bookings.TOOLS,
        *documents.TOOLS,
        *checklists.TOOLS,
        *overview.TOOLS,
        *entries.TOOLS,
    )
    jobs = checks.JOBS

    async def brief(self, ctx: CallContext, part: BriefPart) -> Sequence[str]:
        return await briefs.brief_lines(ctx, part)
