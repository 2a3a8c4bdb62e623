"""Check a roster against its conventions: files, names, ports, tools, skills, schedules and reflexes."""

from __future__ import annotations

from pathlib import Path

from butlers.config.settings import Settings
from butlers.daemon.roster_check.butler import RosterButler, load_roster_butler
from butlers.daemon.roster_check.files import check_files, check_ports
from butlers.daemon.roster_check.skills import check_schedules, check_skills
from butlers.daemon.roster_check.tools import check_mentions, check_reflexes, check_tools
from butlers.domain.diagnostic import Diagnostic
from butlers.skills.reflexes import conflicts
from butlers.switchboard.triage import FALLBACK

__all__ = ["check_roster"]

SHARED = "shared"


def check_roster(root: Path, settings: Settings) -> list[Diagnostic]:
    """Return every violation of a convention, butler by butler, then those between butlers."""
    folders = sorted(
        entry
        for entry in root.iterdir()
        if entry.is_dir() and not entry.name.startswith((".", "_"))
    )
    butlers = [load_roster_butler(folder, settings) for folder in folders if folder.name != SHARED]
    found: list[Diagnostic] = []
    for butler in butlers:
        found += butler.problems
        for rule in (check_files, check_tools, check_skills, check_schedules, check_reflexes):
            found += rule(butler)
        found += check_mentions(butler)
    return [*found, *check_ports(butlers), *_conflicts(butlers)]


def _conflicts(butlers: list[RosterButler]) -> list[Diagnostic]:
    """Return the examples that triage would send to another butler."""
    in_order = sorted(butlers, key=lambda one: (one.name == FALLBACK, one.name))
    return list(conflicts([(one.name, reflex) for one in in_order for reflex in one.book.reflexes]))
