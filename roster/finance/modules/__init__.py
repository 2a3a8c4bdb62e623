"""Module with the Finance butler's tools, jobs and lines of the brief."""

from collections.abc import Sequence

from butlers.sdk import BriefPart, CallContext, Module

from .. import jobs
from ..tools import (
    accounts,
    bills,
    briefing,
    budgets,
    bulk,
    categories,
    debts,
    deletion,
    duplicates,
    rates,
    reports,
    splits,
    transactions,
)
from ..tools.settings import FinanceConfig


class FinanceModule(Module):
    name = "finance"
    keeps_records = True
    config_schema = FinanceConfig
    tools = (
        *transactions.TOOLS,
        *splits.TOOLS,
        *accounts.TOOLS,
        *bills.TOOLS,
        *budgets.TOOLS,
        *reports.TOOLS,
        *debts.TOOLS,
        *rates.TOOLS,
        *categories.TOOLS,
        *duplicates.TOOLS,
        *deletion.TOOLS,
        *bulk.TOOLS,
    )
    jobs = jobs.JOBS

    async def brief(self, ctx: CallContext, part: BriefPart) -> Sequence[str]:
        if part is BriefPart.MORNING:
            return await briefing.morning_lines(ctx)
        return await briefing.evening_lines(ctx)
