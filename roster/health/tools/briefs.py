"""Lines of Health for the morning brief and the evening review."""

from __future__ import annotations

from butlers.sdk import BriefPart, CallContext, shown_source

from .doses import due_doses
from .medications import active_medications, refill_text, today


async def brief_lines(ctx: CallContext, part: BriefPart) -> list[str]:
    """Return the doses of the day, or in the evening those still open; and supplies that run out."""
    found = await active_medications(ctx.connection)
    due = await due_doses(ctx.connection, found, today(ctx), today(ctx), ctx.zone)
    open_doses = [dose for dose in due if dose.status is None]
    for one in found:
        shown_source(ctx, one.row)
    if part is BriefPart.MORNING:
        lines = [f"{dose.medication.title} at {dose.due_at:%H:%M}." for dose in open_doses]
        return [*lines, *(f"Refill {refill_text(one)}." for one in found if one.needs_refill())]
    late = [dose for dose in open_doses if dose.due_at <= ctx.now]
    return [f"{dose.medication.title} of {dose.due_at:%H:%M} is not logged." for dose in late]
