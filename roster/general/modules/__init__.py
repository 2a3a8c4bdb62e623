"""Module with the General butler's tools, jobs and lines of the brief."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from butlers.sdk import BriefPart, CallContext, Module

from ..jobs import checks
from ..tools import collections, everything, lists, notes


class GeneralModule(Module):
    name = "general"
    keeps_records = True
    tools = (*notes.TOOLS, *lists.TOOLS, *collections.TOOLS, *everything.TOOLS)
    jobs = checks.JOBS

    async def brief(self, ctx: CallContext, part: BriefPart) -> Sequence[str]:
        today = ctx.now.astimezone(ctx.zone).date()
        if part is BriefPart.MORNING:
            return [_line(item) for item in await lists.due_items(ctx, today)]
        late = await lists.due_items(ctx, today + timedelta(days=1))
        return [_line(item) for item in late]


def _line(item: dict[str, str]) -> str:
    return f"{item['title']} (due {item['due']})"
