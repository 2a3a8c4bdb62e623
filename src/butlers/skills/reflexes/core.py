"""Reflexes of every butler, beside those of its skills."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

from butlers.skills.reflexes.patterns import Template, compile_trigger, parse_template
from butlers.skills.reflexes.reflex import Reflex
from butlers.skills.reflexes.values import GroupRule

UNDO = Reflex(
    skill="core",
    name="undo",
    file=Path(__file__),
    triggers=(
        compile_trigger(r"(?i)undo (?P<request>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})"),
    ),
    groups={"request": GroupRule()},
    arguments={"request_id": Template((("request",),))},
    tool="undo",
    reply=parse_template("Undone: {result.text}."),
)
CORE_REFLEXES = (UNDO,)


def undo_text(request_id: UUID) -> str:
    """Return the message that makes a butler undo what another message changed."""
    return f"undo {request_id}"
