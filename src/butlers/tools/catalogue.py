"""Which core tools a butler offers: the families all have, and those of its role."""

from __future__ import annotations

from butlers.config.butler import Role
from butlers.messenger import approval_tools as approvals
from butlers.messenger import tools as messenger
from butlers.scheduling import tools as schedules
from butlers.switchboard import (
    connector_tools as connectors,
)
from butlers.switchboard import (
    contact_tools as contacts,
)
from butlers.switchboard import (
    tools as switchboard,
)
from butlers.switchboard import (
    triage_tools as triage,
)
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
