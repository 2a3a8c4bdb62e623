"""Module with the Relationship butler's tools, jobs and lines of the brief."""

from collections.abc import Sequence

from butlers.sdk import BriefPart, CallContext, Module

from .. import jobs
from ..tools import (
    briefing,
    bulk,
    contacts,
    dates,
    deletion,
    gifts,
    groups,
    interactions,
    loans,
    merging,
    people,
    profile,
    touch,
)
from ..tools.address_book import PeopleBook
from ..tools.settings import RelationshipConfig


class RelationshipModule(PeopleBook, Module):
    name = "relationship"
    keeps_records = True
    config_schema = RelationshipConfig
    tools = (
        *people.TOOLS,
        *profile.TOOLS,
        *merging.TOOLS,
        *contacts.TOOLS,
        *dates.TOOLS,
        *interactions.TOOLS,
        *gifts.TOOLS,
        *loans.TOOLS,
        *groups.TOOLS,
        *touch.TOOLS,
        *deletion.TOOLS,
        *bulk.TOOLS,
    )
    jobs = jobs.JOBS

    async def brief(self, ctx: CallContext, part: BriefPart) -> Sequence[str]:
        return await briefing.morning_lines(ctx) if part is BriefPart.MORNING else ()
