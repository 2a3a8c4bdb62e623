"""Which core tools a butler offers: the families all have, and those of its role."""

from __future__ import annotations

from butlers.config.butler import Role
from butlers.tools import (
    approvals,
    attachments,
    connectors,
    contacts,
    control,
    dead_letters,
    messenger,
    modules,
    request_path,
    routing,
    schedules,
    sessions,
    state,
    status,
    switchboard,
    triage,
)
from butlers.tools.base import ToolSpec, spec_of

COMMON = (
    *status.TOOLS,
    *sessions.TOOLS,
    *routing.TOOLS,
    *attachments.TOOLS,
    *dead_letters.TOOLS,
    *request_path.TOOLS,
    *state.TOOLS,
    *schedules.TOOLS,
    *modules.TOOLS,
    *control.TOOLS,
)
SWITCHBOARDS = (*switchboard.TOOLS, *triage.TOOLS, *contacts.TOOLS, *connectors.TOOLS)
MESSENGERS = (*messenger.TOOLS, *approvals.TOOLS)
BY_ROLE = {Role.SWITCHBOARD: SWITCHBOARDS, Role.MESSENGER: MESSENGERS}


def core_tools(role: Role) -> tuple[ToolSpec, ...]:
    return tuple(spec_of(function) for function in (*COMMON, *BY_ROLE.get(role, ())))
