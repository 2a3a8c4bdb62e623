"""The core tools that every butler has. Roles, modules and skills bring further ones.

To add one, write the function in the file of its family and name it in that file's ``TOOLS``.
"""

from __future__ import annotations

from collections.abc import Sequence

from butlers.tools import (
    attachments,
    audit,
    control,
    notes,
    peers,
    records,
    reflexes,
    requests,
    result_pages,
    routing,
    sessions,
    state,
)
from butlers.tools.declaration import ToolFunction, ToolSpec, spec_of
from butlers.tools.role import Role

CORE: tuple[ToolFunction, ...] = (
    *control.TOOLS,
    *sessions.TOOLS,
    *routing.TOOLS,
    *attachments.TOOLS,
    *requests.TOOLS,
    *state.TOOLS,
    *records.TOOLS,
    *result_pages.TOOLS,
    *peers.TOOLS,
    *reflexes.TOOLS,
    *notes.TOOLS,
    *audit.TOOLS,
)


def core_tools(*roles: Role) -> tuple[ToolSpec, ...]:
    """Return the core tools and those of the roles."""
    families: list[Sequence[ToolFunction]] = [CORE, *(role.tools() for role in roles)]
    return tuple(spec_of(function) for family in families for function in family)
