"""The core tools that every butler has. Roles, modules and skills bring further ones."""

from __future__ import annotations

from butlers.tools import (
    attachments,
    control,
    dead_letters,
    modules,
    request_path,
    routing,
    sessions,
    state,
    status,
)
from butlers.tools.base import ToolFunction, ToolSpec, spec_of
from butlers.tools.role import Role

CORE = (
    *status.TOOLS,
    *sessions.TOOLS,
    *routing.TOOLS,
    *attachments.TOOLS,
    *dead_letters.TOOLS,
    *request_path.TOOLS,
    *state.TOOLS,
    *modules.TOOLS,
    *control.TOOLS,
)


def core_tools(*roles: type[Role]) -> tuple[ToolSpec, ...]:
    """Return the core tools and those of the roles."""
    families: list[tuple[ToolFunction, ...]] = [CORE, *(role.tools for role in roles)]
    return tuple(spec_of(function) for family in families for function in family)
