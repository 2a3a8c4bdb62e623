"""The roles that exist. A role's tools, workers, routes and tables are declared in its own package."""

from __future__ import annotations

from butlers.config.butler import ButlerConfig
from butlers.messenger.role import MessengerRole
from butlers.scheduling.role import SchedulingRole
from butlers.switchboard.role import SwitchboardRole
from butlers.tools.role import Role

ROLES: tuple[type[Role], ...] = (SchedulingRole, SwitchboardRole, MessengerRole)


def roles_of(config: ButlerConfig) -> tuple[type[Role], ...]:
    return tuple(role for role in ROLES if role.belongs_to(config))
