"""What nobody's words but the owner's may lead to: changing what a butler is, or what it will do."""

from __future__ import annotations

from butlers.domain.errors import NotAllowed
from butlers.tools.context import CallContext

HINT = "ask the owner, with notify, to have it done"


def refuse_strangers(ctx: CallContext, what: str) -> None:
    if ctx.request is not None and not ctx.request.is_owners:
        raise NotAllowed(f"a session that reads what somebody else wrote may not {what}", hint=HINT)
    if ctx.outside:
        read = ", ".join(sorted(ctx.outside))
        raise NotAllowed(
            f"a session that has read what others may have written ({read}) may not {what}",
            hint=HINT,
        )
